"""The original's switch QM_DONT_READ_MESSAGE_AT_START: with a pool that is missing, damaged or cut
the service goes on. New messages collide with nothing, and the old pool waits for its repair."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from omq.base import events
from omq.base.errors import Exit
from omq.cli.launch import run as launch
from omq.format.pool import RECORD_BYTES
from tests.process.instance import MANAGER, WRITER, Instance
from tests.waiting import until

OLD, NEW = 40, 60


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: 5 * RECORD_BYTES + 100])


def _damaged(path: Path) -> None:
    """Records are overwritten, some with zeros, some with anything."""
    data = bytearray(path.read_bytes())
    data[2 * RECORD_BYTES : 4 * RECORD_BYTES] = bytes(2 * RECORD_BYTES)
    data[6 * RECORD_BYTES : 8 * RECORD_BYTES] = os.urandom(2 * RECORD_BYTES)
    path.write_bytes(data)


def _a_record(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[3 * RECORD_BYTES + 40] ^= 1
    path.write_bytes(data)


def _foreign(path: Path) -> None:
    path.write_bytes(b"no pool file" * 1000)


FAULTS: dict[str, Callable[[Path], None]] = {
    "missing": Path.unlink, "cut": _cut, "damaged": _damaged, "one record": _a_record,
    "foreign": _foreign}


def _not_read(instance: Instance, *, on: bool) -> None:
    instance.settings()
    if on:  # as the original's manual writes it
        text = (instance.conf / "omq.conf").read_text()
        (instance.conf / "omq.conf").write_text(text.replace(
            "[daemons]\n", "[daemons]\nQM_DONT_READ_MESSAGE_AT_START=TRUE\n"))


def put(instance: Instance, count: int, word: bytes) -> list[bytes]:
    bodies = [b"%s %d" % (word, number) for number in range(count)]
    with instance.connect() as connection:
        for body in bodies:
            connection.put("A", body)
    return bodies


@pytest.mark.parametrize("end", ["stopped", "killed"])
@pytest.mark.parametrize("fault", FAULTS)
def test_the_service_goes_on_and_the_old_pool_waits(
        omq_instance: Instance, fault: str, end: str, capsys: pytest.CaptureFixture[str],
        tmp_path: Path) -> None:
    omq_instance.start(MANAGER, WRITER)
    old = put(omq_instance, OLD, b"old")
    pool = omq_instance.paths.msgpool / "0QP"
    until(pool.exists)  # pool.writer may begin late, and is told to stop below
    if end == "killed":
        omq_instance.stop(WRITER)  # a checkpoint has them; what comes now is in the journal alone
        old += put(omq_instance, 5, b"late")
        omq_instance.kill(MANAGER)
    else:
        omq_instance.stop(MANAGER, WRITER)
    assert pool.stat().st_size > OLD * RECORD_BYTES
    FAULTS[fault](pool)
    broken = pool.read_bytes() if pool.exists() else None

    _not_read(omq_instance, on=True)
    omq_instance.start(MANAGER, WRITER)
    omq_instance.ready()
    new = put(omq_instance, NEW, b"new")
    assert omq_instance.events(events.MESSAGES_NOT_READ.number)
    if fault != "one record":  # of that file the rest is used
        assert (pool.read_bytes() if pool.exists() else None) == broken, "it stays as it was"
        said = omq_instance.events(events.BLOCK_QUARANTINED.number)
        assert any(each["file"] == "0QP" for each in said)
    omq_instance.stop(MANAGER, WRITER)
    omq_instance.start(MANAGER, WRITER)  # once more
    omq_instance.ready()
    with omq_instance.connect() as connection, connection.reader("A") as reader:
        assert not reader.next(timeout_s=0), "not read: they wait in the pool"
    new += put(omq_instance, 1, b"more")
    omq_instance.stop(MANAGER, WRITER)

    _not_read(omq_instance, on=False)
    if fault != "one record":
        assert omq_instance.start(MANAGER).wait() == Exit.DATA, "nothing is passed over for good"
    plan = tmp_path / "plan"
    launch("omqrecover", ["plan", str(omq_instance.root), "--save", str(plan)])
    assert launch("omqrecover", ["apply", str(omq_instance.root), str(plan)]) == 0, (
        capsys.readouterr())
    omq_instance.start(MANAGER, WRITER)
    omq_instance.ready()
    found = omq_instance.drain("A")
    assert sorted(each.body or b"" for each in found) == sorted([*old, *new])
    assert len({each.message_id for each in found}) == len(found)
    omq_instance.stop(MANAGER, WRITER)
    omq_instance.paths.event_log.write_text("")  # damage was the point
