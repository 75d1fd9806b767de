"""Which history goes, oldest first; which stays, and why; what a removal that is cut leaves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from omq.base.errors import BadRequest, DiskError, SpoolLocked
from omq.base.settings import DEFAULTS
from omq.format.poolctrl import PoolControl
from omq.storage import durable, history, holds
from omq.storage import poolctrl as control
from omq.storage.archive import archive_name
from omq.storage.history import Bounds, Going
from omq.storage.holds import Hold
from omq.storage.journal import file_name
from omq.storage.spool import SpoolInfo
from tests.unit.storage.world import TIME_NS, Journal

DAY_NS = 86_400 * 10**9
NONE = Bounds(0, 0, 36_500)
SIZE = 1200


@pytest.fixture
def info(info: SpoolInfo) -> SpoolInfo:
    """Six numbers of 1200 bytes: archive files, both, retired journal files; the checkpoint goes on
    in the seventh."""
    for number, suffixes in enumerate((".oma", ".oma .omb", ".oma .omb .jnl", ".jnl", ".jnl",
                                       ".jnl"), start=1):
        for suffix in suffixes.split():
            (info.paths.archive / archive_name(number, suffix)).write_bytes(
                bytes(SIZE // len(suffixes.split())))
    control.store(info.paths, PoolControl(info.uuid, 1, 9, 1, 7, 4096, 1, TIME_NS, 0, {}, {}))
    return info


def plan(info: SpoolInfo, may_go: Callable[[int], bool] = lambda _: True, *, now_ns: int = TIME_NS,
         bounds: Bounds = NONE, **changed: int) -> list[int]:
    found = history.plan(info.paths, replace(bounds, **changed), now_ns, may_go)
    assert not any(each.bodies_only for each in found)
    return [each.number for each in found]


@pytest.mark.parametrize(("bytes_max", "gone"), [
    (0, []), (7200, []), (7199, [1]), (6000, [1]), (3600, [1, 2, 3]), (1, [1, 2, 3, 4, 5])])
def test_the_oldest_go_until_the_rest_fits(info: SpoolInfo, bytes_max: int, gone: list[int]
                                           ) -> None:
    """Retired journal files count as archive files do; the newest stays."""
    assert plan(info, bytes_max=bytes_max) == gone


@pytest.mark.parametrize(("short", "gone"), [
    (0, []), (1, [1]), (1201, [1, 2]), (10_000, [1, 2, 3, 4, 5, 6])])
def test_a_short_disk_takes_what_it_needs_even_the_newest(info: SpoolInfo, short: int,
                                                          gone: list[int]) -> None:
    assert plan(info, short=short) == gone


def test_the_share_of_the_disk_and_the_bytes_the_smaller_counts(info: SpoolInfo) -> None:
    size = durable.file_system(info.paths.archive).size

    def of(**keys: int) -> int:
        return Bounds.of(info.paths, replace(DEFAULTS, **keys)).bytes_max  # type: ignore[arg-type]

    assert of() == size // 5 > 0, "bounded as shipped"
    assert of(archive_bytes_max=5) == 5 and of(archive_disk_percent=0) == 0
    assert of(archive_disk_percent=0, archive_bytes_max=7) == 7
    assert of(archive_bytes_max=1 << 62) == size // 5
    assert DEFAULTS.archive_days == 90


def test_ages_are_those_of_the_last_frame_or_of_the_beginning(info: SpoolInfo) -> None:
    """Heads that cannot be read have no age: what cannot be told stays, with all behind it."""
    assert plan(info, days=1, now_ns=TIME_NS + 100 * DAY_NS) == []
    for path in info.paths.archive.iterdir():
        path.unlink()
    journal = Journal(info)
    while journal.writer.file_number < 3:
        journal.put(bytes(9000))
    journal.writer.close()
    for number in (1, 2):
        (info.paths.journal / file_name(number)).rename(info.paths.archive / file_name(number))
    assert plan(info, days=9, now_ns=TIME_NS + 8 * DAY_NS) == []
    assert plan(info, days=9, now_ns=TIME_NS + 10 * DAY_NS) == [1]
    assert plan(info, days=9, now_ns=TIME_NS - 100 * DAY_NS) == [], "a clock that is slow"


@pytest.mark.parametrize(("stays", "gone"), [(1, []), (2, [1]), (4, [1, 2, 3])])
def test_what_the_pool_names_stays_with_everything_newer(info: SpoolInfo, stays: int,
                                                         gone: list[int]) -> None:
    asked: list[int] = []

    def may_go(number: int) -> bool:
        asked.append(number)
        return number != stays

    assert plan(info, may_go, short=1 << 40) == gone
    assert asked == [*gone, stays], "once each, and nothing behind it"


def test_from_the_checkpoint_on_and_without_one_nothing_goes(info: SpoolInfo) -> None:
    control.store(info.paths, PoolControl(info.uuid, 2, 9, 1, 3, 4096, 1, TIME_NS, 0, {}, {}))
    assert plan(info, short=1 << 40) == [1, 2]
    (info.paths.msgpool / "poolctrl").unlink()
    assert plan(info, short=1 << 40) == []


def test_a_hold_stays_until_it_is_released(info: SpoolInfo) -> None:
    with history.changing(info.paths, "test"):
        holds.make(info.paths, Hold("monday", 3, "an operator", lives=False)).close()
        holds.make(info.paths, Hold("tuesday", 5, "an operator", lives=False)).close()
    assert plan(info, short=1 << 40) == [1, 2]
    assert [(each.name, each.first) for each in holds.holds(info.paths)] == [
        ("monday", 3), ("tuesday", 5)]
    assert holds.release(info.paths, "monday") and not holds.release(info.paths, "monday")
    assert plan(info, short=1 << 40) == [1, 2, 3, 4]


def test_a_base_needs_the_files_from_its_checkpoint_on(info: SpoolInfo) -> None:
    assert history.needed_of_base(info.paths) == 7
    (info.paths.msgpool / "poolctrl").unlink()
    assert history.needed_of_base(info.paths) == 0, "not known: everything"


def test_a_reader_holds_while_its_process_lives(info: SpoolInfo) -> None:
    code = ("import sys; from pathlib import Path; from omq.base.paths import SpoolPaths\n"
            "from omq.storage import history\n"
            "with history.held(SpoolPaths(Path(sys.argv[1])), 'analysis', 2) as there:\n"
            "    print(there, flush=True); sys.stdin.read()\n")
    with subprocess.Popen([sys.executable, "-c", code, str(info.paths.root)],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None and reader.stdout.readline() == "True\n"
        assert plan(info, short=1 << 40) == [1]
        (hold,) = holds.holds(info.paths)
        assert hold.lives and hold.who == f"analysis, process {reader.pid}"
        reader.kill()
        reader.wait()
        assert holds.holds(info.paths) == []
        assert plan(info, short=1 << 40) == [1, 2, 3, 4, 5, 6]
    assert not list(holds.folder(info.paths).iterdir()), "what is void was removed"


def test_an_ended_block_holds_nothing(info: SpoolInfo) -> None:
    with history.held(info.paths, "scan") as there:
        assert there and plan(info, short=1 << 40) == []
    assert plan(info, short=1) == [1]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"from": "x"}', '{"from": 5}'])
def test_a_hold_that_cannot_be_read_holds_everything(info: SpoolInfo, text: str) -> None:
    holds.folder(info.paths).mkdir()
    (holds.folder(info.paths) / "odd.hold").write_text(text)
    assert plan(info, short=1 << 40) == []
    assert [each.first for each in holds.holds(info.paths)] == [0]


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "a" * 65, "ü"])
def test_names_of_holds(info: SpoolInfo, name: str) -> None:
    with pytest.raises(BadRequest):
        holds.make(info.paths, Hold(name, 1, "x", lives=False))
    with pytest.raises(BadRequest):
        holds.release(info.paths, name)


def test_one_changes_the_archive_at_a_time(info: SpoolInfo) -> None:
    with (history.changing(info.paths, "omq-archive"),
          pytest.raises(SpoolLocked, match="omq-archive"),
          history.changing(info.paths, "other")):
        pass
    with history.changing(info.paths, "other"):
        pass


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_removal_that_is_cut_is_gone_on_with(info: SpoolInfo, at: int,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """Of number 3, which has all three files: what is left reads alone, and goes first."""
    unlink, calls = durable.unlink, list[str]()

    def cut(path: Path, *, sync: bool = True) -> bool:
        calls.append(path.suffix)
        if len(calls) == at:
            raise DiskError(operation="unlink", file=path, reason="cut")
        return unlink(path, sync=sync)

    with monkeypatch.context() as patched:
        patched.setattr(durable, "unlink", cut)
        with pytest.raises(DiskError):
            history.remove(info.paths, Going(3))
    assert calls == [".jnl", ".omb", ".oma"][:at]
    left = {path.suffix for path in info.paths.archive.glob("0000000003.*")}
    assert left == {".jnl", ".omb", ".oma"} - set(calls[:-1])
    for number in (1, 2):
        history.remove(info.paths, Going(number))
    assert plan(info, short=1) == [3]
    history.remove(info.paths, Going(3))
    assert not list(info.paths.archive.glob("0000000003.*"))
