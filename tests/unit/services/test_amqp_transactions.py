"""Transactions of AMQP whose time is over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("proton", reason="the extra `amqp`: python-qpid-proton")

from omq.services.amqp.transactions import TIMED_OUT, Transactions


class _Link:
    """One that took; `back`: what it has again."""

    def __init__(self, back: list[Any]) -> None:
        self._back = back

    def rolled_back(self, some: list[Any], _reason: str) -> None:
        self._back += some


@pytest.mark.parametrize(("condition", "found"), [("", TIMED_OUT), ("spoiled", "spoiled")])
def test_it_gives_back_what_it_took_whether_spoiled_or_not(condition: str, found: str) -> None:
    back: list[Any] = []
    room = SimpleNamespace(keep=lambda _size, _files: None)
    settings = SimpleNamespace(amqp_transactions_max=1, unit_messages_max=10,
                               amqp_transaction_timeout_s=-1)
    host = SimpleNamespace(policy=SimpleNamespace(settings=settings), room=lambda _user: room)
    session: Any = SimpleNamespace(host=host, user=SimpleNamespace(name="me"))
    transactions = Transactions(session)
    made = transactions.declare()
    taken: Any = SimpleNamespace(link=_Link(back))
    made.take(taken)
    made.condition = condition
    transactions.look()
    assert back == [taken] and made.taken == [] and made.condition == found
