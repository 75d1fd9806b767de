"""A primary is lost with its spool, again and again, while clients put, read and settle; each time
its standby is promoted, serves, and gets a standby of its own. Replies wait for the standby, so
nothing that was acknowledged may be missing, finished work may not come back, and nothing may be
there twice; the histories of all clients are judged at the end.

Before each loss, by chance: the standby is stopped for a while, or killed; so are its sender,
queue.manager, pool.writer, a reader, a submitter. The loss itself: SIGKILL to everything of the
primary and to its clients, and its spool is removed. A promotion may be killed, and is done again.

Errors: RunError: a step did not come to its end, which says nothing of the promise.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from omq.base import fault
from omq.cli import launch
from omqtools.omqtest.child import Child
from omqtools.omqtest.history import Verdict
from omqtools.omqtest.instance import MANAGER, WAIT_S, WRITER, Instance, RunError
from omqtools.omqtest.kills import Load

WAITS: Final = "\n[standby]\nstandby_sync = 1\n"
HARM: Final = ("none", "stop", "follower", "sender", MANAGER, WRITER, "reader", "putter")
HARMS_MAX: Final = 4  # before a loss
PAUSE_S: Final = (0.05, 0.5)
POLL_S: Final = 0.02
PROMOTING: Final = ("promote.after_mark", "promote.after_redo", "promote.after_note",
                    "promote.after_instance")
_SENDER: Final = (sys.executable, "-P", "-m", "omq.cli.launch", "omq", "standby", "send")


@dataclass(slots=True)
class Failovers:
    """What came out. `harm`: how often what was done before a loss."""

    done: int = 0
    promotions_killed: int = 0
    harm: dict[str, int] = field(default_factory=dict)
    verdict: Verdict = field(default_factory=Verdict)


class Members:
    """The primary that serves, and the standby that follows it. `folders`: where the spools of one
    and the other turn lie."""

    def __init__(self, folders: tuple[Path, Path], place: Path, chance: random.Random) -> None:
        self._folders, self._place, self._chance = folders, place, chance
        self._turn = 0
        self.run = Instance(self._spool(0), place)
        self._shipped = (self.run.conf / "omq.conf").read_text()
        self._follower: Child | None = None

    def _spool(self, turn: int) -> Path:
        return self._folders[turn % 2] / f"spool-{turn}"

    def waits(self, *, waits: bool) -> None:
        """Do replies of the next queue manager wait for a standby?"""
        (self.run.conf / "omq.conf").write_text(self._shipped + (WAITS if waits else ""))

    def join(self) -> None:
        """The primary gets a standby; until what is acknowledged is on both."""
        spool = self._spool(self._turn + 1)
        self._command(None, "init", "--member", f"m{self._turn + 1}", "--spool", str(spool),
                      "--", *_SENDER, "--spool", str(self.run.spool), "--conf",
                      str(self.run.conf))
        self.follow()
        self.until(lambda: self._protection() == "synced", "the standby does not follow")

    def follow(self) -> None:
        """The standby's process."""
        spool = self._spool(self._turn + 1)
        self._follower = Child(partial(launch.run, "omq", [
            "standby", "follow", "--spool", str(spool), "--conf", str(self.run.conf)]),
            self.run.output)

    def harm(self, kind: str, load: Load) -> None:
        """Do that, and have it at work again."""
        follower = self._follower
        assert follower is not None
        if kind == "stop":
            follower.send_signal(signal.SIGSTOP)
            time.sleep(self._chance.uniform(*PAUSE_S))
            follower.send_signal(signal.SIGCONT)
        elif kind == "follower":
            follower.kill()
            follower.wait()
            self.follow()
        elif kind == "sender":
            for child in _children(follower.pid):
                _kill(child)
        elif kind in load.clients:
            load.kill(kind)
        elif kind in (MANAGER, WRITER):
            self.run.kill(kind)
            if kind == MANAGER:
                load.deaths.say({"op": "death"})
            missing = [name for name in (MANAGER, WRITER) if name not in self.run.running]
            self.run.start(*missing)
            self.run.ready()

    def lose(self, load: Load) -> None:
        """The primary's host and disk are gone, and so are the clients on it."""
        follower = self._follower
        assert follower is not None
        if self._chance.random() < 0.5:  # nothing is acknowledged from here on
            follower.send_signal(signal.SIGSTOP)
            time.sleep(self._chance.uniform(*PAUSE_S))
        senders = _children(follower.pid)
        self.run.kill()
        load.lost()
        for sender in senders:
            _kill(sender)
        self.run.end()
        # Away first: the standby may begin another sender there at any moment.
        lost = self.run.spool.with_name(f"lost-{self._turn}")
        self.run.spool.rename(lost)
        for sender in _children(follower.pid):
            _kill(sender)
        shutil.rmtree(lost, ignore_errors=True)  # the rest, if any, with the folder
        if self._chance.random() < 0.5:
            follower.kill()
        else:
            follower.send_signal(signal.SIGCONT)
            follower.terminate()
        if follower.wait(WAIT_S) is None:
            raise RunError(f"the standby lives on:\n{self.run.said()}")
        self._follower = None

    def promote(self) -> bool:
        """The standby is the primary; was the first promotion killed?"""
        self._turn += 1
        spool = self._spool(self._turn)
        words = ("promote", "--spool", str(spool))
        killed = self._chance.random() < 0.5
        last = False
        if killed:
            point = self._chance.choice(PROMOTING)
            last = point == PROMOTING[-1]
            self._command(f"{point}:kill:1", *words, expected=-signal.SIGKILL)
        if not last:
            self._command(None, *words)
        self.run = Instance(spool, self._place, made=True)
        return killed

    def _command(self, faults: str | None, *words: str, expected: int = 0) -> None:
        own = words.index("--") if "--" in words else len(words)
        said = [*words[:own], "--conf", str(self.run.conf), *words[own:]]

        def run() -> int:
            fault.arm(faults or "")
            return launch.run("omq", ["standby", *said])

        code = Child(run, self.run.output).wait(WAIT_S)
        if code != expected:
            raise RunError(f"omq standby {words[0]} ended with {code}:\n{self.run.said()}")

    def _protection(self) -> str:
        try:
            return str(json.loads(self.run.paths.protection.read_text())["state"])
        except FileNotFoundError:
            return ""

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """RunError when that does not come."""
        deadline = time.monotonic() + WAIT_S
        while not holds():
            if time.monotonic() > deadline:
                raise RunError(f"{what}:\n{self.run.said()}")
            time.sleep(POLL_S)

    def end(self) -> None:
        """Leave no process and no IPC object."""
        if self._follower is not None:
            self._follower.kill()
            self._follower.wait()
        self.run.end()


