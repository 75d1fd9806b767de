"""Terms: a promotion leaves numbers free, so that two histories of one instance never give one id
to two messages; who is no primary does not serve."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

import omq
from omq.base import clock, events
from omq.base.errors import Exit
from omq.cli import launch
from omq.cli.watch.facts import gather
from omq.core.load.offline_index import read_files
from omq.format.index import Counter
from omq.format.journal import FileHeader
from omq.services.daemon.options import Location
from omq.storage import instance_file
from omq.storage.instance_file import LEAP, Instance, Role
from omq.storage.journal import numbers_in
from omq.storage.journal_newest import load as load_newest
from omq.storage.journal_reader import read_entry, scan_journal
from omq.storage.spool import open_spool
from tests.process import instance as world
from tests.process.instance import MANAGER, WRITER
from tests.process.processes import start_program
from tests.waiting import until


def number_of(message: omq.Message | bytes | str) -> int:
    """The QPoolId in a derived message id (FORMATS)."""
    return int(str(message)[32:], 16)


def put(made: world.Instance, *bodies: bytes) -> list[int]:
    with made.connect() as c:
        return [number_of(c.put("A", body)) for body in bodies]


def promoted(made: world.Instance, term: int, member: str = "b") -> None:
    """What a promotion writes."""
    instance_file.write(made.paths, Instance(open_spool(made.root).uuid, term, Role.PRIMARY,
                                             member))


def headers(made: world.Instance) -> list[FileHeader]:
    uuid = open_spool(made.root).uuid
    found = [read_entry(made.paths, number, uuid).header for number in numbers_in(
        made.paths.journal)]
    return [header for header in found if header is not None]


def test_two_histories_never_give_the_same_id(omq_instance: world.Instance, tmp_path: Path) -> None:
    """The spool as a standby has it is promoted; the old primary goes on where it was."""
    omq_instance.start(MANAGER, WRITER)
    omq_instance.ready()
    put(omq_instance, b"1", b"2")
    omq_instance.kill(MANAGER, WRITER)
    old = tmp_path / "old"
    shutil.copytree(omq_instance.root, old, ignore=shutil.ignore_patterns("run"))
    promoted(omq_instance, 1)
    omq_instance.start(MANAGER, WRITER)
    omq_instance.ready()
    new = put(omq_instance, b"3", b"4")
    omq_instance.stop()
    old.joinpath("run").mkdir(mode=0o711)
    child = start_program(MANAGER, ["--spool", str(old), "--conf", str(omq_instance.conf)],
                          output=omq_instance.output)
    try:
        with omq.connect(old, name="test", timeout_s=30) as c:
            going_on = [number_of(c.put("A", b"other")) for _ in range(50)]
    finally:
        child.signal(15)
        child.wait()
    assert min(new) > LEAP and max(going_on) < LEAP
    omq_instance.start(MANAGER, WRITER)
    assert sorted(m.body for m in omq_instance.drain("A")) == [b"1", b"2", b"3", b"4"]


def test_the_term_stands_in_headers_blocks_and_the_note(omq_instance: world.Instance) -> None:
    omq_instance.start()
    omq_instance.ready()
    put(omq_instance, b"1")
    omq_instance.stop(MANAGER)
    assert [h.term for h in headers(omq_instance)] == [0]
    promoted(omq_instance, 1)
    omq_instance.start()
    omq_instance.ready()
    put(omq_instance, b"2")
    omq_instance.stop(MANAGER)
    first, second = headers(omq_instance)
    uuid = open_spool(omq_instance.root).uuid
    assert (first.term, second.term) == (0, 1)
    assert second.first_lsn == second.follows_lsn + 1 + LEAP
    assert {(b.number, b.header.term) for b in scan_journal(omq_instance.paths, uuid)} == {
        (first.number, 0), (second.number, 1)}
    noted = load_newest(omq_instance.paths)
    assert noted is not None and (noted.number, noted.term) == (second.number, 1)


def test_the_leap_is_made_once(omq_instance: world.Instance) -> None:
    """Also where the first start of the term is killed: before its header, and behind it."""
    omq_instance.start()
    omq_instance.ready()
    put(omq_instance, b"1")
    omq_instance.stop(MANAGER)
    promoted(omq_instance, 1)
    for point in ("recovery.after_redo", "poolctrl.after_sync", "journal.before_sync",
                  "recovery.before_serve", "recovery.before_redo"):
        assert omq_instance.start(MANAGER, fault=f"{point}:kill:1").wait() == -signal.SIGKILL
    omq_instance.start()
    omq_instance.ready()
    (number,) = put(omq_instance, b"2")
    assert LEAP < number < LEAP + (1 << 20)
    omq_instance.stop(MANAGER)
    first = [h.first_lsn for h in headers(omq_instance) if h.term]
    assert len(first) > 1 and LEAP < first[0] < first[-1] < LEAP + (1 << 20)


def test_a_leap_is_no_lag(omq_instance: world.Instance) -> None:
    """Neither clients nor the operator see the numbers that are void as frames to be replayed: not
    while nobody takes a checkpoint, nor when nothing runs, nor by pool.writer's own line."""
    omq_instance.settings(checkpoint_interval_s=3600)
    omq_instance.start(MANAGER, WRITER)
    omq_instance.ready()
    put(omq_instance, b"1")
    omq_instance.stop()
    promoted(omq_instance, 1)
    omq_instance.start()
    omq_instance.ready()
    put(omq_instance, b"2")
    location = Location(None, omq_instance.paths, omq_instance.conf)
    assert 0 < gather(location).checkpoint_lag < 1000
    omq_instance.kill(MANAGER)
    counters = read_files(omq_instance.paths, clock.wall_ns()).tables.counters
    lag = counters[Counter.LAST_LSN] - counters[Counter.CHECKPOINT_LSN]
    assert 0 < lag < 1000, "from the files"
    promoted(omq_instance, 2)
    omq_instance.start(MANAGER, WRITER)
    omq_instance.ready()
    put(omq_instance, b"3")
    until(lambda: bool(omq_instance.events(events.POOL_WRITER_STARTED.number)[1:]),
          omq_instance.said)
    assert not omq_instance.events(events.CHECKPOINT.number)[1:], "a leap makes none due"
    assert not omq_instance.events(events.BACK_PRESSURE.number)


