"""Power cuts under a recorded run: at many places of its log, what may be left is recovered for
real, in the directory under test.

`record_run` runs the real daemons and clients and gives the log. `Cutter` goes through it once and
stops at chosen places; each gives a spool as a cut there may leave it, on the file system under
test, which the real recovery then opens. All that was acknowledged before that place must be there.

Half of the places are chosen just before a sync, where the most is at stake. Every `LIVE_EVERY`-th
cut is also started as real daemons, which then serve what is there and take new messages.

Trees of tree.py to and from a real directory.

Sockets and the like are left out: a reboot makes them anew. Errors: OSError.
"""

from __future__ import annotations

import os
import random
import shutil
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from omq.base.errors import OmqError
from omqtools.omqtest import tree
from omqtools.omqtest.child import Child
from omqtools.omqtest.clients import BATCH_MAX, OTHER, QUEUE, key_of
from omqtools.omqtest.history import Found, Verdict, judge_state
from omqtools.omqtest.instance import Instance, RunError, instance
from omqtools.omqtest.offline import contents
from omqtools.omqtest.record import Player, Step, read_log


def store(root: tree.Node, target: Path) -> None:
    """Make `target` hold exactly this tree; not synced, as it is only looked at afterwards."""
    if target.exists():
        shutil.rmtree(target)
    _store(root, target)


def _store(node: tree.Node, path: Path) -> None:
    if node.is_dir:
        path.mkdir(mode=0o700)
        for name, child in node.entries.items():
            _store(child, path / name)
    elif stat.S_ISREG(node.mode):
        with path.open("xb") as file:
            file.write(node.data)
    else:
        return
    path.chmod(stat.S_IMODE(node.mode))
    if os.geteuid() == 0:
        os.chown(path, node.uid, node.gid)


def load(source: Path) -> tree.Node:
    """The tree of a directory, all of it durable."""
    found = source.lstat()
    node = tree.Node(found.st_mode, found.st_uid, found.st_gid, found.st_mtime_ns)
    if node.is_dir:
        for path in sorted(source.iterdir()):
            if path.is_dir() or path.is_file():
                node.entries[path.name] = load(path)
        node.kept_entries = dict(node.entries)
    else:
        node.data = bytearray(source.read_bytes())
        node.kept = bytearray(node.data)
    return node


LIVE_EVERY = 50
FATES = ("synced", "all", "chance", "chance")
CLIENT_WAIT_S = 300.0
DRAIN_WAIT_S = 10.0  # longer than reconnect_grace_s, after which readers count as dead
EMPTY_S = 0.05
Say = Callable[[str], None]


@dataclass(slots=True)
class Cuts:
    """What came out of all cuts; `failed` has one line for each cut that broke the promise."""

    done: int = 0
    live: int = 0
    steps: int = 0
    syncs: int = 0
    unsynced_max: int = 0  # bytes that no sync covered, at the worst place
    kept: int = 0  # messages seen again, all cuts together
    acknowledged: int = 0
    verdict: Verdict = field(default_factory=Verdict)
    failed: list[str] = field(default_factory=list)


