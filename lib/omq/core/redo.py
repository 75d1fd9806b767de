"""Redo: journal frames applied to pool records. The one code that a restart and pool.writer share.

State, since the last checkpoint: `dirty` (QPoolId -> record, None = gone), `images` (records of
messages of which little has changed, in arrays), `clears` (slots that the pool must not
hold any more, unless something new goes there); the queues; the last request of each client.
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
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from omq.core import births as bulk
from omq.core.answers import update_answers
from omq.core.held_records import HeldRecords
from omq.core.pool_batches import batches
from omq.core.redo_bulk import end_many, give_many, relocate_many, unusable_moves
from omq.core.redo_changes import CHANGES, At, Frame, Unusable, checked, new_part
from omq.core.redo_source import RecordSource
from omq.core.redo_window import Births, Frames, JournalBlock, Window
from omq.format import message as message_format
from omq.format.double_write import Image
from omq.format.findings import Finding, Kind
from omq.format.journal import RELOCATION, FrameFlag, FrameType
from omq.format.location import LocationKind, location
from omq.format.pool import Message, Record, decode_record
from omq.format.poolctrl import Answered
from omq.storage.journal import file_name

ALL = (1 << 63) - 1  # everything was acknowledged
MANY = 8  # messages from which on the bulk forms are cheaper
Slot = tuple[int, int]  # pool file, record


@dataclass(slots=True)
class Redo:
    """See the module."""

    pool: RecordSource
    queues: dict[int, str] = field(default_factory=dict)
    clients: dict[int, Answered] = field(default_factory=dict)
    lsn: int = 0
    next_qpool: int = 1
    dirty: dict[int, Message | None] = field(default_factory=dict)
    images: HeldRecords = field(default_factory=HeldRecords)
    clears: set[Slot] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)
    frames_seen: int = 0
    skipped_short_lived: int = 0
    clean_stop: bool = False
    settled: bool = False
    homes: dict[int, list[int]] = field(default_factory=dict)  # records that the pool holds it in
    many: int = MANY
    void: set[int] = field(default_factory=set)  # LSNs condemned in the last call
    _reported: set[Slot] = field(default_factory=set)
    _moved: Frames = field(default_factory=lambda: np.zeros(0, dtype="<u8"))  # in the last call

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
        self.clean_stop = int(frames["type"][-1]) == FrameType.STOP
        window, keep, born = self._believed(window, durable)
        update_answers(self.clients, window.frames)
        lone = window.lone(keep)
        plain = born.plain(window, lone)
        if np.count_nonzero(plain) >= self.many:
            keep[born.rows[self.images.take(window, born, plain)]] = False
        keep[born.rows[~born.good]] = False
        ended = end_many(self, window, lone & keep)
        keep[ended] = False
        self._moved, moved = relocate_many(self, window, keep, window.frames["qpool"][ended])
        keep[give_many(self, window, lone & keep, moved)] = False
        blocks_of = window.origin[keep].tolist()
        for row, block in zip(window.frames[keep].tolist(), blocks_of, strict=True):
            self._apply_one(row, window.blocks[block])

    def _believed(self, window: Window, durable: int) -> tuple[Window, Frames, Births]:
        """The window without the units of work that are condemned, what of it to look at, and its
        births. Removing a unit may bring a message back, so everything is judged again."""
        noted: set[int] = set()
        while True:
            keep, brief = window.select()
            born = Births.of(window, keep)
            bad = [row for row in born.rows[~born.good].tolist()
                   if not self._in_pool(window.frames[row].item())]
            bad += unusable_moves(window, keep)
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
        frame = window.frames[row].item()
        if frame[At.LSN] in noted:
            return
        noted.add(frame[At.LSN])
        block = window.blocks[window.origin[row]]
        kind = FrameType(frame[At.TYPE]).name
        self._damaged(frame, block, f"payload of {kind} of message {frame[At.QPOOL]} is not valid")

    def _damaged(self, frame: Frame, block: JournalBlock, reason: str) -> None:
        self.findings.append(Finding(
            Kind.CORRUPT, reason, file_name(block.number), block.payload_at + frame[At.OFFSET],
            frame[At.LENGTH], lsn=frame[At.LSN]))

    def _clear_left_overs(self, window: Window, brief: Frames) -> None:
        """Slots in which a checkpoint that was cut left a message that has ended since."""
        ended = set(brief.tolist())
        for file, record in window.slots_of(brief):
            found = self._read(file, record)
            if isinstance(found, Finding):
                self.clears.add((file, record))
            elif found is not None and found.qpool in ended:
                self.dirty[found.qpool] = None
                self._clear(file, [record, *found.more])

    def _apply_one(self, frame: Frame, block: JournalBlock) -> None:
        kind = frame[At.TYPE]
        try:
            if kind == FrameType.PUT:
                self._put(frame, block)
            elif frame[At.QPOOL] and frame[At.FLAGS] & FrameFlag.LAST_PART:
                self._gone(frame)
            elif kind == FrameType.QUEUE:
                self._queue(frame, block)
            elif kind == FrameType.RELOCATE:
                self._relocate(frame, block)
            elif kind in CHANGES:
                self._change(frame, block)
        except Unusable as error:
            self._damaged(frame, block, f"{FrameType(kind).name}: {error.reason}")

    # one frame

    def _put(self, frame: Frame, block: JournalBlock) -> None:
        qpool = frame[At.QPOOL]
        payload = message_format.decode(block.payload(frame[At.OFFSET], frame[At.LENGTH]))
        assert not isinstance(payload, Finding), "births are checked before"
        d = payload.descriptor
        if frame[At.PARTS]:
            parts = [new_part(p.queue, p.priority, p.until, frame) for p in payload.parts]
        else:  # on one queue, which the manager has checked, whatever the payload says
            parts = [new_part(frame[At.QUEUE], frame[At.PRIORITY], 0, frame)]
        self.dirty[qpool] = Message(
            qpool, frame[At.FILE], frame[At.RECORD], frame[At.LSN], frame[At.TIME], d.message_id,
            d.correlation_id, bulk.record_flags(frame[At.FLAGS], frame[At.LEASE], d.message_id),
            location(LocationKind.JOURNAL, block.number), block.payload_at + frame[At.OFFSET],
            frame[At.LENGTH], frame[At.CRC], frame[At.SIZE], frame[At.ARGUMENT], frame[At.PID],
            frame[At.UID], d.reply_to, d.origin, message_format.id_hash(d.group_id),
            d.group_sequence, d.segment_offset, d.report, d.application[:4],
            int.from_bytes(d.trace_id[:8], "little"), parts)

    def _change(self, frame: Frame, block: JournalBlock) -> None:
        message = self.find(frame[At.QPOOL], frame[At.FILE], frame[At.RECORD], frame)
        if message is None or message.lsn >= frame[At.LSN]:
            return
        before = message.record
        raw = block.payload(frame[At.OFFSET], frame[At.LENGTH])
        CHANGES[frame[At.TYPE]](message, frame, raw)
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

    def _queue(self, frame: Frame, block: JournalBlock) -> None:
        name = checked(frame, block.payload(frame[At.OFFSET], frame[At.LENGTH]))
        if not name or not name.isascii() or b"\0" in name:
            raise Unusable("no name of a queue")
        self.queues[frame[At.QUEUE]] = name.decode("ascii")

    def relocations(self, frame: Frame, block: JournalBlock) -> Frames:
        """The rows (RELOCATION) of a frame, as far as they count; Unusable."""
        raw = checked(frame, block.payload(frame[At.OFFSET], frame[At.LENGTH]))
        return RELOCATION.array(raw, len(raw) // RELOCATION.size)

    def _relocate(self, frame: Frame, block: JournalBlock) -> None:
        """What relocate_many has left."""
        moves = self.relocations(frame, block)
        for row in moves[~np.isin(moves["qpool"], self._moved)].tolist():
            qpool, word, offset, record, file = row
            message = self.find(qpool, file, record)
            if message is not None and message.lsn < frame[At.LSN]:
                message.location, message.offset = word, offset
                message.lsn = frame[At.LSN]

    # records

    def find(self, qpool: int, file: int, record: int, frame: Frame | None = None
             ) -> Message | None:
        """The record of a message: changed already, or from the pool; None = gone."""
        if qpool in self.dirty:
            return self.dirty[qpool]
        image = self._taken_out(qpool)
        if image is not None:
            made = decode_record(image[2], 0, image[0], image[1])
            assert isinstance(made, Record)
            self.dirty[qpool] = made.message
            return made.message
        # A MOVE may give a message another record: it lies in the old one, or already in the new
        # one when a checkpoint was cut. "Not found" is not remembered for the same reason.
        places = [record]
        if frame is not None and frame[At.TYPE] == FrameType.MOVE and frame[At.REASON] != record:
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
        self.clears.update((file, record) for record in records)

    def changes(self) -> dict[Slot, bytes | None]:
        """All that a checkpoint must write, in the order of core.pool_batches: (pool file, record)
        -> 512 bytes, None = clear the slot."""
        return {slot: image for batch in batches(self) for slot, image in batch.changes().items()}

    def checkpointed(self) -> None:
        """The changes are durable: forget them."""
        self.dirty.clear()
        self.images.clear()
        self.clears.clear()
        self.homes.clear()
        self._reported.clear()
        self.settled = True
