"""Historical bugs, each switched on by replacing one function of omq while a test runs: the harness
must find every one of them, or it proves nothing.

None of this is in the product: there is no switch there that a mistake could turn on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np

from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.core.engine import barrier_ends, engine, operate, puts, relocation
from omq.core.engine.barriers import Barriers, Failed
from omq.core.engine.duplicates import Duplicates
from omq.core.engine.state import Core
from omq.core.load import rebuild
from omq.core.redo import births
from omq.core.redo.changes import Frame
from omq.core.redo.redo import note_queue
from omq.core.redo.window import Window
from omq.format.double_write import Images
from omq.format.frame_rules import BY_NUMBER, Rule
from omq.format.journal import At, FrameFlag, FrameType
from omq.format.location import LocationKind, kind_of
from omq.format.pool_contents import Contents
from omq.format.poolctrl import SLOT_BYTES, PoolControl, decode, newest
from omq.services.pool.bodies import BodyKeeper
from omq.services.pool.live_index import Look
from omq.storage import durable, poolctrl, recycled_containers
from omq.storage.double_write import DoubleWriteFile
from omq.storage.files import File, create_filled, open_file
from omq.storage.journal import JournalWriter, file_name
from omq.storage.journal_reader import load_file
from omq.storage.pool import PoolFiles
from omq.storage.recycled_containers import Offer, Recycler
from omq.storage.spare_containers import SpareContainers
from omq.storage.store import StoreWriter
from tests.crash.sim import life
from tests.crash.sim.life import SETTINGS, A

_end_barrier, _fire_barriers = barrier_ends._end, barrier_ends.fire


def _end_and_flush(core: Core, entry: int, failed: Failed | None) -> None:
    _end_barrier(core, entry, failed)
    core.block.flush()


def _failing_later(core: Core, slot: int, words: str) -> None:
    core.barriers.poisoned(core, slot, A)


def _fire_alone(core: Core) -> None:
    core.block.flush()
    _fire_barriers(core)


Patch = Callable[[], Iterator[None]]


@dataclass(frozen=True, slots=True)
class Mutant:
    """`workload` over `seeds` must find it; `shows`: how the first thing found begins."""

    history: str
    patches: Callable[[], Sequence[Any]]
    workload: str = "plain"
    shows: tuple[str, ...] = ("lost",)
    seeds: Sequence[int] = range(1, 5)
    second: float = 0.0
    settings: Settings = field(default=SETTINGS)

    @contextmanager
    def switched_on(self) -> Iterator[None]:
        with ExitStack() as stack:
            for patch in self.patches():
                stack.enter_context(patch)
            yield


# acknowledge before sync

def _believes_itself_durable(self: JournalWriter) -> None:
    self.durable_lsn = self.last_lsn


# no directory sync

def _rename_only(source: Path, target: Path, *, new: bool = False) -> None:
    durable.check_latch()
    durable.current().rename(str(source), str(target))


# no truncation, and no new file, behind a torn tail

_open_epoch = JournalWriter.open_epoch.__func__  # type: ignore[attr-defined]


def _go_on_behind_the_tail(cls: type[JournalWriter], paths: SpoolPaths, settings: Settings,
                           uuid: bytes, epoch: int, first_lsn: int, follows_lsn: int,
                           follows_number: int, next_qpool: int, time_ns: int,
                           term: int = 0) -> JournalWriter:
    writer: JournalWriter = _open_epoch(cls, paths, settings, uuid, epoch, first_lsn, follows_lsn,
                                        follows_number, next_qpool, time_ns, term)
    path = paths.journal / file_name(follows_number)
    if follows_number and durable.status(path) is not None:
        durable.unlink(paths.journal / file_name(writer.file_number))
        page = settings.journal_page_bytes
        used = len(load_file(path).rstrip(b"\0"))
        writer.file, writer.file_number = open_file(path, "journal", write=True), follows_number
        writer.offset, writer.sequence = max(page, -(-used // page) * page), 99
    return writer


# definitions of queues

def _nothing_forgotten(queues: dict[int, str], definitions: dict[str, str], frame: Frame,
                       raw: bytes) -> None:
    if not BY_NUMBER[frame[At.TYPE]].forgets:
        note_queue(queues, definitions, frame, raw)


def _first_stays(queues: dict[int, str], definitions: dict[str, str], frame: Frame, raw: bytes
                 ) -> None:
    before = dict(definitions)
    note_queue(queues, definitions, frame, raw)
    definitions |= {name: line for name, line in before.items() if name in definitions}


_encode_control = PoolControl.encode


def _no_definitions(self: PoolControl) -> bytes:
    return _encode_control(replace(self, definitions={}))


# no CRC check

class _FitsAll(int):
    """A checksum that equals every other one."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


