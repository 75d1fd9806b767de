"""SYNCED as bytes, in both forms of a turn: what a standby has, said by a sender that has named it;
all else is refused by its name, and releases nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from omq.base import errors
from omq.format.wire import Operation
from omq.ipc.server.held_replies import HeldReplies, Protection
from tests.model.instance import Client, Instance
from tests.model.test_unit_requests import ask, client


def test_who_waits_for_no_standby_refuses_it(instance: Instance) -> None:
    assert isinstance(ask(instance, client(instance, 1), Operation.SYNCED, size=5),
                      errors.BadRequest)


@pytest.fixture
def lines() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    with here, there:
        yield here, there


def test_an_answer_of_a_sender_that_has_named_its_standby_counts(
        instance: Instance, lines: tuple[socket.socket, socket.socket]) -> None:
    held = HeldReplies(instance.engine, 1, None, lambda state, standbys: True)
    instance.server.held = held
    sender, stranger = client(instance, 1), client(instance, 2)
    sender.live.door.connection, lsn = lines[0], instance.engine.durable_lsn

    def synced(who: Client, size: int) -> None:
        """As it lies on the request queue, among the requests of a group."""
        who.sequence += 1
        raw = instance.packed(who, Operation.SYNCED, size=size)
        instance.server.group([raw], instance.wall, instance.mono, lambda: False)

    instance.group(lambda: held.heard(sender.live, {"member": "b", "synced": 0}))
    assert held.protection is Protection.SYNCED
    synced(stranger, lsn)
    assert isinstance(instance.reply(stranger), errors.BadRequest)
    assert held._synced == 0, "a stranger's word"
    for size in (lsn + 7, lsn + 9):
        synced(sender, size)
        assert held._synced == size
    assert instance.reply(sender) is None, "it gets no answer"
    sender.sequence -= 1
    synced(sender, lsn + 20)
    assert held._synced == lsn + 9, "a number that was used"
    instance.server.held = None
