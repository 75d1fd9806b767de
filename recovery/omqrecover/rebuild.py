"""Media recovery: a new Message Pool from the archived journal, to the end or to a point in time.

    1. look     history once through: who is alive at the point, is anything missing
       build    msgpool.rebuild/ from all frames, by the redo of every start, with checkpoints
    2. complete the file msgpool.rebuild/complete says what was built: from here on it is finished
    3. bodies   archived files that hold bodies of live messages are copied to archive/
    4. cut      journal files after the point are moved to quarantine/, a new journal file is made
    5. swap     msgpool/ moves to quarantine/, msgpool.rebuild/ takes its name

Invariants: 1. nothing of the spool is changed before 2 is durable; a killed build begins anew, what
comes after it goes on; 2. a manager does not start while msgpool.rebuild/ is there; 3. a point in
time is the end of a group commit, so nothing is halved; 4. no number above it is given again.

Errors: LossNotAccepted when history does not begin at the beginning or has gaps; NotRepairable;
DiskError, SpoolFull (run it again).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Final

import numpy as np

from omq.base import clock
from omq.base.arrays import Rows
from omq.base.errors import LossNotAccepted, NotRepairable
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.core.judge.presence import note_newest
from omq.core.redo.changes import Frame
from omq.core.redo.checkpoint import Checkpointer
from omq.core.redo.redo import Redo
from omq.core.redo.windows import Windows
from omq.format.journal import FileHeader
from omq.format.location import LocationKind, kind_of, number_of
from omq.storage import durable
from omq.storage.files import read_file, write_new_file
from omq.storage.journal import file_name, numbers_in
from omq.storage.journal_scan import Block
from omq.storage.store import store_numbers
from omqtools.omqrecover.archive import all_numbers, fetch, names_of
from omqtools.omqrecover.bulk_rebuild import NewPool, Shortcuts
from omqtools.omqrecover.history import History, Progress
from omqtools.omqrecover.ledger import Ledger
from omqtools.omqrecover.originals import Originals
from omqtools.omqrecover.repairs import SKIPPED, write_epoch_file

CHANGES_MAX: Final = 200_000
"""Changed records between two checkpoints of a build: bounds memory to a few hundred MB."""
COMPLETE: Final = "complete"
_MARK_BYTES_MAX: Final = 1 << 16
_PAGE: Final = 4096


class _Building(SpoolPaths):
    """The same spool, with the pool that is being made in the place of the pool."""

    __slots__ = ()

    @property
    def msgpool(self) -> Path:
        return self.rebuilding


class _MediaRedo(Redo):
    """Redo that lets bodies lie in the journal when the store file they moved to is gone."""

    stores: frozenset[int] = frozenset()

    def relocations(self, frame: Frame, raw: bytes) -> Rows:
        moves = super().relocations(frame, raw)
        there = self.stores.issuperset(map(number_of, np.unique(moves["location"]).tolist()))
        return moves if there else moves[:0]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far; None: to the end."""

    archive: Path
    until_lsn: int | None = None
    until_ns: int | None = None

    @property
    def name(self) -> str:
        text = f"{self.archive} {self.until_lsn} {self.until_ns}"
        return blake2b(text.encode(), digest_size=6).hexdigest()

    def ends_before(self, block: Block) -> bool:
        """Whether this block is already after the point."""
        if self.until_lsn is not None and block.header.last_lsn > self.until_lsn:
            return True
        return self.until_ns is not None and block.header.time_ns > self.until_ns


@dataclass(frozen=True, slots=True)
class Mark:
    """What was built; the content of `complete`."""

    name: str
    lsn: int
    frames: int
    messages: int
    missing: list[list[int]]  # LSN ranges
    from_lsn: int
    cut: bool
    epoch_file: int  # number of the journal file to make; 0 = the journal simply goes on
    last_number: int  # file that it follows
    highest_lsn: int
    epoch: int
    next_qpool: int
    time_ns: int
    bodies: list[int]  # journal files with bodies of live messages

    @property
    def quarantined(self) -> str:
        return f"rebuild-{self.name}"