def record_run(target: Path, scratch: Path, messages: int) -> tuple[Path, tree.Node]:
    """Run daemons and clients on `target`/spool; (log, the spool before it)."""
    log = scratch / "run.log"
    spool = target / "spool"
    spool.mkdir(mode=0o750)
    with instance(spool, scratch / "run") as run:
        base = load(spool)
        run.log = log
        histories = scratch / "histories"
        histories.mkdir()
        run.start()
        run.ready()
        stop = scratch / "stop"
        readers = [run.client("read", f"r{n}", histories, until=stop, share=60) for n in range(2)]
        putters = [run.client("put", f"p{n}", histories, count=messages // 2) for n in range(2)]
        _join(run, putters)
        stop.touch()
        _join(run, readers)
        run.stop()
    return log, base


def _join(run: Instance, clients: list[Child]) -> None:
    for client in clients:
        code = client.wait(CLIENT_WAIT_S)
        if code != 0:
            raise RunError(f"a client ended with {code}:\n{run.said()}")


class Cutter:
    """See the module. `target`: the directory under test; images of failed cuts stay in `saved`."""

    def __init__(self, log: Path, base: tree.Node, target: Path, scratch: Path, seed: int) -> None:
        self._steps = list(read_log(log))
        self._player = Player(base)
        self._target = target / "cut"
        self._scratch = scratch
        self._seed = seed
        self.saved = target / "failed"
        self.result = Cuts(steps=len(self._steps),
                           syncs=sum(step.words["op"] == "sync" for step in self._steps))

    def keep_steps(self, keeps: Callable[[Step], bool]) -> None:
        """Leave out steps: a run that would have forgotten them (tests of this harness)."""
        self._steps = [step for step in self._steps if keeps(step)]

    def run(self, count: int, say: Say, only: int | None = None) -> Cuts:
        """`count` cuts, the last of them after the whole record; or the one at place `only`."""
        places = {only} if only is not None else self._places(count)
        for at, step in enumerate(self._steps):
            if at in places:
                self._cut(at)
                if self.result.done % 50 == 0:
                    say(f"{self.result.done} of {len(places)} cuts")
            self._player.play(step)
        if len(self._steps) in places:
            self._cut(len(self._steps))
        return self.result

    def _places(self, count: int) -> set[int]:
        """By chance, half of them before a sync. The end is one of them: all is acknowledged."""
        if count < 1:
            return set()
        chance = random.Random(self._seed)
        count -= 1
        syncs = [i for i, step in enumerate(self._steps) if _is_sync(step)]
        half = set(chance.sample(syncs, min(count // 2, len(syncs))))
        rest = [i for i in range(len(self._steps)) if i not in half]
        some = set(chance.sample(rest, min(count - len(half), len(rest))))
        return half | some | {len(self._steps)}

    def _cut(self, at: int) -> None:
        result = self.result
        name = FATES[result.done % len(FATES)]
        left = tree.cut(self._player.root, tree.fate(name, self._seed * 1_000_003 + at))
        result.unsynced_max = max(result.unsynced_max, unsynced(self._player.root))
        if "run" in left.entries:
            left.entries["run"] = tree.directory()  # a reboot takes its objects away too
        store(left, self._target)
        result.done += 1
        place = f"step {at}, {name}"
        try:
            present = contents(self._target)
            self._judge(present, place)
            if result.done % LIVE_EVERY == 1:
                self._live(present, place)
        except OmqError as error:
            self._fail(place, f"the spool cannot be recovered: {error}")
        shutil.rmtree(self._target)

    def _judge(self, present: list[Found], place: str) -> None:
        verdict = judge_state(self._player.lines, present)
        self.result.kept += len(present)
        self.result.acknowledged = max(self.result.acknowledged, verdict.acknowledged)
        self.result.verdict.add(verdict)
        if verdict.faults:
            self._fail(place, str(verdict.faults))

    def _live(self, present: list[Found], place: str) -> None:
        """Real daemons on what the cut left: all of it is served once, and new messages too."""
        wanted = sorted(found.key for found in present if not found.idle)
        self.result.live += 1
        with instance(self._target, self._scratch / f"live{self.result.done}") as run:
            run.start()
            run.ready()
            with run.connect() as c:
                new = [f"new:{i}" for i in range(BATCH_MAX)]
                for key in new:
                    c.put("A", key.encode() + b"\n")
            got = sorted(_drain(run, len(wanted) + len(new)))
            run.stop()
        if got != sorted([*wanted, *new]):
            self._fail(place, f"served {len(got)}, there were {len(wanted)} and {len(new)} new")

    def _fail(self, place: str, what: str) -> None:
        self.result.failed.append(f"{place}: {what}")
        kept = self.saved / place.replace(", ", "-").replace(" ", "-")
        if not kept.exists() and self._target.exists():
            shutil.copytree(self._target, kept)


def _is_sync(step: Step) -> bool:
    return str(step.words["op"]).startswith("sync")


def _drain(run: Instance, wanted: int) -> list[str]:
    """The keys of everything that is served; what a dead reader held comes after a while."""
    keys: list[str] = []
    deadline = time.monotonic() + DRAIN_WAIT_S
    with run.connect() as c:
        while time.monotonic() < deadline:
            before = len(keys)
            for queue in (QUEUE, OTHER):
                with c.reader(queue, batch=100) as reader:
                    while batch := reader.next(timeout_s=EMPTY_S):
                        for message in batch:
                            keys.append(key_of(message.body)[0])
                            message.done()
            if len(keys) >= wanted and len(keys) == before:
                break
    return keys


def unsynced(node: tree.Node) -> int:
    """Bytes written that no sync has covered."""
    own = sum(len(pending.data or b"") for pending in node.pending)
    return own + sum(map(unsynced, node.entries.values()))
