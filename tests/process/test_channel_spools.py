"""Two instances with copies of one spool, both started (ADR 0095): it is refused and told, nothing
is lost, and what was put behind the copy is there once.

`twin` is a copy of WEST's folder, of its spool and its configuration, made while WEST was down.
"""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from omq.base.paths import SpoolPaths
from omq.cli import launch
from omq.storage.spool import open_spool
from tests.process.amqp_world import needs_proton
from tests.process.channel_world import SENDER, Side, omq_channel, sides, stop_channel
from tests.process.instance import MANAGER, WRITER
from tests.process.processes import start

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000

needs_proton()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[list[Side]]:
    with sides(tmp_path, "WEST", "EAST") as found:
        yield found


def begin(side: Side) -> None:
    side.start(MANAGER)
    side.ready()
    side.start(WRITER)


def begin_elsewhere(side: Side) -> None:
    """As on another machine: in a network of its own nobody sees that there is a twin (omq.storage.
    home). What its sender does is in the network of all."""
    def run() -> int:
        assert _LIBC.unshare(_CLONE_NEWNET) == 0
        return launch.run(MANAGER, ["--spool", str(side.root), "--conf", str(side.conf)])

    if os.geteuid() != 0:
        pytest.skip("needs root, for a network namespace")
    side.children[MANAGER] = start(MANAGER, run, output=side.output)
    side.ready()
    side.start(WRITER)


@contextmanager
def copied(west: Side, root: Path) -> Iterator[Side]:
    """A copy of it, made while it is down; both run behind this."""
    west.stop(MANAGER, WRITER)
    shutil.copytree(west.root.parent, root)
    twin = Side.__new__(Side)
    twin.name, twin.fixed, twin.space, twin.children = west.name, west.fixed, west.space, {}
    twin.root, twin.conf, twin.output = root / "spool", root / "conf", root / "output"
    twin.paths, twin.fault_log = SpoolPaths(twin.root), root / "fired"
    assert (open_spool(twin.root, writer=False).uuid
            == open_spool(west.root, writer=False).uuid)
    try:
        begin(west)
        begin_elsewhere(twin)
        yield twin
        twin.stop(SENDER, MANAGER, WRITER)
    finally:
        twin.abandon()


def test_both_run_at_once(pair: list[Side], tmp_path: Path) -> None:
    west, east = pair
    west.channel("EAST", east.serve())
    west.remote("FAR", "EAST", "A")
    with copied(west, tmp_path / "twin") as twin:
        west.put("FAR", 1, 1)
        west.start(SENDER)
        east.await_depth("A", 1)
        west.until(lambda: not west.in_doubt())
        twin.put("FAR", 2, 1)
        twin.start(SENDER)  # each takes the other's line, until one has sent
        east.await_depth("A", 2)
        west.until(lambda: west.of_channel(1605, "EAST"))
        assert "copy of this spool" in west.of_channel(1605, "EAST")[0]["reason"]
        west.put("FAR", 3, 1)
        twin.until(lambda: not twin.in_doubt())  # it has heard that its batch is there
        twin.stop(SENDER)
        west.until(lambda: "out of step" in omq_channel(west, "show", "EAST"))
        assert not west.in_doubt()
        assert not twin.in_doubt()
        assert east.depth("A") == 2, "it sends nothing before people have looked"
        stop_channel(west, "EAST")
        omq_channel(west, "start", "EAST")
        east.await_depth("A", 3)
        west.until(lambda: not west.in_doubt())
        assert east.numbers("A") == [1, 2, 3]


def test_a_copy_that_was_made_in_doubt(pair: list[Side], tmp_path: Path) -> None:
    """Both have the same batch in doubt. One sends it; the other must neither send it once more
    nor believe that the one there is its own."""
    west, east = pair
    west.channel("EAST", east.serve())
    west.remote("FAR", "EAST", "A")
    west.put("FAR", 1, 1)
    west.start(SENDER, fault="channel.after_prepare:kill:1")
    assert west.children[SENDER].wait() == -9
    with copied(west, tmp_path / "twin") as twin:
        assert west.in_doubt() == twin.in_doubt() != []
        west.start(SENDER)
        east.await_depth("A", 1)
        west.until(lambda: not west.in_doubt())
        twin.put("FAR", 2, 1)
        west.stop(SENDER)
        twin.start(SENDER)
        twin.until(lambda: twin.of_channel(1605, "EAST"))
        assert "copy of this spool" in twin.of_channel(1605, "EAST")[0]["reason"]
        assert len(twin.in_doubt()) == 1
        assert east.depth("A") == 1
        omq_channel(twin, "resolve", "EAST", "--commit", "--reason", "the other one has sent it")
        east.await_depth("A", 2)
        twin.until(lambda: not twin.in_doubt())
        assert east.numbers("A") == [1, 2]