def any_crc(data: object, before: int = 0) -> int:
    return _FitsAll(1)


def _all_fit(raw: bytes, begin: object, end: object, crcs: Any) -> Any:
    return np.ones(len(crcs), dtype=bool)


# a checkpoint that misses one dirtied pool file (IBM's APAR IC86846)

_sync = File.sync


def _all_but_one(self: File) -> None:
    if self.path.name != "1QP":
        _sync(self)


# delta without image: records are overwritten in place and nowhere else

def _no_double_write(self: DoubleWriteFile, images: Images, checkpoint: int, contents: Contents
                     ) -> None:
    """Nothing is kept."""


# an old journal generation comes back: old files are removed, but not durably, and replay begins
# with whatever files there are instead of at the checkpoint

_load_control = poolctrl.load
_unlink = durable.unlink


def _no_position(paths: SpoolPaths, *, settle: bool = False) -> Any:
    control, findings = _load_control(paths, settle=settle)
    if control is not None:
        control = replace(control, lsn=0, journal=0, offset=0)
    return control, findings


def _unlink_only(path: Path, *, sync: bool = True) -> bool:
    return _unlink(path, sync=False)


# a checkpoint that counts before its records do

_take_write = PoolFiles.write_images


def _records_unsynced(self: PoolFiles, changes: Any) -> None:
    with mock.patch.object(File, "sync", lambda file: None):
        _take_write(self, changes)


# a request is torn, and what is whole of it counts

def _units_only(self: Window, bad: list[int], durable: int) -> Any:
    units = self.frames["unit"][bad]
    return np.isin(self.frames["unit"], units[units != 0])


# of a unit of work some messages count; a backout is not redone

def _nothing_joined(self: Window, bad: list[int], durable: int) -> Any:
    del bad, durable
    return np.zeros(len(self.frames), dtype=bool)


def _without(kind: FrameType) -> tuple[Rule, ...]:
    """The table, in which frames of this type say nothing of their entry."""
    listed = list(BY_NUMBER)
    listed[kind] = replace(listed[kind], entry=None)
    return tuple(listed)


# redo forgets the group of a message

_compact_records = births.compact_records


def _no_groups(window: Window, rows: Any, heads: Any) -> Any:
    out = _compact_records(window, rows, heads)
    out["group"] = 0
    return out


# a message gets other records, ends, and its first record stays

_select = Window.select


def _moves_are_nothing(self: Window) -> Any:
    keep, brief = _select(self)
    ended = self.frames["qpool"][self.frames["flags"] & FrameFlag.LAST_PART != 0]
    moves = (self.frames["type"] == FrameType.MOVE) & np.isin(self.frames["qpool"], ended)
    return keep & ~moves, brief


# a journal file goes before a checkpoint covers the end of its last body

def _empty_is_enough(self: BodyKeeper, word: int, look: Look, checkpoint_lsn: int) -> bool:
    return _may_go(self, word, look, self._before.get(word, checkpoint_lsn))


_may_go = BodyKeeper._may_go


# containers are made ahead, and nobody waits for their names