def failover_loop(folders: tuple[Path, Path], scratch: Path, count: int, seed: int,
                  say: Callable[[str], None] = lambda _text: None) -> Failovers:
    """See the module."""
    chance = random.Random(seed)
    out = Failovers()
    place = scratch / "failovers"
    for folder in (*folders, place):
        folder.mkdir(parents=True, exist_ok=True)
    members = Members(folders, place, chance)
    load: Load | None = None
    try:
        members.waits(waits=True)
        members.run.start()
        members.run.ready()
        load = Load(members.run, place)
        for number in range(count):
            members.join()
            for _ in range(chance.randint(1, HARMS_MAX)):
                load.keep()
                time.sleep(chance.uniform(*PAUSE_S))
                kind = chance.choice(HARM)
                members.harm(kind, load)
                out.harm[kind] = out.harm.get(kind, 0) + 1
            load.keep()
            time.sleep(chance.uniform(*PAUSE_S))
            members.lose(load)
            out.promotions_killed += members.promote()
            members.waits(waits=number + 1 < count)
            load.move(members.run)
            members.run.start()
            members.run.ready()
            out.done += 1
            say(f"failover {out.done} of {count}")
        out.verdict = load.finish()
        members.run.stop()
    finally:
        if load is not None:
            load.end()
        members.end()
    return out


def _children(pid: int) -> list[int]:
    """Of a process, by /proc."""
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except FileNotFoundError:
        return []
    return list(map(int, found.split()))


def _kill(pid: int) -> None:
    """A process that somebody else waits for: it may have ended."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
