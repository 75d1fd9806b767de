"""Redo: journal frames applied to pool records. The one code that a restart and pool.writer share.

State, since the last checkpoint: `dirty` (QPoolId -> record, None = gone), `images` (records of
messages of which little has changed, in arrays), `clears` (slots that the pool must not
hold any more, unless something new goes there); the queues and their definitions; the last request
of each client.
Memory is bounded by what happened between two checkpoints, not by the number of messages.

Invariants: 1. a frame at or below the record's own LSN changes nothing, so redo is idempotent and
may start too early (a checkpoint that was cut is simply repeated); 2. a frame about a message that
is neither in the pool nor born is about one that is gone, and is ignored; 3. messages born and
ended within one call are dropped by numpy before a single frame is looked at; 4. non-persistent
frames (history only) are ignored.

Until the first checkpoint of this object (`settled`) the pool may hold more than the last
checkpoint says, left by one that was cut. So the slots of messages that were born and ended are
looked at: a record left there would bring an ended message back.

Damage: a birth whose payload fails its CRC condemns its message, and with it the whole of its unit
of work, never the block; a message that such a unit took from its queue stays there. A birth that
the pool already holds does not need its payload. Above what was durable nobody knows whether it was
torn by a cut: there it condemns all of its request, which then was never carried out, neither in
part (all of a batch or none) nor in the answer that its client gets when it asks again.

What redo does to many messages at once: ends, new states of entries, and bodies that moved.

Only for messages with which nothing else happens in the window (Window.lone), so that the order of
frames does not matter; whatever does not fit is left to redo, frame by frame. Records that are not
in memory are read and checked in bulk. The outcome is that of one frame after the other, which
tests compare.

What frames say of queues: their names by number, and what those are that were made at run time.

Each frame says the whole (a name, a definition, that it is gone), so doing it a second time, or
beginning too early, ends in the same. Errors: Unusable; nothing has changed then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from omq.base.arrays import Rows, picked
from omq.core.redo import births as bulk
from omq.core.redo.changes import Frame, Unusable, change, checked, entry_after, new_part
from omq.core.redo.held_records import Edit, HeldRecords, change_rows
from omq.core.redo.last_requests import update_answers
from omq.core.redo.pool_batches import batches
from omq.core.redo.source import RecordSource
from omq.core.redo.window import MAKES, MOVES_BODIES, REPLACES, Births, JournalBlock, Window
from omq.format.definition import name_in
from omq.format.double_write import Image
from omq.format.findings import Finding, Kind
from omq.format.frame_rules import BY_NUMBER, About, Entry, mask
from omq.format.journal import FRAME, RELOCATION, At, FrameFlag, FrameType
from omq.format.message import DESCRIPTOR, PART
from omq.format.pool import NO_RECORD, Message
from omq.format.poolctrl import Answered
from omq.storage.journal import file_name


def note_queue(queues: dict[int, str], definitions: dict[str, str], frame: Frame, raw: bytes
               ) -> None:
    """A frame about a queue, with its payload."""
    rule, text = BY_NUMBER[frame[At.TYPE]], checked(frame, raw)
    if not text or not text.isascii() or b"\0" in text:
        raise Unusable("not the name of a queue")
    told = text.decode("ascii")
    if rule.about is About.QUEUE:
        queues[frame[At.QUEUE]] = told
    elif rule.forgets:
        definitions.pop(told, None)
        queues.pop(frame[At.QUEUE], None)  # 0: it has no number, or keeps it
    elif name := name_in(told):
        definitions[name] = told
    else:
        raise Unusable("not the definition of a queue")


_IN_BULK = mask(lambda rule: rule.entry is not None) | MOVES_BODIES
_COUNT_MAX = 255  # attempts and deferrals of a queue part


def end_many(redo: Redo, window: Window, lone: Rows) -> Rows:
    """Messages with one record that only end in this call, but those that frames have changed one
    by one. The rows of their ends."""
    frames = window.frames
    rows = np.flatnonzero(lone & (frames["flags"] & FrameFlag.LAST_PART != 0)
                          & ~MAKES[frames["type"]] & (frames["parts"] <= 1))
    ended = window.picked(rows)
    born, loaded = redo.images.drop(ended["qpool"])
    in_pool = ~born & ~loaded
    in_pool[in_pool] = _not_in(redo.dirty, ended["qpool"][in_pool])
    done = born | loaded | in_pool
    ended = picked(ended, loaded | in_pool if redo.settled else done)
    redo.dirty.update(dict.fromkeys(ended["qpool"].tolist()))
    redo.clears.update((ended["file"].astype(np.int64) << 32 | ended["record"]).tolist())
    return np.asarray(rows[done])


def change_many(redo: Redo, window: Window, lone: Rows) -> list[Rows]:
    """Messages of which only one entry gets another state, or the body another place. The rows of
    the frames that did it, in pieces."""
    kinds = window.frames["type"]
    lone = lone & _IN_BULK[kinds]
    done = []
    for kind in np.flatnonzero(np.bincount(kinds[lone]) >= redo.many).tolist():
        rows = np.flatnonzero(lone & (kinds == kind))
        frames, entry = window.picked(rows), BY_NUMBER[kind].entry
        edit = _new_place(frames) if entry is None else _new_state(frames, entry)
        done.append(rows[_change(redo, frames, edit)])
    return done


def _new_state(frames: Rows, entry: Entry) -> Edit:
    attempts, deferrals, until = entry_after(entry, [frames[name] for name in FRAME.names])
    until = np.broadcast_to(until, len(frames)).astype("<u4")  # as format.pool.encode_message

    def edit(held: Rows, at: Rows, which: Rows) -> None:
        mine = held["parts_list"]["queue"][at, 0] == frames["queue"][which]
        at, which = at[mine], which[mine]
        part = held["parts_list"][:, 0]
        part["grade"][at] = part["grade"][at] & 15 | int(entry.state) << 4
        part["until"][at] = until[which]
        if attempts is not None:
            part["attempts"][at] = np.minimum(attempts[which], _COUNT_MAX)
        if entry.defers:
            counted = part["retries"][at].astype("<u2") + deferrals[which]
            part["retries"][at] = np.minimum(counted, _COUNT_MAX)

    return edit


def _new_place(frames: Rows) -> Edit:
    def edit(held: Rows, at: Rows, which: Rows) -> None:
        held["location"][at] = frames["argument"][which]
        held["offset"][at] = frames["offset"][which]

    return edit


def _change(redo: Redo, frames: Rows, edit: Edit) -> Rows:
    """Change the records of these messages in arrays; mask of those that could be."""
    # Copies: a search in a column of frames would fetch a frame for each number.
    qpools, lsns = frames["qpool"].copy(), frames["lsn"].copy()
    done = redo.images.change(qpools, lsns, edit)
    rest = np.flatnonzero(~done)
    rest = rest[_not_in(redo.dirty, qpools[rest])]
    if len(rest) >= redo.many:
        files, records = frames["file"], frames["record"]
        for file in np.flatnonzero(np.bincount(files[rest])).tolist():
            mine = rest[files[rest] == file]
            mine = mine[np.argsort(records[mine], kind="stable")]
            rows, good = redo.pool.read_rows(file, records[mine])
            own = rows["qpool"] == qpools[mine]
            done[mine] = good & ~own  # of a message that is gone: nothing to do
            if not good.all():
                done[mine] |= _free(rows)
            # A row in memory has no room for a note.
            good &= own & (rows["parts"] == 1) & (rows["next"] == NO_RECORD) & (rows["note"] == 0)
            loaded, which = bulk.compacted(picked(rows, good)), mine[good]
            change_rows(loaded, np.arange(len(loaded)), which, lsns, edit)
            redo.images.load(loaded)
            done[which] = True
    return done


def _free(rows: Rows) -> Rows:
    """Mask of the slots that hold nothing."""
    words = np.asarray(rows).view("<u8").reshape(len(rows), -1)
    return np.asarray(~words.any(axis=1))


def _not_in(known: dict[int, Message | None], qpools: Rows) -> Rows:
    return np.array([qpool not in known for qpool in qpools.tolist()], dtype=bool)


ALL = (1 << 63) - 1  # everything was acknowledged
_LAST_PART = int(FrameFlag.LAST_PART)
MANY = 8  # messages from which on the bulk forms are cheaper
_PROGRESS_FRAMES: Final = 1000  # far below a second
Slot = tuple[int, int]  # pool file, record


@dataclass(slots=True)
class Redo:
    """See the module."""

    pool: RecordSource
    queues: dict[int, str] = field(default_factory=dict)
    definitions: dict[str, str] = field(default_factory=dict)  # of queues, by name (format)
    clients: dict[int, Answered] = field(default_factory=dict)
    lsn: int = 0
    next_qpool: int = 1
    dirty: dict[int, Message | None] = field(default_factory=dict)
    images: HeldRecords = field(default_factory=HeldRecords)
    clears: set[int] = field(default_factory=set)  # file << 32 | record: may be very many
    findings: list[Finding] = field(default_factory=list)
    frames_seen: int = 0
    skipped_short_lived: int = 0
    clean_stop: bool = False
    settled: bool = False
    homes: dict[int, list[int]] = field(default_factory=dict)  # records that the pool holds it in
    many: int = MANY
    progress: Callable[[], None] = lambda: None  # called now and then: a window may take a minute
    void: set[int] = field(default_factory=set)  # LSNs condemned in the last call
    _reported: set[Slot] = field(default_factory=set)

    def apply(self, blocks: Iterable[JournalBlock], durable: int = ALL) -> None:
        """Frames of whole blocks, in order; those at or below `lsn` are skipped. `durable`: what
        lies above it was perhaps acknowledged to nobody."""
        self.void.clear()
        window = Window.of(blocks, self.lsn)
        if window is None:
            return
        frames = window.frames
        self.frames_seen += len(frames)
        self.lsn = int(frames["lsn"][-1])
        self.next_qpool = max(self.next_qpool, int(frames["qpool"].max()) + 1)
        self.clean_stop = BY_NUMBER[frames["type"][-1]].stops
        window, keep, born = self._believed(self._spread(window), durable)
        update_answers(self.clients, window.frames)
        self._take_births(window, born)
        keep[born.rows] = False
        lone = window.lone(keep)
        for rows in (end_many(self, window, lone), *change_many(self, window, lone)):
            keep[rows] = False
        blocks_of = window.origin[keep].tolist()
        for count, (frame, block) in enumerate(
                zip(window.picked(keep).tolist(), blocks_of, strict=True)):
            if not count % _PROGRESS_FRAMES:
                self.progress()
            self._apply_one(frame, window.blocks[block])

    def _spread(self, window: Window) -> Window:
        """Bodies that moved, one by one."""
        moves = {}
        for row in np.flatnonzero(MOVES_BODIES[window.frames["type"]]).tolist():
            frame, raw = window.frame(row)
            try:
                moves[row] = self.relocations(frame, raw)
            except Unusable as error:
                moves[row] = RELOCATION.array(b"", 0)
                self._damaged(frame, window.blocks[window.origin[row]], error.reason)
        return window.spread(moves) if moves else window

    def relocations(self, frame: Frame, raw: bytes) -> Rows:
        """The rows (RELOCATION) of a frame, as far as they count; Unusable."""
        return RELOCATION.array(checked(frame, raw), len(raw) // RELOCATION.size)

    def _believed(self, window: Window, durable: int) -> tuple[Window, Rows, Births]:
        """The window without the units of work that are condemned, what of it to look at, and its
        births. Removing a unit may bring a message back, so everything is judged again."""
        noted: set[int] = set()
        while True:
            keep, brief = window.select()
            born = Births.of(window, keep)
            bad = [row for row in born.rows[~born.good].tolist()
                   if not self._in_pool(window.frames[row].item())]
            bad += window.unusable_moves(keep)
            for row in bad:
                self._note_damage(window, row, noted)
            gone = window.joined_to(bad, durable)
            if not gone.any():
                break
            self.void.update(window.frames["lsn"][gone].tolist())
            window = window.only(~gone)
        self.skipped_short_lived += len(brief)
        if len(brief) and not self.settled:
            self._clear_left_overs(window, brief)
        return window, keep, born

    def _in_pool(self, frame: Frame) -> bool:
        return self.find(frame[At.QPOOL], frame[At.FILE], frame[At.RECORD]) is not None

    def _note_damage(self, window: Window, row: int, noted: set[int]) -> None:
        frame, block = window.frames[row].item(), window.blocks[window.origin[row]]
        if frame[At.LSN] not in noted:
            noted.add(frame[At.LSN])
            self._damaged(frame, block, f"payload of message {frame[At.QPOOL]} is not valid")

    def _damaged(self, frame: Frame, block: JournalBlock, reason: str) -> None:
        reason = f"{FrameType(frame[At.TYPE]).name}: {reason}"
        self.findings.append(Finding(
            Kind.CORRUPT, reason, file_name(block.number), block.payload_at + frame[At.OFFSET],
            frame[At.LENGTH], lsn=frame[At.LSN]))

    def _clear_left_overs(self, window: Window, brief: Rows) -> None:
        """Slots in which a checkpoint that was cut left a message that has ended since."""
        ended = set(brief.tolist())
        for file, record in window.slots_of(brief):
            found = self._read(file, record)
            if isinstance(found, Finding):
                self._clear(file, [record])
            elif found is not None and found.qpool in ended:
                self.dirty[found.qpool] = None
                self._clear(file, [record, *found.more])

    def _take_births(self, window: Window, born: Births) -> None:
        """Births that are whole: whatever else happens to their messages comes after them."""
        good = np.flatnonzero(born.good)
        for first in range(0, len(good), bulk.CHUNK):
            part = good[first : first + bulk.CHUNK]
            rows = born.rows[part]
            records = bulk.compact_records(window, rows, born.heads[part])
            left = window.frames["parts"][rows] != 0
            if np.count_nonzero(~left) >= self.many:
                left = ~self.images.take(records, ~left)
            else:
                left[:] = True
            for i in np.flatnonzero(left).tolist():
                message = bulk.message(bulk.image(records[i]))
                self._put_on(message, window, int(rows[i]), int(born.heads["parts"][part[i]]))
                self.dirty[message.qpool] = message

    @staticmethod
    def _put_on(message: Message, window: Window, row: int, count: int) -> None:
        """The queues of a birth, as its payload says. One queue is in the frame, where the manager
        has checked it."""
        frame, block = window.frames[row].item(), window.blocks[window.origin[row]]
        if frame[At.PARTS]:
            raw = block.payload(frame[At.OFFSET] + DESCRIPTOR.size, count * PART.size)
            message.parts = [new_part(queue, priority, until, frame)
                             for queue, priority, _, until in PART.iter_unpack(raw)]

    # one frame

    def _apply_one(self, frame: Frame, block: JournalBlock) -> None:
        rule = BY_NUMBER[frame[At.TYPE]]
        raw = block.payload(frame[At.OFFSET], frame[At.LENGTH])
        try:
            if frame[At.QPOOL] and frame[At.FLAGS] & _LAST_PART:
                self._gone(frame)
            elif rule.about in (About.QUEUE, About.DEFINITION):
                note_queue(self.queues, self.definitions, frame, raw)
            elif rule.changes or rule.about is About.BODIES:
                self._change(frame, raw)
        except Unusable as error:
            self._damaged(frame, block, error.reason)

    def _change(self, frame: Frame, raw: bytes) -> None:
        message = self.find(frame[At.QPOOL], frame[At.FILE], frame[At.RECORD], frame)
        if message is None or message.lsn >= frame[At.LSN]:
            return
        before = message.record
        change(message, frame, raw)
        message.lsn = frame[At.LSN]
        if message.record != before and not self.settled:
            self._clear(message.file, [before, *message.more])

    def _gone(self, frame: Frame) -> None:
        qpool, first = frame[At.QPOOL], frame[At.RECORD]
        known = self._taken_out(qpool) or self.dirty.pop(qpool, None)
        if known is not None and self.settled and qpool not in self.homes:
            return  # born since the checkpoint: the pool never held it
        self.dirty[qpool] = None
        self._clear(frame[At.FILE], range(first, first + max(1, frame[At.PARTS])))

    # records

    def find(self, qpool: int, file: int, record: int, frame: Frame | None = None
             ) -> Message | None:
        """The record of a message: changed already, or from the pool; None = gone."""
        if qpool in self.dirty:
            return self.dirty[qpool]
        image = self._taken_out(qpool)
        if image is not None:
            self.dirty[qpool] = message = bulk.message(image)
            return message
        # A move may give a message another record: it lies in the old one, or already in the new
        # one when a checkpoint was cut. "Not found" is not remembered for the same reason.
        places = [record]
        if frame is not None and REPLACES[frame[At.TYPE]] and frame[At.REASON] != record:
            places.insert(0, frame[At.REASON])
        for place in places:
            found = self._read(file, place)
            if isinstance(found, Message) and found.qpool == qpool:
                self.dirty[qpool] = found
                self.homes[qpool] = found_at = [found.record, *found.more]
                self._clear(file, found_at)
                return found
        return None

    def _taken_out(self, qpool: int) -> Image | None:
        """The record of a message, no more in arrays."""
        found = self.images.pop(qpool)
        if found is None:
            return None
        image, in_pool = found
        if in_pool:
            file, record, _ = image
            self.homes[qpool] = [record]
            self._clear(file, [record])
        return image

    def _read(self, file: int, record: int) -> Message | Finding | None:
        found = self.pool.read_record(file, record)
        if isinstance(found, Finding) and (file, record) not in self._reported:
            self._reported.add((file, record))
            self.findings.append(found)
        return found

    def _clear(self, file: int, records: Iterable[int]) -> None:
        self.clears.update(file << 32 | record for record in records)

    def changes(self) -> dict[Slot, bytes | None]:
        """All that a checkpoint must write, in the order of core.redo.pool_batches: (pool file,
        record) -> 512 bytes, None = clear the slot."""
        return {slot: image for batch in batches(self) for slot, image in batch.changes().items()}

    def checkpointed(self) -> None:
        """The changes are durable: forget them."""
        self.dirty.clear()
        self.images.clear()
        self.clears.clear()
        self.homes.clear()
        self._reported.clear()
        self.settled = True
