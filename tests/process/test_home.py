"""One spool, one place: two live copies would give the same ids for different messages."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import omq
from omq.base import events
from omq.base.errors import Exit, SpoolTwin
from omq.base.paths import SpoolPaths
from omq.cli.launch import run as launch
from omq.storage import home
from omq.storage.home import Alone, Home
from omq.storage.spool import create_spool
from tests.process.instance import MANAGER, WRITER, Instance
from tests.process.processes import WAIT_S, start_program
from tests.process.test_absence import served


@contextmanager
def copied(instance: Instance, target: Path) -> Iterator[Instance]:
    """A copy of the spool, as cp -a makes it, with the same configuration."""
    shutil.copytree(instance.root, target, copy_function=shutil.copy2,
                    ignore=shutil.ignore_patterns("run"))
    target.joinpath("run").mkdir(mode=0o711)
    child = start_program(MANAGER, ["--spool", str(target), "--conf", str(instance.conf)],
                          output=instance.output)
    instance.children["copy"] = child
    try:
        yield instance
    finally:
        if child.running:
            child.signal(15)
            child.wait()
        del instance.children["copy"]


def told(root: Path, number: int) -> list[dict[str, object]]:
    """The events of this number in a spool's log."""
    lines = SpoolPaths(root).event_log.read_text().splitlines()
    return [each for each in map(json.loads, lines) if each["event"] == number]


def test_a_live_twin_is_refused_with_the_command(omq_instance: Instance, tmp_path: Path) -> None:
    served(omq_instance, stop=False)
    with copied(omq_instance, tmp_path / "twin") as both:
        assert both.children["copy"].wait() == Exit.TEMPORARY
        said = both.said()
        assert f"omqrecover identity {tmp_path / 'twin'}" in said
        assert f"process {both.children[MANAGER].pid} serves another copy" in said


def test_a_copy_beside_its_original_is_warned_of_until_it_is_settled(
        omq_instance: Instance, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    served(omq_instance)
    target = tmp_path / "twin"
    with copied(omq_instance, target):
        _up(target)
    (warned,) = told(target, events.SPOOL_COPY.number)
    assert warned["other"] == str(omq_instance.root)
    assert warned["command"] == f"omqrecover identity {target}"
    assert launch("omqrecover", ["identity", str(target)]) == 0
    capsys.readouterr()
    noted = home.load(SpoolPaths(target))
    assert noted is not None and noted.path == str(target)
    assert not told(omq_instance.root, events.SPOOL_COPY.number)


def test_a_spool_that_was_moved_starts_with_an_event(omq_instance: Instance, tmp_path: Path
                                                     ) -> None:
    served(omq_instance)
    assert not told(omq_instance.root, events.SPOOL_MOVED.number)
    away = tmp_path / "elsewhere"
    omq_instance.root.rename(away)
    child = start_program(MANAGER, ["--spool", str(away), "--conf", str(omq_instance.conf)],
                          output=omq_instance.output)
    try:
        _up(away)
    finally:
        child.signal(15)
        assert child.wait() == 0
    (moved,) = told(away, events.SPOOL_MOVED.number)
    assert moved["before"] == str(omq_instance.root)
    away.rename(omq_instance.root)


def test_a_restored_backup_starts_with_an_event(omq_instance: Instance, tmp_path: Path) -> None:
    """The same path, another directory."""
    served(omq_instance)
    backup = tmp_path / "backup"
    shutil.copytree(omq_instance.root, backup, copy_function=shutil.copy2)
    omq_instance.root.rename(tmp_path / "old")
    backup.rename(omq_instance.root)
    omq_instance.start(MANAGER, WRITER)
    assert len(omq_instance.drain("A")) == 20
    assert len(told(omq_instance.root, events.SPOOL_MOVED.number)) == 1
    assert not told(omq_instance.root, events.SPOOL_COPY.number)


def _up(root: Path) -> None:
    omq.connect(root, name="test", timeout_s=WAIT_S).close()


# without a manager


def test_the_name_is_free_when_its_holder_has_ended(tmp_path: Path) -> None:
    info = create_spool(tmp_path / "spool")
    alone = Alone(info.paths, info.uuid)
    with pytest.raises(SpoolTwin, match="omqrecover identity"):
        Alone(info.paths, info.uuid)
    alone.close()
    Alone(info.paths, info.uuid).close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be two users")
def test_a_stranger_who_has_the_name_stops_nobody(tmp_path: Path) -> None:
    """The uuid is no secret, and any user may bind any name."""
    info = create_spool(tmp_path / "spool")
    listening, telling = os.pipe()
    child = os.fork()
    if not child:
        os.setuid(65534)
        squatter = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        squatter.bind(f"\0omq.spool.{info.uuid.hex()}")
        squatter.listen(1)
        os.write(telling, b"x")
        while True:
            signal.pause()
    try:
        assert os.read(listening, 1) == b"x"
        alone = Alone(info.paths, info.uuid)
        assert f"pid {child}" in alone.other
        alone.close()
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(listening)
        os.close(telling)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"machine": 1}', "null"])
def test_a_note_that_is_none_counts_as_none(tmp_path: Path, text: str) -> None:
    paths = create_spool(tmp_path / "spool").paths
    assert home.load(paths) is None
    (paths.root / home.NAME).write_text(text)
    assert home.load(paths) is None
    home.settle(paths)
    assert home.load(paths) == Home.of(paths.root)


def test_the_same_directory_by_another_path(tmp_path: Path) -> None:
    """A bind mount, a link on the way: device and inode say it."""
    paths = create_spool(tmp_path / "spool").paths
    here = Home.of(paths.root)
    (tmp_path / "link").symlink_to(paths.root)
    assert here.is_same(Home(here.machine, str(tmp_path / "link"), here.device, here.inode))
    assert here.is_same(Home(here.machine, here.path, here.device + 1, here.inode)), "a reboot"
    assert not here.is_same(Home(here.machine, "/elsewhere", here.device, here.inode)), "moved"
    assert not here.is_same(Home("another", here.path, here.device, here.inode))
