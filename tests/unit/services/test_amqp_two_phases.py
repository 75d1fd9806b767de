"""The commit of a transaction over several links: what becomes of it when an answer is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("proton", reason="the extra `amqp`: python-qpid-proton")

from omq.base.errors import (
    ManagerHung,
    ManagerUnavailable,
    OmqError,
    TimedOut,
    UnitTooLarge,
)
from omq.services.amqp import two_phases


class Native:
    """A manager that ends units; `ended`: which, and how."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def commit_unit(self, unit: str) -> None:
        self.ended.append(f"commit {unit}")

    def back_out_unit(self, unit: str) -> None:
        self.ended.append(f"back out {unit}")


class Link:
    """One that prepares its part, or does not."""

    def __init__(self, name: str, error: OmqError | None = None) -> None:
        self.name, self.error = name, error

    async def call(self, _work: Callable[..., str]) -> str:
        if self.error is not None:
            raise self.error
        return self.name


def ended(last: OmqError | None) -> list[str]:
    """What is ordered for a transaction over three links, the last of which answers so."""
    native = Native()

    async def run(work: Callable[[Any], None]) -> None:
        work(native)

    taken = [SimpleNamespace(say=None, given=SimpleNamespace(native="a message"))]
    links = [Link("0"), Link("1"), Link("2", last)]
    transaction: Any = SimpleNamespace(new=[], links=lambda: dict.fromkeys(links, taken))
    host: Any = SimpleNamespace(run=run)
    try:
        asyncio.run(two_phases.commit(host, transaction))
    except OmqError as error:
        assert error is last
    else:
        assert last is None
    return native.ended


def test_all_are_committed_the_first_one_first() -> None:
    assert ended(None) == ["commit 0", "commit 1", "commit 2"]


def test_one_that_is_refused_backs_out_the_first_one_last() -> None:
    assert ended(UnitTooLarge(limit=1, what="messages", key="k")) == ["back out 1", "back out 0"]


@pytest.mark.parametrize("lost", [
    TimedOut(seconds=1, what="the queue manager"),
    ManagerUnavailable(spool=Path("spool"), reason="it died"),
    ManagerHung(spool=Path("spool"), pid=1, state="hangs", advice="wait")])
def test_one_whose_answer_is_lost_leaves_all_in_doubt(lost: OmqError) -> None:
    """It may be prepared later: without the first one it would be committed at the next start."""
    assert ended(lost) == []
