"""L6, absence: of a spool whose instance has ended, in order or by a kill, one file is missing,
emptied, cut, older, or another spool's, or one pool record is zeros. A start must serve everything
as it was, or name what is wrong: refuse with the command to run, report a finding, or give the
reader of a message an error for its body. It must never be silent about a message that is gone,
changed or back again.

    file    every one below the spool's root, but locks and what run/ and volatile/ have
    fault   absent; empty; cut at each page or record (some of them); the file as it was at an
            earlier checkpoint; the file of that name of another spool; zeros in one record
    end     `stopped`: an orderly end with its last checkpoint; `killed`: in the middle of things

What nobody can know is listed in UNKNOWABLE, each with its reason, and counted.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from random import Random
from typing import Final

from omq.base.errors import Exit, OmqError
from omq.base.settings import Settings
from omq.format.pool import RECORD_BYTES
from omq.format.poolctrl import newest
from tests.crash.sim.disk import Node, SimDisk
from tests.crash.sim.life import (
    ROOT,
    SETTINGS,
    START_NS,
    A,
    Found,
    Life,
    damage,
    fixed,
    make_spool,
    recover_into,
)
from tests.crash.sim.model import Known, judge
from tests.crash.sim.workloads import WORKLOADS

Files = dict[str, bytes]  # by their path below the root of the disk
NS: Final = 1_000_000_000
_LEFT_OUT: Final = ("/run/", "/volatile/", "/lock", "/quarantine/", ".tmp")
_PAGE: Final = 4096
_CUTS: Final = 3  # of each file
_SEED: Final = 77
LIVES: Final = tuple(name for name in WORKLOADS if name not in ("restart", "barriers", "recycled"))
"""Those three end by themselves."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A spool whose instance has ended. `older`: what its files were at each checkpoint before."""

    name: str
    files: Files
    model: dict[int, Known]
    next_id: int
    older: list[Files]
    settings: Settings


@dataclass(frozen=True, slots=True)
class Fault:
    """`changes`: what files are instead, by their paths; None: there is none."""

    path: str
    kind: str
    changes: Mapping[str, bytes | None]

    def __str__(self) -> str:
        return f"{self.path} {self.kind}"


@dataclass(slots=True)
class Tally:
    """What came of the faults. `silent` must stay empty."""

    served: int = 0
    refused: int = 0
    reported: int = 0
    bodies: int = 0  # named by the reader of the message
    unknowable: int = 0
    silent: list[str] = field(default_factory=list)

    @property
    def tried(self) -> int:
        return (self.served + self.refused + self.reported + self.bodies + self.unknowable
                + len(self.silent))

    def add(self, other: Tally) -> None:
        self.served += other.served
        self.refused += other.refused
        self.reported += other.reported
        self.bodies += other.bodies
        self.unknowable += other.unknowable
        self.silent += other.silent


def snapshot(disk: SimDisk) -> Files:
    """The bytes of all files."""
    out: Files = {}

    def walk(node: Node, path: str) -> None:
        for name, child in node.entries.items():
            if child.kind == stat.S_IFDIR:
                walk(child, f"{path}/{name}")
            else:
                out[f"{path}/{name}"] = bytes(child.data)

    walk(disk.root, "")
    return out


def mounted(files: Files, template: SimDisk) -> SimDisk:
    """A new disk with the directories of another one and these files."""
    disk = SimDisk(record=False)
    places = {"": disk.root}

    def walk(node: Node, path: str) -> None:
        for name, child in node.entries.items():
            if child.kind == stat.S_IFDIR:
                below = f"{path}/{name}"
                places[below] = disk.add(places[path], name, disk.nodes + 1, stat.S_IFDIR)
                walk(child, below)

    walk(template.root, "")
    for path, data in files.items():
        parent, _, name = path.rpartition("/")
        disk.add(places[parent], name, disk.nodes + 1, stat.S_IFREG, data)
    return disk


def lived(name: str, seed: int, *, stopped: bool, settings: Settings = SETTINGS
          ) -> tuple[Ended, SimDisk]:
    """A life, its files at each checkpoint, and how it ended."""
    with fixed(seed):
        disk = SimDisk(record=False)
        make_spool(disk)
        life = Life(disk, settings)
        older: list[Files] = []
        taken = life.checkpoint

        def checkpoint(*, bodies: bool = True) -> None:
            taken(bodies=bodies)
            older.append(snapshot(disk))

        life.checkpoint = checkpoint  # type: ignore[method-assign]
        WORKLOADS[name](life, Random(seed))
        if life._open:
            life.commit()
        if stopped:
            _stop(life)
        else:  # something is acknowledged behind the last checkpoint
            life.put(A, size=40)
            life.commit()
        disk.kill()
        end = "stopped" if stopped else "killed"
        return Ended(f"{name} {seed} {end}", snapshot(disk), dict(life.model),
                     life.core.next_qpool, older, settings), disk


def _stop(life: Life) -> None:
    """An orderly end: pool.writer's last checkpoint comes behind the manager's last frame."""
    life.checkpoint()
    following, close = life.follower(), life.close

    def last() -> None:
        following._tell = lambda result: None  # type: ignore[method-assign]
        following._checkpoint()
        close()

    life.close = last  # type: ignore[method-assign]
    life.stop()


