"""L3: the n-th call on the disk fails, for n = 1, 2, ... until a life ends without a fault.

A DiskError ends the process that met it: the manager, or pool.writer alone. A SpoolFull refuses one
request. Then the power fails at once, or the manager starts again on the same machine (whose page
cache still shows what a failed sync has lost), lives on, and then the power fails.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from omq.base.errors import DiskError, SpoolFull
from omq.format.wire import Settlement
from tests.crash.sim.choices import selections
from tests.crash.sim.disk import Cut, Dropped, Event, Mark, SimDisk, Sync
from tests.crash.sim.explore import History, Outcome, index_errors, second_life, start, verdict
from tests.crash.sim.life import SETTINGS, A, B, Life, fixed, make_spool
from tests.crash.sim.model import Known
from tests.crash.sim.platter import Image, Platter, image_of

WRITES: Final = ("pwritev",)
SYNCS: Final = ("fsync", "fdatasync", "sync_directory")
CALLS: Final = (*WRITES, *SYNCS, "create", "truncate", "rename", "unlink", "mkdir", "rmdir")
RESTART: Final = ("restart", "pool.writer died")


@dataclass(frozen=True, slots=True)
class Fault:
    """`error`: errno of the n-th of these calls; 0: it takes half of what it was to write; -1: the
    process is killed before it."""

    error: int
    calls: tuple[str, ...] = CALLS


EIO: Final = Fault(errno.EIO)
FULL: Final = Fault(errno.ENOSPC, (*WRITES, *SYNCS, "create", "rename", "mkdir"))
SHORT: Final = Fault(0, WRITES)
KILL: Final = Fault(-1)
UNREADABLE: Final = Fault(errno.EIO, ("pread", "open"))
FAULTS: Final = (EIO, FULL, SHORT, KILL, UNREADABLE)


class Injector:
    """The hook of a disk: counts calls; the n-th fails."""

    def __init__(self, fault: Fault, number: int) -> None:
        self.fault, self.left = fault, number
        self.fired = ""

    def __call__(self, call: str, path: str, count: int) -> int | None:
        if call not in self.fault.calls:
            return None
        self.left -= 1
        if self.left:
            return None
        self.fired = f"{call} {path}"
        if self.fault.error < 0:
            raise Cut
        if self.fault.error:
            raise OSError(self.fault.error, "injected", path)
        return count // 2


def script(life: Life, *, alone: bool = True) -> None:
    """A life that goes on when a request is refused. `alone`: pool.writer dies without the
    manager."""
    steps: list[Callable[[], object]] = [
        lambda: life.put(A, size=300), lambda: life.put(B, size=900, putter=1),
        lambda: _finish(life, A), lambda: _checkpoint(life, alone),
        lambda: life.put(A, B), lambda: life.rotate(), lambda: life.put(A, persistent=False),
        lambda: _finish(life, B, Settlement.DEFER), lambda: life.put_container(A, 1000),
        lambda: _checkpoint(life, alone), lambda: (life.put(B, size=9000), life.put(A, size=9000)),
        lambda: _finish(life, A),
        lambda: _checkpoint(life, alone)]
    for step in steps:
        try:
            step()
        except (SpoolFull, DiskError):  # refused, as request_server does; commit sees a latch
            if life.dead:
                raise
        life.commit()


def _finish(life: Life, queue: int, kind: Settlement = Settlement.DONE) -> None:
    given = life.give(queue)
    life.commit()
    if given:
        life.settle(kind, given)


def _checkpoint(life: Life, alone: bool) -> None:  # noqa: FBT001
    """pool.writer may die of an error; the manager does not."""
    try:
        life.checkpoint()
    except (DiskError, SpoolFull, Cut):
        life.dead |= not alone
        if life.dead:
            raise
        life.writer_dies()


@dataclass(slots=True)
class Begin:
    """What the lives begin on: an image, and what its messages are."""

    image: Image
    kept: dict[int, Known]


@dataclass(slots=True)
class Run:
    """A life with one fault. `fired`: the call that failed, empty when none did."""

    fault: Fault
    disk: SimDisk
    begin: Begin
    fired: str = ""
    error: BaseException | None = None

    @property
    def log(self) -> Sequence[Event]:
        assert self.disk.log is not None
        return self.disk.log


class Starts:
    """What starts make of images. Lives whose faults are a call apart leave the same ones, so that
    half of the starts can be spared; those of one fault, and of a product as it is."""

    def __init__(self) -> None:
        self._known: dict[int, Outcome] = {}

    def __call__(self, image: Image) -> Outcome:
        found = self._known.get(image.key)
        if found is None:
            found = self._known[image.key] = start(image, SETTINGS)
        return found


def beginning() -> Begin:
    """A spool that a first manager has used and left."""
    with fixed(7):
        disk = SimDisk(record=False)
        make_spool(disk)
        life = Life(disk)
        life.put(A)
        life.commit()
        life.checkpoint()
        life.stop()
        image = image_of(disk)
        found = start(image, SETTINGS).found
        assert found is not None
        return Begin(image, dict(found.view))


def live(begin: Begin, fault: Fault, number: int) -> Run:
    """One life with its n-th call failing; the start belongs to it."""
    disk = begin.image.mount(record=True, faults=True)
    injector = Injector(fault, number)
    disk.hook = injector
    run = Run(fault, disk, begin)
    try:
        life = Life(disk, model=dict(begin.kept))
        script(life, alone=bool(number % 4))
    except (DiskError, SpoolFull, Cut) as error:
        run.error = error
    disk.hook = None
    run.fired = injector.fired
    return run


def sequels(run: Run, random: Random, cuts: int = 3, starts: Starts | None = None, *,
            again: bool = True) -> list[str]:
    """What breaks the promise behind the fault; empty: nothing does. `starts`: of the lives before
    this one, to be used again. `again`: the manager also starts on the same machine and lives on,
    which is two thirds of the time."""
    starts = starts or Starts()
    platter, history = Platter(run.begin.image), History(acked=dict(run.begin.kept))
    for event in run.log:
        platter.feed(event)
        if isinstance(event, Mark):
            history.feed(event.what)
    wrong = _retried(run.log) if run.fault.error == errno.EIO else []
    wrong += _cuts(platter, history, random, cuts, starts)
    if wrong or not again:
        return wrong
    return _on_the_same_machine(run, platter, history, random, cuts, starts)


def _cuts(platter: Platter, history: History, random: Random, count: int, starts: Starts
          ) -> list[str]:
    options = list(selections(platter.pending, random, 2))
    chosen = options[:2] + random.sample(options, min(count, len(options)))
    for label, selection in chosen:
        wrong, _ = verdict(starts(platter.image(selection)), history)
        if wrong:
            return [f"cut, {label}: {text}" for text in wrong]
    return []


def _on_the_same_machine(run: Run, platter: Platter, history: History, random: Random, cuts: int,
                         starts: Starts) -> list[str]:
    disk = run.disk
    disk.kill()
    seen = len(run.log)
    disk.mark(RESTART[0])
    life = Life(disk)
    wrong, now = verdict(Outcome(life.found, "; ".join(index_errors(life.core))), history)
    if wrong:
        return [f"restart: {text}" for text in wrong]
    life.model = dict(now)
    life.order = 1 + max((p.order for m in now.values() for p in m.places), default=0)
    second_life(life)
    later = History(acked=dict(now), answered=dict(history.answered), lsn=history.lsn,
                    next_id=history.next_id, sure_id=history.next_id)
    events = run.log[seen:]
    served = next(i for i, e in enumerate(events) if isinstance(e, Mark) and e.what not in RESTART)
    chosen = {len(events) - 1, *random.sample(range(served, len(events)), cuts)}
    for cut, event in enumerate(events):
        platter.feed(event)
        if isinstance(event, Mark) and event.what not in RESTART:
            later.feed(event.what)
        if cut in chosen:
            wrong = _cuts(platter, later, random, 1, starts)
            if wrong:
                return [f"restart, event {cut}, {text}" for text in wrong]
    return []


def _retried(log: Sequence[Event]) -> list[str]:
    """A sync that failed must not be tried again by a process that lives on."""
    failed: set[int] = set()
    out = []
    for event in log:
        if isinstance(event, Mark) and event.what in RESTART:
            failed.clear()
        elif isinstance(event, Dropped):
            failed.add(event.node)
        elif isinstance(event, Sync) and event.node in failed:
            out.append(f"retried: file {event.node} is synced again after a failed sync")
    return out