@pytest.mark.parametrize("role", [Role.STANDBY, Role.FORMER])
def test_who_is_no_primary_changes_nothing(omq_instance: world.Instance, role: Role,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    omq_instance.start(MANAGER, WRITER)
    omq_instance.ready()
    put(omq_instance, b"1")
    omq_instance.stop()
    before = omq_instance.paths.uuid.read_bytes()
    instance_file.write(omq_instance.paths, Instance(
        open_spool(omq_instance.root).uuid, 2, role, "a", "b at b.example:7300"))
    files = {p: p.read_bytes() for p in omq_instance.paths.journal.iterdir()}
    for program in (MANAGER, WRITER):
        assert omq_instance.start(program).wait() == Exit.UNAVAILABLE
    spool = ["--spool", str(omq_instance.root)]
    for command in (["omrc", "--embedded", *spool],
                    ["omq-archive", *spool]):
        assert launch.run(command[0], command[1:]) == Exit.UNAVAILABLE, command
        said = capsys.readouterr().err
        assert f"a {role.words} of its instance (member a)" in said and "b.example" in said, said
    assert launch.run("omqcheck", spool) == 0, "who looks may look"
    assert files == {p: p.read_bytes() for p in omq_instance.paths.journal.iterdir()}
    omq_instance.paths.uuid.write_bytes(before)


def test_an_instance_file_from_before_a_promotion_is_refused(omq_instance: world.Instance) -> None:
    omq_instance.start()
    omq_instance.ready()
    omq_instance.stop(MANAGER)
    before = omq_instance.paths.uuid.read_bytes()
    assert json.loads(before) == {"format": 1, "uuid": open_spool(omq_instance.root).uuid.hex()}, \
        "without a standby an earlier omq may still start it"
    promoted(omq_instance, 1)
    omq_instance.start()
    omq_instance.ready()
    omq_instance.stop(MANAGER)
    omq_instance.paths.uuid.write_bytes(before)
    assert omq_instance.start().wait() == Exit.DATA
    said = omq_instance.said()
    assert "is of term 1: it comes from before a promotion" in said
    assert f"omqrecover identity {omq_instance.root}" in said
    assert launch.run("omqrecover", ["identity", str(omq_instance.root)]) == 0
    found = open_spool(omq_instance.root).instance
    assert (found.term, found.role) == (1, Role.PRIMARY)
