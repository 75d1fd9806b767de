"""What pool.writer does with bodies after the checkpoint: relocate, retire, compact.

Journal files more than `journal_files_kept` after the checkpoint are to go. Bodies that are still
needed are copied to the store, synced, and the manager is asked to take the new places (RELOCATE).
A store file of which little is live is emptied the same way.

A file is removed when it was seen empty in an earlier round and is still empty, and the checkpoint
on the disk covers the LSN that was durable when it was first seen empty. Then neither the index,
nor the pool, nor any frame that a recovery would redo names a body in it, and none ever will again:
bodies are only put into the newest journal file and into the store file that is open here.

Where the disk is short (storage.disk_usage) no journal file is kept for reading, and history goes
(`History`): a put is refused only when neither helps.

Journal files go oldest first and never leave a gap: with both slots of poolctrl lost, everything
that is kept is redone over the pool, and redo must see every frame after the first that it sees.

While the pool has a record that the manager could not read at its start, or a file that is not what
was written into it (`differing`), nothing that may be needed is deleted: retired journal files go
to archive/ whatever the configuration says, store files stay. omqrecover makes the record again, or
clears it; the next start ends this.

A body that fails its CRC is copied to quarantine and stays where it is. A file in which nothing
else is live goes to archive/ even if retired files are deleted: bodies are found there, too. A
request whose answer never came may still be carried out: the store files that it names are not
removed while this manager runs.

In the middle of a crash: copies that no RELOCATE names are dead bytes of a store file; a file that
was to go is found again in the next round. Errors: DiskError; ManagerUnavailable and TimedOut from
the request; SpoolFull ends the round.

"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from omq.base import clock, event_log, events
from omq.base.arrays import Vector
from omq.base.checksum import crc32c, crc32c_each
from omq.base.errors import BodyUnavailable, OmqError, SpoolFull, SpoolLocked
from omq.base.event_log import EventLog
from omq.base.limits import MIB
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.format.findings import Finding, Kind
from omq.format.index import Counter
from omq.format.journal import RELOCATION
from omq.format.location import LocationKind, location
from omq.format.store import HEADER_BYTES
from omq.format.wire import MOVED
from omq.services.pool.live_index import LiveIndex, Look
from omq.storage import disk_reserve, disk_usage, durable, history, standby_holds
from omq.storage.disk_usage import Free
from omq.storage.journal import file_name as journal_name
from omq.storage.journal_retire import retirable, retire
from omq.storage.payloads import PayloadReader, payload_paths
from omq.storage.quarantine import save
from omq.storage.store import StoreWriter, file_name, remove_store_file, store_numbers

NAME: Final = "pool.writer"
BATCH_BYTES: Final = 4 * MIB
"""Payload bytes copied for one request: bounds memory, and how long the loop is away."""
ROWS_MAX: Final = 8192
"""Bodies of one request: bounds the time that the manager spends on it."""


class Relocator(Protocol):
    """The queue manager, as far as bodies are concerned (omq.ipc.client.connection.Connection)."""

    @property
    def registrations(self) -> int: ...
    def relocate(self, rows: bytes) -> int: ...


@dataclass(slots=True)
class BodyKeeper:
    """The rounds of one manager's epoch; see the module."""

    paths: SpoolPaths
    settings: Settings
    uuid: bytes
    index: LiveIndex
    log: EventLog
    pause: Callable[[], None]  # a short wait, which also keeps the watchdog quiet
    empty: dict[int, int] = field(default_factory=dict)  # word -> LSN at which it was seen empty
    doubtful: set[int] = field(default_factory=set)  # store words of requests without an answer
    damaged: set[int] = field(default_factory=set)  # QPoolIds that cannot be moved
    differing: set[str] = field(default_factory=set)  # pool files that are not what was written
    _before: dict[int, int] = field(default_factory=dict)  # `empty` of the round before
    short: bool = False  # the disk is: no journal file is kept for reading
    gained: int = 0  # what the last round has removed, and asked to be moved
    _store: StoreWriter | None = None
    _reader: PayloadReader | None = None
    _whole: WholeBodies = field(init=False)
    _history: HistoryKeeper = field(init=False)
    _seen: tuple[int, frozenset[int]] | None = None  # an earlier look: its LSN, files with a body

    def __post_init__(self) -> None:
        self._whole = WholeBodies(self.paths, self.log)
        self._history = HistoryKeeper(self.paths, self.settings, self.log)

    @property
    def pending(self) -> bool:
        """Is there a file that waits for another round?"""
        return bool(self.empty)

    def round(self, checkpoint_lsn: int, journal: int, manager: Callable[[], Relocator]) -> None:
        """One round after the checkpoint at `checkpoint_lsn`, which goes on in file `journal`."""
        self.gained = 0
        if not self.index.complete:
            return
        look = self.index.look(self.pause)
        if look is None:
            return
        free = disk_usage.free(self.paths, self.settings, self.index.counter(Counter.MESSAGES))
        self.short = free.short
        self._before, self.empty = self.empty, {}
        words = [*self._journal(look, checkpoint_lsn, journal), *self._stores(look, checkpoint_lsn)]
        self._let_history_go(look, checkpoint_lsn, free)
        budget = self.settings.checkpoint_journal_bytes_max
        self._reader = PayloadReader(self.paths)
        try:
            for word in words:
                if budget > 0:
                    spent = self._relocate(word, budget, manager)
                    budget -= spent
                    self.gained += spent
        except SpoolFull as error:
            self.log.event(events.FAILED, event_log.WARNING, at="relocation", reason=str(error))
        finally:
            self._reader.close()
            self._reader = None

    def _journal(self, look: Look, checkpoint_lsn: int, journal: int) -> Iterator[int]:
        """Retire what is empty; the words of the files that are not, oldest first."""
        blocked = False  # by an older file: what stays of the journal has no gaps
        for number in retirable(self.paths, self._wanted_from(journal)):
            word = location(LocationKind.JOURNAL, number)
            live = look.bodies.get(word, 0)
            lame = live > 0 and self._only_damaged(word)
            if live and not lame:
                blocked = True
                yield word
            elif not self._may_go(word, look, checkpoint_lsn):
                blocked = True
            elif blocked or not self._retire(number, journal, keep=lame or self._keeps):
                blocked = True
                self.empty[word] = self._before[word]

    def _wanted_from(self, journal: int) -> int:
        """The first file that stays: for reading, or for a standby that lacks it."""
        if self.short:
            return journal
        wanted = standby_holds.needed(self.paths, journal, self.settings.standby_files_kept)
        return min(journal - self.settings.journal_files_kept, wanted)

    @property
    def _keeps(self) -> bool:
        """Do retired files go to archive/?"""
        return self.settings.archive == "keep" or self._pool_damaged

    @property
    def _pool_damaged(self) -> bool:
        return bool(self.differing) or self.index.pool_damaged

    def _retire(self, number: int, journal: int, *, keep: bool) -> bool:
        """False: another round may. Asked again who needs it, while nobody can say so: a copy for a
        new standby, which names the oldest file that there is, has it then or never names it."""
        held = standby_holds.still(self.paths, NAME)
        if held is None:
            return False
        try:
            if number >= self._wanted_from(journal):
                return False
            gone = retire(self.paths, number, keep=keep)
        finally:
            held.close()
        if gone:
            self.gained += 1
            self.log.event(events.JOURNAL_RETIRED, file=journal_name(number), kept=keep)
        return True

    def _let_history_go(self, look: Look, checkpoint_lsn: int, free: Free) -> None:
        """What is in archive/ had no body when it retired, or damaged ones only. It goes when an
        earlier look, all of which the checkpoint covers, saw none in it, and this one does not."""
        live = frozenset(look.bodies)
        before = self._seen
        if before is None or before[0] <= checkpoint_lsn:
            self._seen = look.lsn, live
        if before is None or before[0] > checkpoint_lsn or self._pool_damaged:
            return
        named = before[1] | live
        self.gained += self._history.turn(
            free, lambda number: location(LocationKind.JOURNAL, number) not in named)

    def _only_damaged(self, word: int) -> bool:
        """Is every live body in this file one that was found damaged?"""
        return bool(self.damaged) and self.damaged.issuperset(
            self.index.bodies_in(word)["qpool"].tolist())

    def _stores(self, look: Look, checkpoint_lsn: int) -> Iterator[int]:
        """Remove what is empty; the words of the files of which too little is live."""
        self._close_if_empty(look)
        for number in store_numbers(self.paths):
            word = location(LocationKind.STORE, number)
            if self._store is not None and number == self._store.number:
                continue
            found = durable.status(self.paths.store / file_name(number))
            size = found.st_size if found is not None else 0
            live = look.bytes.get(word, 0)
            if live:
                if live * 100 < size * self.settings.store_compact_percent:
                    yield word
            elif (size > HEADER_BYTES and not self._pool_damaged
                  and self._may_go(word, look, checkpoint_lsn)):
                remove_store_file(self.paths, number)
                self.gained += 1
                self.log.event(events.STORE_COMPACTED, file=file_name(number), bytes=size)

    def _close_if_empty(self, look: Look) -> None:
        """The file being written holds nothing live any more: let it go like the others."""
        if self._store is not None and not look.bodies.get(
                location(LocationKind.STORE, self._store.number)):
            self._store.close()
            self._store = None

    def _may_go(self, word: int, look: Look, checkpoint_lsn: int) -> bool:
        """Seen empty before, and everything up to there is in the pool?"""
        if word in self.doubtful:
            return False
        since = self._before.get(word)
        if since is not None and since <= checkpoint_lsn:
            return True
        self.empty[word] = look.lsn if since is None else since
        return False

    # relocation

    def _relocate(self, word: int, budget: int, manager: Callable[[], Relocator]) -> int:
        """Copy live bodies of a file to the store, about `budget` bytes; how many. SpoolFull."""
        durable.step("store.compact", payload_paths(self.paths, word)[0])
        spent = 0
        for batch in self._batches(self.index.bodies_in(word)):
            # It ends in a file less, but not on the space of the checkpoint that lets it go.
            messages = self.index.counter(Counter.MESSAGES)
            leave = (disk_reserve.pool_bytes(self.settings)
                     + disk_reserve.debt_bytes(self.paths, self.settings, messages))
            disk_reserve.keep(self.paths.store, leave, int(batch["length"].sum()))
            rows = self._copy(word, batch)
            if len(rows):
                self._ask(rows, manager)
            spent += int(batch["length"].sum())
            self.pause()
            if spent >= budget:
                break
        return spent

    def _batches(self, bodies: Vector) -> Iterator[Vector]:
        """Bodies in pieces that fit one request, one block, and bounded memory."""
        if self.damaged:
            bodies = bodies[~np.isin(bodies["qpool"], list(self.damaged))]
        most = min(ROWS_MAX, self.settings.channel_bytes // MOVED.size,
                   self.settings.block_bytes_max // (2 * RELOCATION.size))
        ends = np.cumsum(bodies["length"])
        at, before = 0, 0
        size = min(BATCH_BYTES, disk_reserve.pool_bytes(self.settings) or BATCH_BYTES)
        while at < len(bodies):
            stop = int(np.searchsorted(ends, before + size, side="right"))
            stop = min(max(stop, at + 1), at + most)
            yield bodies[at:stop]
            at, before = stop, int(ends[stop - 1])

    def _copy(self, word: int, batch: Vector) -> Vector:
        """Payloads into the store, synced; the rows of the request."""
        if self._store is None:
            self._store = StoreWriter(self.paths, self.settings, self.uuid)
        assert self._reader is not None
        payloads = self._whole.read(self._reader, word, batch)
        self.damaged.update(qpool for qpool, payload
                            in zip(batch["qpool"].tolist(), payloads, strict=True)
                            if payload is None)
        whole = np.array([payload is not None for payload in payloads], dtype=bool)
        moved = batch[whole]
        rows = np.zeros(len(moved), dtype=MOVED.dtype)
        for name in ("qpool", "record", "file", "slot"):
            rows[name] = moved[name]
        numbers, offsets = self._store.append_many(
            moved["qpool"], [payload for payload in payloads if payload is not None], moved["crc"])
        rows["location"] = location(LocationKind.STORE, 0) | numbers
        rows["offset"] = offsets
        self._store.sync()
        return rows

    def _ask(self, rows: Vector, manager: Callable[[], Relocator]) -> None:
        asked = set(rows["location"].tolist()) - self.doubtful
        self.doubtful |= asked
        line = manager()
        began = line.registrations
        try:
            line.relocate(rows.tobytes())
        except SpoolFull:
            # An answer: refused before anything was changed (core.engine.relocation). The request
            # was sent once, for the registration is the same; sent again, an earlier copy may have
            # been taken. No other manager can have taken it, for none starts while we hold the pool
            # lock. So nobody names these copies; else each try would leave its own, until no disk
            # is left.
            if line.registrations == began:
                self.doubtful -= asked
                if self._store is not None:
                    self._store.take_back()
            raise
        self.doubtful -= asked

    def close(self) -> None:
        """Let go of the store file; the next start begins another one."""
        if self._store is not None:
            if durable.latched() is None:
                self._store.close()
            self._store = None


class HistoryKeeper:
    """History goes after pool.writer's checkpoints: by its bounds, and first of all where the disk
    is short (storage.history says what stays).

    The caller's `may_go` tells of bodies: a file of the archive has one only where all of its
    bodies are damaged, or while a record of the pool cannot be read. In the middle of a crash: what
    is left is the oldest, and goes the next time. DiskError."""

    def __init__(self, paths: SpoolPaths, settings: Settings, log: EventLog) -> None:
        self._paths, self._settings, self._log = paths, settings, log

    def turn(self, free: Free, may_go: Callable[[int], bool]) -> int:
        """Remove what is to go; how many bytes. Where omq-archive is at a file, the next turn."""
        removed = 0
        try:
            with history.changing(self._paths, NAME):
                bounds = history.Bounds.of(self._paths, self._settings, free.history_wanted)
                for going in history.plan(self._paths, bounds, clock.wall_ns(), may_go):
                    removed += history.remove(self._paths, going)
                    history.tell(self._log, going, short=bounds.short > 0)
        except SpoolLocked:
            pass
        return removed


@dataclass(frozen=True, slots=True)
class WholeBodies:
    """Bodies as their submitters sent them, out of a file that is to go. One that fails its CRC, or
    cannot be read, is an event, has a copy in quarantine, and stays where it is. DiskError
    (latched)."""

    paths: SpoolPaths
    log: EventLog

    def read(self, reader: PayloadReader, word: int, batch: Vector
             ) -> list[memoryview | bytes | None]:
        """Those of `batch` (rows of live_index.BODY, by offset); None for a damaged one."""
        out: list[memoryview | bytes | None] = []
        runs = reader.read_runs(word, batch["offset"].tolist(), batch["length"].tolist())
        for count, base, data in runs:
            run = batch[len(out) : len(out) + count]
            begins = (run["offset"] - base).tolist()
            ends = (run["offset"] - base + run["length"]).tolist()
            view = memoryview(data)
            crcs = crc32c_each(view, begins, ends)
            out += [view[begin:end] if crc == found and end <= len(view) else None
                    for begin, end, crc, found
                    in zip(begins, ends, run["crc"].tolist(), crcs, strict=True)]
        for i in (i for i, payload in enumerate(out) if payload is None):
            out[i] = self._alone(reader, word, batch[i].item())
        return out

    def _alone(self, reader: PayloadReader, word: int, body: tuple[int, ...]) -> bytes | None:
        """One that was not read well with its neighbours; None is reported."""
        qpool, offset, length, crc, *_ = body
        try:
            data = reader.read(word, offset, length, qpool)
        except BodyUnavailable as error:
            self._report(qpool, str(error))
            return None
        if crc32c(data) == crc:
            return data
        name = payload_paths(self.paths, word)[0].name
        finding = Finding(Kind.CORRUPT, f"payload of message {qpool} fails its CRC", name,
                          offset, length)
        try:
            save(self.paths, finding, data)
        except OmqError as error:
            self.log.event(events.FAILED, event_log.ERROR, at="quarantine", reason=str(error))
            durable.check_latch()
        self._report(qpool, str(finding))
        return None

    def _report(self, qpool: int, reason: str) -> None:
        self.log.event(events.BODY_DAMAGED, event_log.ERROR, qpool_id=qpool, reason=reason)