def _names_unsynced(self: SpareContainers) -> None:
    with mock.patch.object(durable, "sync_directory", lambda path: None):
        _make_spares(self)


_make_spares = SpareContainers._make


# a container is offered for the next body, and nobody waits for its new name

def _offered_unsynced(self: Recycler, ref: str) -> bool:
    with mock.patch.object(durable, "sync_removal", lambda path: None):
        return _end(self, ref)


_end = Recycler.end


# the container of a message is offered when its reader is done, before that is durable

def _ends_at_once(self: life.Life, kind: Any, verdicts: Any, *, delay_s: int = 60) -> None:
    state = self.state()
    for each in verdicts:
        if state[each.qpool].item and len(state[each.qpool].places) == 1:
            self.recycler.end(state[each.qpool].item)
    _settle(self, kind, verdicts, delay_s=delay_s)
    self.put_container(life.C, 1500)  # the same group has the next body


_settle = life.Life.settle


# an offer is believed that a power cut has brought back

def _believed(paths: SpoolPaths, offer: Offer) -> bool:
    return True


# the same of store files alone

def _empty_store_is_enough(self: BodyKeeper, word: int, look: Look, checkpoint_lsn: int) -> bool:
    if kind_of(word) == LocationKind.STORE:
        return _empty_is_enough(self, word, look, checkpoint_lsn)
    return _may_go(self, word, look, checkpoint_lsn)


# the file in which redo is to go on is retired like those before it

def _one_more(self: BodyKeeper, journal: int) -> int:
    return _wanted_from(self, journal) + 1


_wanted_from = BodyKeeper._wanted_from


# a new place is told while its bytes are in the page cache alone

def _sync_of_nothing(self: StoreWriter) -> None:
    with mock.patch.object(File, "sync_all", lambda file, *, new=False: None):
        _sync_store(self)


_sync_store = StoreWriter.sync


# of two whole slots of poolctrl the older one counts

def _oldest(data: bytes | memoryview) -> Any:
    control, findings = newest(data)
    slots = [decode(memoryview(data)[at : at + SLOT_BYTES]) for at in (0, SLOT_BYTES)]
    whole = [slot for slot in slots if isinstance(slot, PoolControl)]
    return min(whole, key=lambda slot: slot.generation, default=control), findings


# a checkpoint covers frames that redo has not applied

def _says_more(paths: SpoolPaths, control: PoolControl) -> None:
    _store(paths, replace(control, lsn=control.lsn + 3))


_store = poolctrl.store


# poolctrl's slots do not take turns at all

def _even_generations(paths: SpoolPaths, control: PoolControl) -> None:
    file = poolctrl._open(paths)
    try:
        file.write([control.encode()], 0)
        file.sync()
    finally:
        file.close()


# poolctrl's slots do not take turns