def rebuild(paths: SpoolPaths, uuid: bytes, settings: Settings, wanted: Bounds, progress: Progress,
            *, accept_loss: bool) -> Mark:
    """See the module. The caller holds the manager's lock and the pool's, if there is a pool."""

    mark = _mark(paths.rebuilding) or _mark(paths.msgpool)
    if mark is not None and mark.name != wanted.name:
        raise NotRepairable(what="another rebuild is not finished",
                            reason=f"finish that one, or remove {paths.rebuilding}")
    if mark is None:
        mark = _build(paths, uuid, settings, wanted, progress, accept_loss=accept_loss)
    progress("taking the new pool into use")
    _finish(paths, uuid, wanted, mark)
    return mark


def _mark(directory: Path) -> Mark | None:
    try:
        fields = json.loads(read_file(directory / COMPLETE, _MARK_BYTES_MAX))
    except FileNotFoundError:
        return None
    return Mark(**fields)


# build


def _build(paths: SpoolPaths, uuid: bytes, settings: Settings, wanted: Bounds, progress: Progress,
           *, accept_loss: bool) -> Mark:
    directories = [wanted.archive, paths.archive, paths.journal]
    history = History(directories, uuid, progress, bodies=False)
    _check_begin(history, wanted, accept_loss=accept_loss)
    ledger, end = _look_through(history, wanted, progress)
    now = clock.wall_ns()
    mark = _describe(paths, history, wanted, end, now)
    _check_gaps(mark.missing, accept_loss=accept_loss)
    building = _Building(paths.root)
    _empty(building.msgpool)
    durable.make_directory(building.msgpool)
    pool = NewPool(building, uuid)
    try:
        redo = _MediaRedo(pool, settled=True)
        redo.stores = frozenset(store_numbers(paths))
        keeper = Checkpointer(pool, redo, building, uuid, settings)
        short = Shortcuts(pool, ledger)
        frames = 0
        again = History(directories, uuid, progress)
        windows = Windows(_until(iter(again), wanted, _Point()))
        for window in windows:
            frames += short.apply(redo, window, windows.durable)
            if len(redo.images) + len(redo.dirty) >= CHANGES_MAX:
                short.guard(redo)
                keeper.take(mark.epoch, 0, 0, now)
            progress(f"LSN {window[-1].header.last_lsn} of {mark.lsn}, {frames} frames")
        mark = replace(mark, missing=_missing(again, mark.lsn))  # archived bodies may be, too
        _check_gaps(mark.missing, accept_loss=accept_loss)
        short.guard(redo)
        pool.settle()
        redo.lsn, redo.next_qpool, redo.clean_stop = mark.lsn, mark.next_qpool, False
        number, offset = (mark.epoch_file, 0) if mark.epoch_file else (end.number, end.offset)
        keeper.take(mark.epoch, number, offset, now)
        words, messages = pool.locations()
        bodies = sorted(number_of(w) for w in words if kind_of(w) == LocationKind.JOURNAL)
        mark = replace(mark, frames=frames, messages=messages, bodies=bodies)
    finally:
        pool.close()
    text = json.dumps(asdict(mark)) + "\n"
    write_new_file(building.msgpool / COMPLETE, [text.encode()]).close()
    return mark


def _look_through(history: History, wanted: Bounds, progress: Progress) -> tuple[Ledger, _Point]:
    """Who is alive at the point, and where it is; read to the end, for the numbers and the gaps."""
    ledger, end = Ledger(), _Point()
    windows = Windows(_until(iter(history), wanted, end))
    for window in windows:
        ledger.apply(window, durable=windows.durable)
        progress(f"looking through history: LSN {ledger.lsn}")
    return ledger, end


