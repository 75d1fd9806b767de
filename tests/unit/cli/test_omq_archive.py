"""omq-archive: journal files become archive files, whatever cuts it; nothing needed is removed."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omq.base.errors import Exit
from omq.base.event_log import EventLog
from omq.base.settings import Settings
from omq.cli import launch
from omq.cli.operate import omq_archive
from omq.format import pool
from omq.format.location import LocationKind, location
from omq.format.poolctrl import PoolControl
from omq.storage import archiver, durable
from omq.storage import poolctrl as control
from omq.storage.archive import BODIES_SUFFIX, FRAMES_SUFFIX, archive_name
from omq.storage.disk import Disk
from omq.storage.journal import file_name, numbers_in
from omq.storage.journal_retire import retire
from omq.storage.pool import PoolFiles
from omq.storage.spool import SpoolInfo, create_spool
from tests.process.processes import WAIT_S, popen
from tests.unit.format import samples
from tests.unit.storage.world import TIME_NS, Journal, use_faulty

DAY_NS = 86_400 * 1_000_000_000
NOW_NS = TIME_NS + 10 * DAY_NS


@pytest.fixture
def info(tmp_path: Path) -> SpoolInfo:
    durable.use(Disk())
    made = create_spool(tmp_path / "spool")
    made.paths.conf.mkdir()  # what these files tell of is older than any default
    (made.paths.conf / "omq.conf").write_text("[archive]\narchive_days = 0\n")
    return made


@pytest.fixture
def retired(info: SpoolInfo) -> dict[int, bytes]:
    """Three retired journal files, the fourth is in use; their bytes."""
    writer = Journal(info)
    while writer.writer.file_number < 4:
        writer.put(bytes([writer.next_lsn % 251]) * 9000)
    writer.writer.close()
    found = {n: (info.paths.journal / file_name(n)).read_bytes() for n in (1, 2, 3)}
    for number in found:
        retire(info.paths, number, keep=True)
    point = PoolControl(info.uuid, 1, writer.next_lsn - 1, 1, 4, 4096, 1, TIME_NS, 0, {}, {})
    control.store(info.paths, point)
    return found


def run(info: SpoolInfo, now_ns: int = NOW_NS, **settings: Any) -> int:
    log = EventLog("omq-archive", None, stderr=False)
    young: dict[str, Any] = {"archive_days": 0}
    return omq_archive.run(info, replace(Settings(), **young | settings), log, now_ns=now_ns,
                           dry=False)


def rebuilt(info: SpoolInfo, number: int, tmp_path: Path) -> bytes:
    target = tmp_path / "back.jnl"
    code = launch.run("omq-archive", ["--spool", str(info.paths.root), "--rebuild", str(number),
                                      "--to", str(target)])
    assert code == 0
    return target.read_bytes()


def archived(info: SpoolInfo, suffix: str = FRAMES_SUFFIX) -> list[int]:
    return numbers_in(info.paths.archive, suffix)


def test_journal_files_become_archives_and_come_back(
        info: SpoolInfo, retired: dict[int, bytes], tmp_path: Path) -> None:
    assert run(info) == 0
    assert archiver.pending(info.paths) == []
    assert archived(info) == archived(info, BODIES_SUFFIX) == [1, 2, 3]
    for number, data in retired.items():
        assert rebuilt(info, number, tmp_path) == data


def test_a_second_run_has_nothing_to_do(info: SpoolInfo, retired: dict[int, bytes]) -> None:
    assert retired
    run(info)
    before = {path: path.read_bytes() for path in info.paths.archive.iterdir()}
    disk = use_faulty()
    assert run(info) == 0
    assert not [call for call in disk.calls if call.startswith(("rename", "unlink", "write"))
                and call != "write archive.lock"]  # who holds it
    assert {path: path.read_bytes() for path in info.paths.archive.iterdir()} == before


@pytest.mark.parametrize("fault", [
    "durable.before_rename:kill:1", "durable.after_rename:kill:1", "durable.before_rename:kill:2",
    "durable.after_rename:kill:2", "durable.after_rename:kill:5"])
def test_killed_anywhere_it_goes_on(info: SpoolInfo, retired: dict[int, bytes], fault: str,
                                    tmp_path: Path) -> None:
    argv = ["--quiet", "--spool", str(info.paths.root)]
    cut = popen("omq-archive", argv, environment={"OMQ_FAULT": fault})
    assert cut.wait(WAIT_S) == -signal.SIGKILL
    for number in retired:
        there = number in archiver.pending(info.paths) or number in archived(info)
        assert there, f"journal file {number} is in neither form"
    assert popen("omq-archive", argv).wait(WAIT_S) == 0
    assert archiver.pending(info.paths) == []
    for number, data in retired.items():
        assert rebuilt(info, number, tmp_path) == data


def test_old_archives_and_bodies_go_but_not_the_newest(
        info: SpoolInfo, retired: dict[int, bytes]) -> None:
    assert retired
    run(info, archive_bodies_days=11)
    assert archived(info, BODIES_SUFFIX) == [1, 2, 3]
    run(info, archive_bodies_days=9)
    assert archived(info, BODIES_SUFFIX) == [3]
    run(info, archive_days=11)
    assert archived(info) == [1, 2, 3]
    run(info, archive_days=9)
    assert archived(info) == [3]


def test_the_oldest_go_until_the_rest_is_small_enough(
        info: SpoolInfo, retired: dict[int, bytes]) -> None:
    assert retired
    run(info)
    sizes = [sum((info.paths.archive / archive_name(n, suffix)).stat().st_size
                 for suffix in (FRAMES_SUFFIX, BODIES_SUFFIX)) for n in (1, 2, 3)]
    run(info, archive_bytes_max=sum(sizes))
    assert archived(info) == [1, 2, 3]
    run(info, archive_bytes_max=sum(sizes) - 1)
    assert archived(info) == [2, 3]
    assert archived(info, BODIES_SUFFIX) == [2, 3]


def name_in_pool(info: SpoolInfo, number: int) -> None:
    """A message of the pool has its body in journal file `number`."""
    message = replace(samples.pool_message(1, 0), file=11,
                      location=location(LocationKind.JOURNAL, number), more=[])
    data = pool.encode_file_header(11, info.uuid, TIME_NS)
    data += b"".join(image for _, image in pool.encode_message(message))
    (info.paths.msgpool / "11QP").write_bytes(data)


def test_what_the_pool_names_stays_and_all_behind_it(
        info: SpoolInfo, retired: dict[int, bytes]) -> None:
    assert retired
    name_in_pool(info, 2)
    assert run(info, archive_days=1, archive_bodies_days=1) == 0
    assert archiver.pending(info.paths) == [2]
    assert archived(info) == archived(info, BODIES_SUFFIX) == [2, 3]
    (info.paths.msgpool / "11QP").unlink()
    run(info, archive_days=1)
    assert archiver.pending(info.paths) == []


def test_a_record_that_cannot_be_read_keeps_every_body(
        info: SpoolInfo, retired: dict[int, bytes]) -> None:
    assert retired
    name_in_pool(info, 2)
    path = info.paths.msgpool / "11QP"
    data = bytearray(path.read_bytes())
    data[pool.RECORD_BYTES + 100] ^= 1
    path.write_bytes(data)
    assert run(info, archive_days=1, archive_bodies_days=0) == Exit.DATA
    assert archived(info) == archived(info, BODIES_SUFFIX) == [1, 2, 3]
    path.unlink()
    assert run(info, archive_days=1) == 0
    assert archived(info) == [3]


def _zeroed(data: bytes) -> bytes:
    return data[: pool.RECORD_BYTES] + bytes(len(data) - pool.RECORD_BYTES)


@pytest.mark.parametrize("fault", [lambda data: None, lambda data: b"", _zeroed,
                                   lambda data: data[: pool.RECORD_BYTES]],
                         ids=["absent", "emptied", "zeroed record", "cut"])
def test_a_pool_file_that_is_not_what_was_left_keeps_every_body(
        info: SpoolInfo, retired: dict[int, bytes], fault: Callable[[bytes], bytes | None]) -> None:
    """Its records may be made again from what is archived, and name bodies there."""
    assert retired
    name_in_pool(info, 2)
    files = PoolFiles(info.paths, info.uuid)
    point, _ = control.load(info.paths)
    assert point is not None
    control.store(info.paths, replace(point, generation=point.generation + 1,
                                      contents=files.contents()))
    files.close()
    path = info.paths.msgpool / "11QP"
    kept, damaged = path.read_bytes(), fault(path.read_bytes())
    path.unlink()
    if damaged is not None:
        path.write_bytes(damaged)
    assert run(info, archive_days=1, archive_bytes_max=1, archive_bodies_days=0) == Exit.DATA
    assert archived(info) == archived(info, BODIES_SUFFIX) == [1, 2, 3]
    path.write_bytes(kept)
    assert run(info, archive_days=1) == 0
    assert archived(info) == [2, 3], "repaired it goes on: the pool names 2"


def test_without_a_checkpoint_nothing_is_removed(
        info: SpoolInfo, retired: dict[int, bytes]) -> None:
    assert retired
    (info.paths.msgpool / "poolctrl").unlink()
    run(info, archive_days=1, archive_bodies_days=1)
    assert archived(info) == [1, 2, 3]


def test_without_bodies_the_frames_stay(info: SpoolInfo, retired: dict[int, bytes]) -> None:
    assert retired
    assert run(info, archive_bodies_days=0) == 0
    assert archived(info) == [1, 2, 3]
    assert archived(info, BODIES_SUFFIX) == []


def test_a_full_disk_leaves_the_journal_file(info: SpoolInfo, retired: dict[int, bytes]) -> None:
    disk = use_faulty()
    disk.failures["write"] = 28
    code = launch.run("omq-archive", ["--quiet", "--spool", str(info.paths.root)])
    assert code == Exit.TEMPORARY
    durable.use(Disk())
    assert archiver.pending(info.paths) == list(retired)
    assert archived(info) == []
    assert run(info) == 0


def test_what_does_not_come_back_stays(info: SpoolInfo, retired: dict[int, bytes],
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archiver, "rebuild", lambda oma, omb: b"something else")
    assert run(info) == Exit.DATA
    assert archiver.pending(info.paths) == list(retired)


def test_the_next_journal_file_is_numbered_above_the_archive(
        info: SpoolInfo, retired: dict[int, bytes]) -> None:
    assert retired
    run(info)
    for path in info.paths.journal.iterdir():
        path.unlink()
    writer = Journal(info, next_lsn=1000)
    assert writer.writer.file_number == 4
    writer.writer.close()


def test_list_and_dry_run(info: SpoolInfo, retired: dict[int, bytes],
                          capsys: pytest.CaptureFixture[str]) -> None:
    spool = ["--spool", str(info.paths.root)]
    assert launch.run("omq-archive", [*spool, "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"archive {n:010d}.jnl" for n in retired]
    run(info)
    assert launch.run("omq-archive", [*spool, "--list", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["file"] for row in rows] == [archive_name(n) for n in retired]
    assert rows[0]["last_lsn"] + 1 == rows[1]["first_lsn"]
    assert launch.run("omq-archive", [*spool, "--rebuild", "9"]) == Exit.NO_INPUT