def _same_slot_again(paths: SpoolPaths, control: PoolControl) -> None:
    file = open_file(paths.msgpool / poolctrl.NAME, "poolctrl", write=True) \
        if durable.status(paths.msgpool / poolctrl.NAME) else \
        create_filled(paths.msgpool / poolctrl.NAME, 2 * SLOT_BYTES, "poolctrl")
    try:
        file.write([control.encode()], control.generation // 8 % 2 * SLOT_BYTES)
        file.sync()
    finally:
        file.close()


# bodies move, and the journal does not say so: redo leaves them in files that have gone

def _untold(core: Any, rows: memoryview) -> int:
    with mock.patch.object(core.block, "frame", lambda *_, **__: None), \
            mock.patch.object(core.block, "reserve", lambda *_: None):
        return _relocate(core, rows)


_relocate = relocation.relocate


# the last put of a unit of work has a number of its own

def _of_its_own(core: Any, party: Any, message: Any, parts: Any, sequence: int, ends: int,
                unit: int, body: Any) -> int:
    return _append(core, party, message, parts, sequence, ends,
                   core.block.lsn if ends and unit else unit, body)


_append = puts.append


def _nowhere(*_: Any, **__: Any) -> list[Any]:
    return []


MUTANTS: Final[dict[str, Mutant]] = {
    "ack-before-sync": Mutant(
        "a block is acknowledged before fdatasync returned",
        lambda: [mock.patch.object(JournalWriter, "sync", _believes_itself_durable),
                 mock.patch.object(life, "write_at_once", _nowhere)]),
    "no-directory-sync": Mutant(
        "a new journal file is used before its name is on the disk",
        lambda: [mock.patch.object(durable, "rename", _rename_only)]),
    "append-behind-torn-tail": Mutant(
        "after a crash the manager goes on in the old file, behind what was torn",
        lambda: [mock.patch.object(JournalWriter, "open_epoch",
                                   classmethod(_go_on_behind_the_tail))],
        second=1.0, shows=("second life",)),
    "no-crc": Mutant(
        "a block and its payloads are believed by their lengths alone",
        lambda: [mock.patch("omq.format.journal.crc32c", any_crc),
                 mock.patch("omq.core.redo.window._whole", _all_fit),
                 mock.patch("omq.core.redo.changes.crc32c", any_crc)],
        workload="groups", shows=("damaged", "the start fails", "changed", "invented", "damage")),
    "missed-pool-file": Mutant(
        "a checkpoint does not sync one of the pool files that it dirtied (APAR IC86846)",
        lambda: [mock.patch.object(File, "sync", _all_but_one)],
        workload="checkpoints", shows=("lost", "changed", "damage", "resurrected")),
    "delta-without-image": Mutant(
        "a pool record is overwritten in place with no copy of it anywhere else",
        lambda: [mock.patch.object(DoubleWriteFile, "stage", _no_double_write)],
        workload="checkpoints", shows=("lost", "damage", "the start fails")),
    "old-generation": Mutant(
        "removed journal files come back, and replay takes whatever files there are",
        lambda: [mock.patch.object(poolctrl, "load", _no_position),
                 mock.patch.object(durable, "unlink", _unlink_only)],
        workload="generations", shows=("resurrected",),
        settings=replace(SETTINGS, archive="delete")),
    "records-unsynced": Mutant(
        "poolctrl says that a checkpoint counts before its records are on the disk",
        lambda: [mock.patch.object(PoolFiles, "write_images", _records_unsynced)],
        workload="checkpoints", shows=("lost", "changed", "damage", "resurrected")),
    "half-a-batch": Mutant(
        "of a batch that was being written the whole messages count",
        lambda: [mock.patch.object(Window, "joined_to", _units_only)],
        workload="batches", shows=("halved",)),
    "told-done": Mutant(
        "a torn request is answered as carried out",
        lambda: [mock.patch.object(Window, "joined_to", _units_only)], shows=("told",)),
    "half-a-unit": Mutant(
        "of a unit of work that was being written the whole messages count",
        lambda: [mock.patch.object(Window, "joined_to", _nothing_joined)],
        workload="units", shows=("halved", "told", "lost", "changed")),
    "backout-not-redone": Mutant(
        "redo passes over the frame of a message that was backed out",
        lambda: [mock.patch("omq.core.redo.changes.BY_NUMBER", _without(FrameType.BACKOUT))],
        workload="units", shows=("changed", "lost")),
    "doubt-comes-back": Mutant(
        "redo takes what a unit in doubt took for free",
        lambda: [mock.patch("omq.core.redo.changes.BY_NUMBER", _without(FrameType.PREPARE)),
                 mock.patch("omq.core.redo.redo.BY_NUMBER", _without(FrameType.PREPARE))],
        workload="doubts", shows=("changed", "lost")),
    "commit-not-redone": Mutant(
        "redo passes over the frame that makes a put of a unit in doubt ready",
        lambda: [mock.patch("omq.core.redo.changes.BY_NUMBER", _without(FrameType.COMMIT)),
                 mock.patch("omq.core.redo.redo.BY_NUMBER", _without(FrameType.COMMIT))],
        workload="doubts", shows=("changed", "lost")),
    "doubt-is-seen": Mutant(
        "redo makes a put of a unit in doubt ready at once",
        lambda: [mock.patch("omq.core.redo.changes._PREPARED", 0),
                 mock.patch("omq.core.redo.births._PREPARED", 0)],
        workload="doubts", shows=("changed",)),
    "half-a-doubt": Mutant(
        "of a unit that was being prepared the whole messages count",
        lambda: [mock.patch.object(Window, "joined_to", _nothing_joined)],
        workload="doubts", shows=("halved", "told", "lost", "changed", "the start fails")),
    "first-record-stays": Mutant(
        "a message on many queues that ends leaves the record that it had before",
        lambda: [mock.patch.object(Window, "select", _moves_are_nothing)],
        workload="wide", shows=("resurrected",), seeds=range(2, 6)),
    "late-nowhere": Mutant(
        "a message that is late is off its queue after a restart, and nowhere else",
        lambda: [mock.patch("omq.core.redo.changes._arrivals", _nowhere)],
        workload="times", shows=("changed", "lost")),
    "time-again": Mutant(
        "a restart gives a message its time back that had none any more",
        lambda: [mock.patch("omq.core.redo.changes._TIMELESS", 0)],
        workload="times", shows=("changed",)),
    "removed-queue-again": Mutant(
        "a queue that was removed at run time is there again after a restart",
        lambda: [mock.patch("omq.core.redo.redo.note_queue", _nothing_forgotten)],
        workload="queues", shows=("queues",)),
    "definitions-not-in-poolctrl": Mutant(
        "a checkpoint forgets the queues that were made at run time",
        lambda: [mock.patch.object(PoolControl, "encode", _no_definitions)],
        workload="queues", shows=("queues",)),
    "first-definition-stays": Mutant(
        "redo keeps what a queue was first, not what it was changed to",
        lambda: [mock.patch("omq.core.redo.redo.note_queue", _first_stays)],
        workload="queues", shows=("queues",)),
    "group-forgotten": Mutant(
        "redo forgets the group of a message",
        lambda: [mock.patch.object(births, "compact_records", _no_groups)],
        workload="in_groups", shows=("changed",)),
    "id-forgotten": Mutant(
        "redo forgets that a message remembers an id",
        lambda: [mock.patch.object(births, "_MEMORY", 0)],
        workload="keys", shows=("changed",)),
    "id-not-loaded": Mutant(
        "a start does not ask the pool which ids a queue has had",
        lambda: [mock.patch.object(Duplicates, "load", lambda self, core, found: None)],
        workload="keys", shows=("changed",)),
    "barrier-forgotten": Mutant(
        "redo forgets that a message is a barrier",
        lambda: [mock.patch.object(births, "_BARRIER", 0)],
        workload="barriers", shows=("changed",)),
    "barrier-not-loaded": Mutant(
        "a start does not find out what barriers wait for",
        lambda: [mock.patch.object(Barriers, "load", lambda self, core, entries, read: None)],
        workload="barriers", shows=("changed",)),
    "barrier-due-at-start": Mutant(
        "a start takes a barrier whose time is over for ready",
        lambda: [mock.patch.object(rebuild, "BARRIER", 0)],
        workload="barriers", shows=("changed",)),
    "barrier-by-itself": Mutant(
        "that a member will never be done is in another block than its end",
        lambda: [mock.patch.object(barrier_ends, "_end", _end_and_flush)],
        workload="barriers", shows=("halved",)),
    "barrier-behind": Mutant(
        "a member is deleted before its barriers are ended, which the next group does",
        lambda: [mock.patch.object(operate, "failing", _failing_later),
                 mock.patch.object(engine, "fire", _fire_alone)],
        workload="barriers", shows=("halved", "changed")),
    "retired-too-early": Mutant(
        "a journal file goes as soon as its bodies have ended, before a checkpoint says so",
        lambda: [mock.patch.object(BodyKeeper, "_may_go", _empty_is_enough)],
        workload="behind", shows=("the pool names a body",),
        settings=replace(SETTINGS, archive="delete")),
    "spare-names-unsynced": Mutant(
        "a container that was made ahead is used before its name is on the disk",
        lambda: [mock.patch.object(SpareContainers, "_make", _names_unsynced)],
        workload="large", shows=("lost", "container", "damage", "changed", "body")),
    "recycled-name-unsynced": Mutant(
        "a container that is used again is written over before its new name is on the disk",
        lambda: [mock.patch.object(Recycler, "end", _offered_unsynced)],
        workload="recycled", shows=("lost", "container", "damage", "changed", "body")),
    "recycled-too-early": Mutant(
        "a container is used again before the end of its message is durable",
        lambda: [mock.patch.object(life.Life, "settle", _ends_at_once)],
        workload="recycled", shows=("lost", "container", "damage", "changed", "body")),
    "offer-believed": Mutant(
        "a container is taken for a spare because of an offer that a power cut brought back",
        lambda: [mock.patch.object(recycled_containers, "_has_label", _believed)],
        workload="recycled", shows=("lost", "container", "damage", "changed", "body",
                                    "second life"), second=1.0),
    "store-gone-too-early": Mutant(
        "a store file goes as soon as its bodies have ended, before a checkpoint says so",
        lambda: [mock.patch.object(BodyKeeper, "_may_go", _empty_store_is_enough)],
        workload="behind_store", shows=("the pool names a body",)),
    "own-file-retired": Mutant(
        "the journal file in which redo goes on is retired when it holds no body",
        lambda: [mock.patch.object(BodyKeeper, "_wanted_from", _one_more)],
        workload="emptied", shows=("the pool names a body", "lost", "the start fails"),
        settings=replace(SETTINGS, archive="delete")),
    "moved-before-write": Mutant(
        "bodies have moved to the store before they are written there",
        lambda: [mock.patch.object(StoreWriter, "sync", lambda self: None)],
        workload="rotation", shows=("the pool names a body",)),
    "told-before-sync": Mutant(
        "the manager is told the new places of bodies before the store is synced",
        lambda: [mock.patch.object(StoreWriter, "sync", _sync_of_nothing)],
        workload="rotation", shows=("damaged: the body",)),
    "older-slot-counts": Mutant(
        "of two whole slots of poolctrl the older one counts",
        lambda: [mock.patch.object(poolctrl, "newest", _oldest)],
        workload="generations", shows=("request", "the start fails", "lost", "resurrected"),
        settings=replace(SETTINGS, archive="delete")),
    "checkpoint-says-more": Mutant(
        "poolctrl covers frames that the pool does not hold",
        lambda: [mock.patch.object(poolctrl, "store", _says_more)],
        workload="checkpoints", shows=("lost", "request", "resurrected")),
    "relocate-not-journaled": Mutant(
        "the new places of bodies are in the index alone, and their old files go",
        lambda: [mock.patch.object(life, "relocate", _untold)],
        workload="rotation", shows=("the pool names a body", "lost", "damaged"),
        settings=replace(SETTINGS, archive="delete")),
    "always-one-slot": Mutant(
        "poolctrl is written over the slot that counts, every time",
        lambda: [mock.patch.object(poolctrl, "store", _even_generations)],
        workload="generations", shows=("request", "the start fails", "lost", "resurrected")),
    "same-slot-again": Mutant(
        "poolctrl is written over the slot that counts, but for every eighth time",
        lambda: [mock.patch.object(poolctrl, "store", _same_slot_again)],
        workload="generations", shows=("request", "the start fails", "lost", "resurrected")),
}
