"""What befalls a standby that replies wait for: a full disk on either side, a line that is cut and
says nothing, a clock that is set. Nothing acknowledged is lost, it is told why nothing goes on, and
it goes on by itself."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

import omq
from omq.base import events
from omq.base.errors import SpoolFull
from omq.services.standby.lag import standbys
from tests.host_clock import HostClock
from tests.process import instance as world
from tests.process.instance import MANAGER, WRITER, instance
from tests.process.small_disk import mounted
from tests.process.test_standby import OMQ, client
from tests.process.test_standby_points import goes_on, promoted
from tests.process.test_standby_sync import Putting, SyncPair
from tests.waiting import WAIT_S, until

DAY = 86400


class FaultyPair(SyncPair):
    """The line to the primary may be cut (`cut`), without a word to either side."""

    putting: list[Putting]

    def load(self, name: bytes = b"") -> list[Putting]:
        """Two clients, which are gone when the test is over, however it ends."""
        self.putting = [Putting(self, name + b"client %d" % i, timeout_s=WAIT_S) for i in range(2)]
        return self.putting

    @property
    def flag(self) -> Path:
        return self.root.with_name("cut")

    @property
    def send(self) -> list[str]:
        words = [sys.executable, "-m", "tests.process.silent_line", str(self.flag), *super().send]
        script = self.primary.output.with_name("line")
        script.write_text(f"#!/bin/sh\nexec {shlex.join(words)}\n")
        script.chmod(0o700)
        return [str(script)]

    @property
    def away(self) -> str:
        """Why the primary says that its standby is away; empty: it is there."""
        (found,) = standbys(self.primary.paths)
        return "" if found.following else found.error or "away"


def made(instance: world.Instance, root: Path, **more: object) -> FaultyPair:
    instance.start(MANAGER, WRITER)
    instance.ready()
    pair = FaultyPair(instance, root)
    pair.putting = []
    pair.make()
    instance.stop()
    pair.log = instance.output.with_name("standby.log")
    pair.log.touch()
    pair.waits(**more)
    instance.start(MANAGER, WRITER)
    return pair


def ended(pair: FaultyPair) -> None:
    for each in pair.putting:
        each.give_up()
    pair.end()
    pair.primary.settings()
    if pair.primary.children[MANAGER].running:
        pair.primary.kill(MANAGER)


@pytest.fixture
def pair(omq_instance: world.Instance, tmp_path: Path) -> Iterator[FaultyPair]:
    pair = made(omq_instance, tmp_path / "standby", standby_silence_s=5)
    yield pair
    ended(pair)


def test_a_standby_whose_disk_is_full_says_so_and_goes_on_when_there_is_room(
        omq_instance: world.Instance, tmp_path: Path) -> None:
    with mounted(tmp_path / "small", 24) as small:
        pair = made(omq_instance, small / "standby")
        try:
            follower = pair.follow()
            pair.reaches("synced")
            putting = pair.load(b"x" * 3000)
            goes_on(pair, putting)
            filler = small / "filler"
            with open(filler, "wb") as file:
                try:
                    while True:
                        file.write(bytes(1 << 16))
                        file.flush()
                except OSError:
                    pass
            until(lambda: "no disk space" in pair.away,
                  lambda: pair.away + pair.log.read_text())
            pair.reaches("waiting")
            assert follower.poll() is None, "it tries again by itself"
            said = subprocess.run(
                [*OMQ, "standby", "status", "--spool", str(pair.primary.root), "--conf",
                 str(pair.primary.conf)], capture_output=True, text=True, timeout=WAIT_S,
                check=False)
            assert said.returncode == 1 and "away" in said.stdout
            filler.unlink()
            pair.reaches("synced")
            goes_on(pair, putting)
            for each in putting:
                each.end()
            follower.kill()
            follower.wait()
            promoted(pair, [body for each in putting for body in each.acked])
        finally:
            ended(pair)


@contextmanager
def small_primary(tmp_path: Path) -> Iterator[tuple[FaultyPair, Path]]:
    """On a disk of few bytes, its standby on another; and what fills it."""
    with mounted(tmp_path / "small", 32) as small, instance(small) as primary:
        primary.cut_lines = True
        pair = made(primary, tmp_path / "standby")
        primary.stop()
        conf = primary.conf / "omq.conf"
        text, reserve = conf.read_text(), "disk_reserve_bytes = 0"
        assert reserve in text
        conf.write_text(text.replace(reserve, "disk_reserve_bytes = 2 MiB"))
        primary.start(MANAGER, WRITER)
        try:
            yield pair, small / "filler"
        finally:
            (small / "filler").unlink(missing_ok=True)
            ended(pair)
            log = primary.paths.event_log  # of lines that the full disk has cut nothing is asked
            log.write_text("".join(
                line for line in log.read_text().splitlines(keepends=True)
                if line.startswith("{") and line.endswith("}\n")))


def fill(path: Path) -> None:
    with open(path, "wb", buffering=0) as file, suppress(OSError):  # nothing is left for its close
        while True:
            file.write(bytes(1 << 16))


def test_a_primary_whose_disk_is_full_acknowledges_nothing_that_either_lacks(tmp_path: Path
                                                                             ) -> None:
    """Puts are refused and say why, settlements go on; with room all goes on by itself. Then it is
    full once more, dies, and its spool is gone: the standby has whatever was acknowledged."""
    with small_primary(tmp_path) as (pair, filler):
        follower = pair.follow()
        pair.reaches("synced")
        kept = list[bytes]()
        with client(pair) as c:
            for turn in range(2):
                kept += _put(c, b"%d.%%d" % turn, 20)
                fill(filler)
                with pytest.raises(SpoolFull):
                    for _ in range(3000):
                        kept += _put(c, b"full.%d.%%d" % (turn * 10_000 + len(kept)), 1)
                with c.reader("A", batch=1) as reader:
                    (message,) = reader.next(timeout_s=WAIT_S)
                    message.done()
                    reader.flush()
                    kept.remove(bytes(message.body or b""))
                assert follower.poll() is None and not pair.away, pair.log.read_text()
                said = subprocess.run([*OMQ, "health", "--spool", str(pair.primary.root), "--conf",
                                       str(pair.primary.conf)], capture_output=True, text=True,
                                      timeout=WAIT_S, check=False)
                assert said.returncode == 1 and "disk" in said.stdout
                if not turn:
                    filler.unlink()
                    until(partial(_is_taken, c, kept), "with room puts go on")
        pair.primary.kill(MANAGER, WRITER)
        follower.kill()
        follower.wait()
        promoted(pair, kept)


def _put(c: omq.Connection, body: bytes, count: int) -> list[bytes]:
    bodies = [body % i + bytes(9000) for i in range(count)]
    for each in bodies:
        c.put("A", each)
    return bodies


def _is_taken(c: omq.Connection, kept: list[bytes]) -> bool:
    with suppress(SpoolFull):
        kept += _put(c, b"again.%d", 1)
        return True
    return False


def test_a_line_that_is_cut_without_a_word_is_given_up_and_made_anew(pair: FaultyPair) -> None:
    """Nobody is told anything meanwhile; nothing is lost, nothing is there twice."""
    follower = pair.follow()
    pair.reaches("synced")
    putting = pair.load()
    goes_on(pair, putting)
    pair.flag.touch()
    pair.reaches("waiting")
    told = [len(each.acked) for each in putting]
    assert "it says nothing for 5 s" in pair.away
    with client(pair):
        pass  # the manager serves
    assert [len(each.acked) for each in putting] == told
    pair.flag.unlink()
    pair.reaches("synced")
    goes_on(pair, putting)
    for each in putting:
        each.end()
    follower.kill()
    follower.wait()
    promoted(pair, [body for each in putting for body in each.acked])


def test_behind_a_line_that_is_cut_it_goes_on_alone_and_comes_back(omq_instance: world.Instance,
                                                                   tmp_path: Path) -> None:
    pair = made(omq_instance, tmp_path / "standby", standby_silence_s=5, standby_lost="go_on",
                standby_lost_s=1)
    try:
        follower = pair.follow()
        pair.reaches("synced")
        putting = pair.load()
        goes_on(pair, putting)
        pair.flag.touch()
        pair.reaches("alone")
        goes_on(pair, putting)
        pair.flag.unlink()
        pair.reaches("synced")
        goes_on(pair, putting)
        states = [each["state"] for each in omq_instance.events(
            events.PROTECTION_CHANGED.number)]
        assert states[-3:] == ["synced", "alone", "synced"]
        for each in putting:
            each.end()
        follower.kill()
        follower.wait()
        promoted(pair, [body for each in putting for body in each.acked])
    finally:
        ended(pair)


@pytest.mark.parametrize("off_s", [-DAY, DAY])
def test_a_clock_that_is_a_day_off_on_either_side_changes_nothing(
        pair: FaultyPair, monkeypatch: pytest.MonkeyPatch, off_s: int) -> None:
    """The primary's is set while it serves, then that of the standby's host is as wrong, and so it
    is promoted."""
    follower = pair.follow()
    pair.reaches("synced")
    pair.primary.stop()
    host = HostClock(monkeypatch)
    pair.primary.start(MANAGER, WRITER)  # it has the clock of this process
    pair.reaches("synced")
    putting = pair.load()
    goes_on(pair, putting)
    host.step(off_s)
    goes_on(pair, putting)
    assert pair.protection() == "synced" and not pair.away
    host.step(-off_s)
    follower.send_signal(signal.SIGTERM)
    assert follower.wait(WAIT_S) == 0
    elsewhere = [sys.executable, "-m", "tests.process.other_clock", str(off_s), "omq", "standby"]
    place = ["--spool", str(pair.root), "--conf", str(pair.primary.conf)]
    with open(pair.log, "ab") as log:
        follower = subprocess.Popen([*elsewhere, "follow", *place], stderr=log)
    pair.children.append(follower)
    goes_on(pair, putting)
    assert pair.protection() == "synced" and not pair.away
    for each in putting:
        each.end()
    host.close()
    follower.kill()
    follower.wait()
    pair.primary.kill(MANAGER)
    gone = pair.primary.root.with_name("gone")
    pair.primary.root.rename(gone)
    done = subprocess.run([*elsewhere, "promote", *place], capture_output=True, text=True,
                          timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr
    pair.primary.settings()
    assert sorted(pair.bodies()) == sorted(
        body for each in putting for body in each.acked)
    gone.rename(pair.primary.root)