def faults(ended: Ended, other: Files, random: Random) -> Iterator[Fault]:
    """Every one of a spool that has ended; `other`: the files of another spool."""
    spool = {path: data for path, data in sorted(ended.files.items())
             if not any(part in path for part in _LEFT_OUT)}
    for path, data in spool.items():
        for kind, changed in _of_one(path, data, ended.older, other, random):
            yield Fault(path, kind, {path: changed})
    pools = [path for path in spool if path.endswith("QP")]
    for one, two in combinations(pools, 2):
        yield Fault(one, f"exchanged with {two}", {one: spool[two], two: spool[one]})
    for number, files in enumerate(ended.older):
        for place in ("/msgpool/", "/journal/"):
            yield Fault(f"{ROOT}{place}", f"as at checkpoint {number}",
                        {path: files.get(path) for path in (*spool, *files) if place in path
                         and not any(part in path for part in _LEFT_OUT)})
    for place in ("/msgpool/", "/journal/", "/store/", "/data/", "/archive/"):
        yield Fault(f"{ROOT}{place}", "emptied",
                    {path: None for path in spool if place in path})


def _of_one(path: str, data: bytes, older: list[Files], other: Files, random: Random
            ) -> Iterator[tuple[str, bytes | None]]:
    """(what happened, what the file is then)"""
    yield "absent", None
    if data:
        yield "empty", b""
    unit = RECORD_BYTES if path.endswith("QP") else _PAGE
    cuts = range(unit, len(data), unit)
    for at in sorted(random.sample(cuts, min(_CUTS, len(cuts)))):
        yield f"cut at {at}", data[:at]
    seen = {data}
    for number, files in reversed(list(enumerate(older))):
        old = files.get(path)
        if old is not None and old not in seen:
            seen.add(old)
            yield f"as at checkpoint {number}", old
    if other.get(path, data) != data:
        yield "of another spool", other[path]
    if path.endswith("QP"):
        for at in range(RECORD_BYTES, len(data), RECORD_BYTES):
            if any(data[at : at + RECORD_BYTES]):
                yield (f"record {at // RECORD_BYTES - 1} zeros",
                       data[:at] + bytes(RECORD_BYTES) + data[at + RECORD_BYTES :])


def try_all(name: str, seed: int, *, stopped: bool) -> Tally:
    """All faults of one life; `silent` has those that break the rule."""
    ended, disk = lived(name, seed, stopped=stopped)
    other, _ = lived(name, seed + _SEED, stopped=stopped)
    with fixed(seed):
        assert judged(ended, Fault("", "none", {}), disk) == "served", "it is whole before"
        tally = Tally()
        for fault in faults(ended, other.files, Random(seed)):
            outcome = judged(ended, fault, disk)
            if outcome in ("served", "refused", "reported", "bodies"):
                setattr(tally, outcome, getattr(tally, outcome) + 1)
            elif unknowable(ended, fault):
                tally.unknowable += 1
            else:
                tally.silent.append(f"{ended.name}: {fault}: {outcome}")
    return tally


def judged(ended: Ended, fault: Fault, template: SimDisk) -> str:
    """What a start makes of it: a field of Tally, or what it was silent about."""
    files = {path: data for path, data in {**ended.files, **fault.changes}.items()
             if data is not None}
    try:
        found, _, _ = recover_into(mounted(files, template), ended.settings, START_NS)
    except OmqError as error:
        return "refused" if error.exit_code in (Exit.DATA, Exit.CONFIG, Exit.NO_INPUT) else (
            f"ends with {error.exit_code.name}: {error}")
    if damage([*found.recovered.findings, *found.loaded.findings]):
        return "reported"
    return _served(found, ended)


def _served(found: Found, ended: Ended) -> str:
    wrong = judge(found.view, ended.model, [], START_NS // NS, ended.next_id).wrong
    if not wrong:
        return "served"
    # Its reader gets BodyUnavailable, or BodyDamaged by the CRC that the record has.
    unread = {qpool for qpool, known in found.view.items() if qpool in ended.model and (
        known.payload, known.content) != (ended.model[qpool].payload, ended.model[qpool].content)}
    model = {qpool: known for qpool, known in ended.model.items() if qpool not in unread}
    view = {qpool: known for qpool, known in found.view.items() if qpool not in unread}
    rest = judge(view, model, [], START_NS // NS, ended.next_id).wrong
    places = [qpool for qpool in unread if len(found.view[qpool].places)
              != len(ended.model[qpool].places)]
    if unread and not rest and not places:
        return "bodies"
    return "; ".join(rest or wrong)


def unknowable(ended: Ended, fault: Fault) -> bool:
    """Is it one of those that nothing in the spool can tell? The newest journal file after a kill,
    as it was at a time that the last checkpoint has reached: the blocks behind it might never have
    been written. The same of all of journal/."""
    last = max(path for path in ended.files if "/journal/0" in path)
    kind, _, number = fault.kind.rpartition(" ")
    if not ended.name.endswith("killed") or fault.path not in (last, f"{ROOT}/journal/") \
            or kind != "as at checkpoint":
        return False
    then = newest(ended.older[int(number)][f"{ROOT}/msgpool/poolctrl"])[0]
    now = newest(ended.files[f"{ROOT}/msgpool/poolctrl"])[0]
    return then is not None and now is not None and then.lsn == now.lsn