@dataclass(slots=True)
class _Point:
    """Position after the last block that counts."""

    number: int = 0
    offset: int = 0
    lsn: int = 0
    cut: bool = False


def _until(blocks: Iterator[Block], wanted: Bounds, end: _Point) -> Iterator[Block]:
    """The blocks up to the point; the rest is read too, for the numbers in it."""
    for block in blocks:
        end.cut = end.cut or wanted.ends_before(block)
        if not end.cut:
            end.number, end.offset = block.number, block.offset + block.header.length
            end.lsn = block.header.last_lsn
            yield block


def _check_begin(history: History, wanted: Bounds, *, accept_loss: bool) -> None:
    first = history.files[0].follows if history.files else None
    if not history.files:
        raise NotRepairable(what=f"{wanted.archive} has no journal file of this instance",
                            reason="the uuid in instance.json must be that of the files")
    if first is not None and first.first_lsn > 1 and not accept_loss:
        raise LossNotAccepted(
            what=f"the oldest file, {history.files[0].path.name}, begins at LSN {first.first_lsn}: "
                 "messages from before it are lost")


def _missing(history: History, lsn: int) -> list[list[int]]:
    return [[first, last] for first, last in history.gaps if first <= lsn]


def _check_gaps(missing: list[list[int]], *, accept_loss: bool) -> None:
    if missing and not accept_loss:
        raise LossNotAccepted(what=f"history has gaps: LSN {missing}")


def _describe(paths: SpoolPaths, history: History, wanted: Bounds, end: _Point, now: int) -> Mark:
    goes_on = not end.cut and end.number in numbers_in(paths.journal) \
        and end.number == history.files[-1].number
    numbers = [*(file.number for file in history.files), *all_numbers(paths.journal),
               *all_numbers(paths.archive)]
    return Mark(
        wanted.name, end.lsn, 0, 0, _missing(history, end.lsn), history.first_lsn, end.cut,
        0 if goes_on else max(numbers, default=0) + 1, end.number, history.last_lsn,
        history.epoch, history.next_qpool + (0 if goes_on else SKIPPED), now, [])


def _empty(directory: Path) -> None:
    """Remove what an earlier build left."""
    for name in durable.list_directory(directory):
        durable.unlink(directory / name, sync=False)


# finish


def _finish(paths: SpoolPaths, uuid: bytes, wanted: Bounds, mark: Mark) -> None:
    """Steps 3 to 5; each is done or found done."""
    originals = Originals(paths, "")
    originals.folder = paths.quarantine / mark.quarantined
    durable.make_directory(paths.quarantine)
    durable.make_directory(originals.folder)
    there = {*numbers_in(paths.archive), *numbers_in(paths.journal)}
    for number in mark.bodies:
        if number not in there:
            target = paths.archive / file_name(number)
            fetch(wanted.archive, number, target) or fetch(paths.archive, number, target)
    if mark.epoch_file:
        if mark.cut:
            _set_aside_behind(paths, originals, mark)
        write_epoch_file(paths, FileHeader(
            uuid, mark.epoch + 1, mark.epoch_file, _PAGE, _PAGE, mark.highest_lsn + SKIPPED,
            mark.lsn, mark.last_number, mark.time_ns, mark.next_qpool))
    note_newest(paths, uuid)
    durable.step("recover.before_swap", paths.rebuilding)
    if durable.status(paths.rebuilding / COMPLETE) is not None:
        originals.set_aside(paths.msgpool)
        durable.rename(paths.rebuilding, paths.msgpool)
    durable.unlink(paths.msgpool / COMPLETE)


def _set_aside_behind(paths: SpoolPaths, originals: Originals, mark: Mark) -> None:
    """Journal files that lie wholly after the point: their frames are void from now on."""
    for directory in (paths.journal, paths.archive):
        for number in all_numbers(directory):
            if mark.last_number < number != mark.epoch_file:
                for name in names_of(number):
                    originals.set_aside(directory / name)
