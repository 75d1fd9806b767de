"""Side files: refused writes end nothing, are made up for, and are told once each way."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.base import events, modes, side_files
from omq.base.events import Event
from omq.base.side_files import Calls

REFUSALS = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT)


class Disk(Calls):
    """Refuses with an errno while it is set: everything, or only the call that is named."""

    def __init__(self) -> None:
        self.number = 0
        self.only = ""
        self.short = False  # a write takes one byte before the refusal

    def _meet(self, call: str, path: object) -> None:
        if self.number and self.only in ("", call):
            raise OSError(self.number, os.strerror(self.number), str(path))

    def open(self, path: str, flags: int, mode: int = modes.FILE) -> int:
        self._meet("open", path)
        return super().open(path, flags, mode)

    def write(self, fd: int, data: bytes) -> int:
        if self.short and self.number and len(data) > 1:
            return super().write(fd, data[:1])
        self._meet("write", fd)
        return super().write(fd, data)

    def rename(self, source: str, target: str) -> None:
        self._meet("rename", source)
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._meet("unlink", path)
        super().unlink(path)


@pytest.fixture
def disk() -> Iterator[Disk]:
    made = Disk()
    before = side_files.use(made)
    yield made
    side_files.use(before)


@pytest.fixture
def told() -> list[tuple[Event, dict[str, str | float]]]:
    return []


@pytest.fixture(autouse=True)
def _listens(disk: Disk, told: list[tuple[Event, dict[str, str | float]]],
             monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_files, "RETRY_S", 0.0)
    side_files.report_to(lambda event, fields: told.append((event, fields)))


@pytest.mark.parametrize("call", ["open", "write", "rename"])
@pytest.mark.parametrize("number", REFUSALS)
def test_a_refused_file_is_written_later(tmp_path: Path, disk: Disk, number: int, call: str,
                                         told: list[tuple[Event, dict[str, str | float]]]) -> None:
    path = tmp_path / "state.json"
    assert side_files.replace(path, b"old")
    disk.number, disk.only = number, call
    assert not side_files.replace(path, b"new")
    assert not side_files.replace(path, b"newest")
    side_files.retry()
    assert path.read_bytes() == b"old"
    assert side_files.wait_s() == 0.0
    assert [event for event, _ in told] == [events.SIDE_FILES_REFUSED]
    assert told[0][1]["reason"] == os.strerror(number)
    disk.number = 0
    side_files.retry()
    assert path.read_bytes() == b"newest"
    assert [event for event, _ in told] == [events.SIDE_FILES_REFUSED, events.SIDE_FILES_WRITTEN]
    assert told[1][1]["refused"] == 3
    assert side_files.wait_s() is None
    assert os.listdir(tmp_path) == ["state.json"]


def test_each_begin_and_end_is_told_once(tmp_path: Path, disk: Disk,
                                         told: list[tuple[Event, dict[str, str | float]]]) -> None:
    for _ in range(2):
        disk.number = errno.ENOSPC
        for name in ("a", "b"):
            side_files.replace(tmp_path / name, b"x")
        disk.number = 0
        side_files.replace(tmp_path / "a", b"y")
        side_files.retry()
    assert [event.number for event, _ in told] == [1123, 1124, 1123, 1124]
    assert (tmp_path / "b").read_bytes() == b"x"


def test_what_was_refused_before_anybody_listened_is_told(tmp_path: Path, disk: Disk) -> None:
    side_files.use(disk)
    disk.number = errno.EROFS
    side_files.replace(tmp_path / "a", b"x")
    heard: list[int] = []
    side_files.report_to(lambda event, fields: heard.append(event.number))
    assert heard == [1123]


def test_lines_keep_their_order_and_none_is_torn(tmp_path: Path, disk: Disk) -> None:
    path = tmp_path / "list"
    side_files.append(path, b"one\n")
    disk.number, disk.short = errno.ENOSPC, True
    for number in range(3000):  # no recursion, however long it lasts
        side_files.append(path, b"line %d\n" % number)
    disk.number = 0
    side_files.append(path, b"last\n")
    lines = path.read_bytes().split(b"\n")
    whole = [line for line in lines if line.startswith((b"one", b"line", b"last"))]
    assert whole == [b"one", *(b"line %d" % number for number in range(3000)), b"last"]


def test_a_removed_file_owes_nothing(tmp_path: Path, disk: Disk) -> None:
    path = tmp_path / "a"
    disk.number = errno.ENOSPC
    side_files.append(path, b"x\n")
    disk.number = 0
    assert side_files.remove(path)
    side_files.retry()
    assert not path.exists()


def test_a_child_owes_nothing_of_its_parent(tmp_path: Path, disk: Disk) -> None:
    disk.number = errno.ENOSPC
    side_files.replace(tmp_path / "a", b"parent")
    disk.number = 0
    child = os.fork()
    if child == 0:  # pragma: no cover
        side_files.retry()
        os._exit((tmp_path / "a").exists())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    side_files.retry()
    assert (tmp_path / "a").read_bytes() == b"parent"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_standard_error_that_is_full_changes_no_exit_code(tmp_path: Path) -> None:
    program = "import sys; from omq.cli.launch import run; sys.exit(run('omstat', sys.argv[1:]))"
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run([sys.executable, "-c", program, "--spool", str(tmp_path / "none")],
                               stderr=full, check=False)
    assert ended.returncode == 66


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_standard_output_that_is_full_is_one_line_and_73() -> None:
    program = ("import sys, types; from omq.cli import launch; m = types.ModuleType('m'); "
               "m.main = lambda argv: print('x') or 0; sys.modules['m'] = m; "
               "launch.COMMANDS['omstat'] = 'm:main'; sys.exit(launch.run('omstat', []))")
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run([sys.executable, "-c", program], stdout=full,
                               stderr=subprocess.PIPE, check=False, text=True)
    assert ended.returncode == 73
    assert ended.stderr == ("omstat: the output cannot be written: No space left on device; "
                            "choose another file\n")
