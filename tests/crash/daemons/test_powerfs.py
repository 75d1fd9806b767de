"""L4: the real daemons on a file system that loses power, fails syncs, and fills up (powerfs)."""

from __future__ import annotations

import errno
from ctypes.util import find_library
from pathlib import Path

import pytest

from omq.base.errors import Exit
from omqtools.omqtest.instance import MANAGER, WRITER
from tests.crash.daemons.world import FUSE_LIBRARIES, Power, need_fuse, on_powerfs, until

PUTS = 25


@pytest.mark.parametrize("library", FUSE_LIBRARIES)
def test_either_version_of_the_library_mounts(library: str, tmp_path: Path) -> None:
    need_fuse()
    if find_library(library) is None:
        pytest.skip(f"install lib{library}{'-3' if library == 'fuse3' else '2'}")
    power = Power(tmp_path, library)
    power.on()
    try:
        (power.mount / "file").write_bytes(b"x" * 100_000)
        assert (power.mount / "file").read_bytes() == b"x" * 100_000
    finally:
        power.off()


@pytest.mark.parametrize(("fate", "seed"), [("synced", 1), ("chance", 2), ("chance", 3)])
def test_power_cut_under_load(fate: str, seed: int) -> None:
    """Twice in one life: what was acknowledged is there after each cut, once."""
    with on_powerfs() as (power, run):
        for life in range(2):
            run.start()
            run.load.keep()
            run.more(PUTS)
            assert power.tell("facts")["calls"]["fsync"] > PUTS // 2
            run.power_cut(power, fate, seed + 100 * life)
        run.start()
        run.load.keep(putters=0)
        assert run.verdict().acknowledged >= 2 * PUTS


def test_fsync_fails_once_under_the_journal() -> None:
    """Fsync-gate: the manager says nothing, dies with 74; the next one sees what is on the disk."""
    with on_powerfs() as (power, run):
        run.start()
        run.load.keep()
        run.more(PUTS)
        power.tell("gate", match="/journal/")
        assert run.manager_died() == Exit.IO
        assert [f["op"] for f in power.fired()] == ["fsync"]
        assert "fdatasync" in run.instance.paths.tombstone.read_text()
        run.instance.start(MANAGER)
        run.instance.ready()
        run.more(PUTS)
        # And what the gate took is really gone: a cut now must not need it either.
        run.power_cut(power, "synced")
        run.start()
        run.load.keep(putters=0)
        run.verdict()


@pytest.mark.parametrize("match", ["QP", "poolctrl", "checkpoint.dw"])
def test_fsync_fails_once_under_a_checkpoint(match: str) -> None:
    """pool.writer dies with 74 and the journal stays: power lost then loses nothing."""
    with on_powerfs() as (power, run):
        run.start()
        run.load.keep(readers=0)
        run.more(PUTS)
        power.tell("gate", match=match)
        assert run.instance.wait_dead(WRITER) == Exit.IO
        assert match in power.fired()[0]["path"]
        run.more(PUTS)
        run.power_cut(power, "synced")
        run.start()
        run.load.keep(putters=0)
        assert run.verdict().acknowledged >= 2 * PUTS


@pytest.mark.parametrize(("operation", "match", "number"), [
    ("write", "/journal/", errno.EIO), ("write", "/journal/", errno.ENOSPC),
    ("rename", "/journal/", errno.EIO), ("fsyncdir", "/journal", errno.EIO),
])
def test_a_call_fails_once(operation: str, match: str, number: int) -> None:
    """Whoever met it ends, or goes on without; started again, nothing is missing."""
    with on_powerfs() as (power, run):
        run.start()
        run.load.keep()
        power.tell("fault", op=operation, after=5 if operation == "write" else 1, errno=number,
                   match=match)
        until(power.fired, f"the fault\n{run.instance.said()}")
        assert len(power.fired()) == 1
        run.more(0)
        dead = [p for p in run.instance.running.values() if p.poll() is not None]
        assert all(process.returncode == Exit.IO for process in dead), run.instance.said()
        run.crash()
        run.start()
        run.load.keep()
        run.more(PUTS)
        run.verdict()


def test_short_writes_are_finished() -> None:
    """A write that takes half of its bytes is continued, and no record is halved."""
    with on_powerfs() as (power, run):
        run.start()
        run.load.keep()
        for after in range(1, 40, 3):
            power.tell("short", after=after, match="/journal/")
        run.more(2 * PUTS)
        until(lambda: len(power.fired()) > 5, "short writes")
        run.power_cut(power, "synced")
        run.start()
        run.load.keep(putters=0)
        run.verdict()


@pytest.mark.parametrize("reserve", [0, 1 << 21])
def test_full_disk(reserve: int) -> None:
    """Puts are refused, done goes on within the reserve; with space again all goes on."""
    with on_powerfs(reserve) as (power, run):
        run.start()
        run.load.keep(readers=0)
        run.more(PUTS)
        power.tell("quota", bytes=power.tell("facts")["used"] + reserve // 2)
        until(lambda: any('"no"' in path.read_text() for path in run.load.histories.iterdir())
              or run.instance.running[MANAGER].poll() is not None, "a refused put",
              wait_s=180.0)
        if reserve:
            assert run.instance.running[MANAGER].poll() is None, run.instance.said()
            with run.instance.connect() as c, c.reader("A") as reader:
                (message,) = reader.next(timeout_s=120)
                message.release()
        power.tell("quota", bytes=1 << 30)
        # A list of IPC objects that waits for room at a kill leaves some behind (objects.py).
        until(lambda: run.instance.running[MANAGER].poll() is not None
              or run.instance.said().count("[OM 1123]") == run.instance.said().count("[OM 1124]"),
              "the files for tools are written", wait_s=180.0)
        run.crash()
        run.start()
        run.load.keep()
        run.more(PUTS)
        run.verdict()
