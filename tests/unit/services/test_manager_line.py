"""How a sender tells the manager what its standby has: by requests, and by lines where it must."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sysv_ipc

from omq.base.paths import SpoolPaths
from omq.format.wire import REQUEST, Operation
from omq.ipc.client.control_line import Lost
from omq.services.standby import manager_line
from omq.services.standby.manager_line import ManagerLine
from omq.services.standby.synced_to_manager import SyncedToManager

FACTS: dict[str, Any] = {"requests": 7, "client": 3, "token": "00" * 8, "takes_synced": True}


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[sysv_ipc.MessageQueue]:
    made = sysv_ipc.MessageQueue(None, sysv_ipc.IPC_CREX, max_message_size=REQUEST.size)
    monkeypatch.setattr(manager_line, "way_of_requests", lambda requests, line: made)
    yield made
    try:
        made.remove()
    except sysv_ipc.ExistentialError:
        assert made.id  # a test has removed it


@pytest.mark.parametrize("without", [{"takes_synced": None}, {"requests": None}])
def test_an_earlier_manager_gets_no_request(tmp_path: Path, queue: sysv_ipc.MessageQueue,
                                            without: dict[str, Any]) -> None:
    line = ManagerLine(SpoolPaths(tmp_path))
    line._take_up(FACTS, None)  # type: ignore[arg-type]
    assert line.request(Operation.SYNCED, 5)
    assert queue.current_messages == 1
    line._take_up({**FACTS, **without}, None)  # type: ignore[arg-type]
    assert not line.request(Operation.SYNCED, 6)
    assert queue.current_messages == 1


def test_a_full_queue_takes_none_and_one_that_is_gone_is_told(
        tmp_path: Path, queue: sysv_ipc.MessageQueue) -> None:
    line = ManagerLine(SpoolPaths(tmp_path))
    line._take_up(FACTS, None)  # type: ignore[arg-type]
    sent = 0
    while line.request(Operation.SYNCED, sent):
        sent += 1
    assert sent == queue.current_messages > 1
    queue.remove()
    with pytest.raises((Lost, OSError)):
        line.request(Operation.SYNCED, sent)


def test_what_no_request_says_is_said_by_a_line(tmp_path: Path,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """The first word names the standby; and each one that the queue did not take."""
    full = False
    asked: list[int] = []
    said: list[int] = []

    def request(_line: ManagerLine, _operation: Operation, size: int) -> bool:
        if not full:
            asked.append(size)
        return not full

    monkeypatch.setattr(ManagerLine, "descriptor", 1)
    monkeypatch.setattr(ManagerLine, "heard", lambda line: [])
    monkeypatch.setattr(ManagerLine, "request", request)
    monkeypatch.setattr(ManagerLine, "say", lambda line, question: said.append(question["synced"]))
    to_manager = SyncedToManager(SpoolPaths(tmp_path))
    for synced, full in ((5, False), (6, False), (7, True), (8, False)):  # noqa: B007 (request)
        to_manager.turn("north", synced)
    assert (said, asked) == ([5, 7], [6, 8])
