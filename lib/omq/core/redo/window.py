"""The frames of one call of redo, and by numpy which of them are worth looking at one by one.

    of no interest   history of non-persistent messages; messages born and ended inside the window
                     (`brief`); of a message that ended, everything but its end and what gave it
                     another pool record

Payloads of births are gathered here too: one copy of the payload areas, then views and vectors.

Invariants: 1. frames keep their order; 2. nothing here changes state; 3. lengths and offsets in
frames are bounded before they are used.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from omq.base import limits
from omq.base.arrays import Rows, distinct, picked
from omq.base.checksum import crc32c_each
from omq.core.redo.changes import Unusable, checked, targets
from omq.format.frame_rules import About, mask
from omq.format.journal import FRAME, RELOCATION, At, FrameFlag
from omq.format.message import DESCRIPTOR, MAGIC, PART, VERSION

_MAGIC = np.frombuffer(MAGIC, dtype="V2")[0]
MAKES, REPLACES = mask(lambda rule: rule.makes), mask(lambda rule: rule.replaces)
MOVES_BODIES = mask(lambda rule: rule.about is About.BODIES)
_QUEUES = mask(lambda rule: rule.about in (About.QUEUE, About.DEFINITION))
_PREPARED = int(FrameFlag.PREPARED)
_MOVED = {"qpool": "qpool", "file": "file", "record": "record", "argument": "location",
          "offset": "offset"}  # fmt: skip


class JournalBlock(Protocol):
    """What storage.journal_reader yields: a block whose header and frame headers are right."""

    number: int  # journal file
    offset: int  # of the block in the file
    payload_at: int  # file offset of its first payload byte

    @property
    def frames(self) -> Rows: ...

    def payload(self, offset: int, length: int) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Window:
    """Frames in LSN order; `origin` is the block of each, as an index into `blocks`."""

    blocks: list[JournalBlock]
    frames: Rows
    origin: Rows

    @staticmethod
    def of(blocks: Iterable[JournalBlock], after_lsn: int) -> Window | None:
        """The frames of the blocks that are behind an LSN; None when there are none."""
        listed = list(blocks)
        if not listed:
            return None
        # As plain bytes: of structured arrays numpy compares all fields, for each array anew.
        frames = FRAME.joined([block.frames for block in listed])
        origin = np.repeat(np.arange(len(listed)), [len(block.frames) for block in listed])
        window = Window(listed, frames, origin)
        fresh = frames["lsn"] > after_lsn
        if not fresh.all():
            window = window.only(fresh)
        return window if len(window.frames) else None

    def only(self, mask: Rows) -> Window:
        """The frames where `mask` is true."""
        return Window(self.blocks, self.picked(mask), self.origin[mask])

    def picked(self, which: Rows) -> Rows:
        """These frames, by mask or by row; as plain bytes, too."""
        return picked(self.frames, which)

    def spread(self, moves: dict[int, Rows]) -> Window:
        """With a frame for each body that moved (row -> journal.RELOCATION) in the place of the
        frame for all: `argument` is the location, `offset` the offset there."""
        counts = np.ones(len(self.frames), dtype=np.int64)
        counts[list(moves)] = [len(each) for each in moves.values()]
        rows = np.repeat(np.arange(len(counts)), counts)
        out = Window(self.blocks, self.picked(rows), self.origin[rows])
        at = np.flatnonzero(MOVES_BODIES[out.frames["type"]])
        moved = RELOCATION.joined(list(moves.values()))
        for name, source in _MOVED.items():
            out.frames[name][at] = moved[source]
        out.frames["flags"][at] |= int(FrameFlag.PERSISTENT)
        out.frames["length"][at] = 0
        return out

    def frame(self, row: int) -> tuple[tuple[Any, ...], bytes]:
        """One frame as a row of numbers, with its payload, unchecked."""
        frame = self.frames[row].item()
        block = self.blocks[self.origin[row]]
        return frame, block.payload(frame[At.OFFSET], frame[At.LENGTH])

    def select(self) -> tuple[Rows, Rows]:
        """Mask of the frames worth looking at, and the QPoolIds of the brief messages."""
        frames = self.frames
        kind, qpool, flags = frames["type"], frames["qpool"], frames["flags"]
        keep = (flags & FrameFlag.PERSISTENT != 0) & (qpool != 0)
        last = keep & (flags & FrameFlag.LAST_PART != 0)
        brief = ended = qpool[last]
        if len(ended):
            born = qpool[keep & MAKES[kind]]
            brief = born[np.isin(born, ended)]
            moves = REPLACES[kind] & (frames["reason"] != frames["record"])
            keep &= last | moves | ~np.isin(qpool, ended)
        if len(brief):
            keep &= ~np.isin(qpool, brief)
        return keep | _QUEUES[kind], brief

    def unusable_moves(self, keep: Rows) -> list[int]:
        """Rows of the moves that belong to a unit of work and whose payload cannot be believed."""
        out = []
        moves = keep & REPLACES[self.frames["type"]] & (self.frames["unit"] != 0)
        for row in np.flatnonzero(moves).tolist():
            frame, raw = self.frame(row)
            try:
                targets(frame, checked(frame, raw))
            except Unusable:
                out.append(row)
        return out

    def joined_to(self, bad: list[int], durable: int) -> Rows:
        """Mask of what is condemned with these rows: their units of work; of those above `durable`
        their requests. A unit that was prepared and promised keeps what is whole: its end, in
        another block, may be a promise to somebody else."""
        frames = self.frames
        kept = (frames["flags"][bad] & _PREPARED != 0) & (frames["lsn"][bad] <= durable)
        units = np.where(kept, 0, frames["unit"][bad])
        mask: Rows = np.isin(frames["unit"], units[units != 0])
        asked = {(token, sequence) for token, sequence, lsn
                 in frames[["token", "sequence", "lsn"]][bad].tolist()
                 if lsn > durable and token and sequence}
        for token, sequence in asked:
            mask |= (frames["token"] == token) & (frames["sequence"] == sequence)
        return mask

    def lone(self, keep: Rows) -> Rows:
        """Mask of the frames that are the only ones kept of their messages."""
        rows = np.flatnonzero(keep)
        qpools = self.frames["qpool"][rows]
        order = np.argsort(qpools, kind="stable")
        ascending = qpools[order]
        other = np.ones(len(rows) + 1, dtype=bool)  # than the one before it
        other[1:-1] = ascending[1:] != ascending[:-1]
        mask = np.zeros(len(keep), dtype=bool)
        mask[rows[order[other[1:] & other[:-1]]]] = True
        return mask

    def slots_of(self, qpools: Rows) -> list[tuple[int, int]]:
        """Pool (file, record) that frames name for these messages, each once."""
        rows = self.frames[np.isin(self.frames["qpool"], qpools)]
        places = distinct(rows["file"].astype(np.int64) << 32 | rows["record"])
        return [(place >> 32, place & 0xFFFFFFFF) for place in places.tolist()]


@dataclass(frozen=True, slots=True)
class Births:
    """The surviving births of a window. All arrays have one length; `rows` are indexes into the
    window's frames, `good` where the payload is whole and a message, `heads` its descriptors."""

    rows: Rows
    good: Rows
    heads: Rows

    @staticmethod
    def of(window: Window, keep: Rows) -> Births:
        """Check the payload of every birth that is kept: length, CRC, descriptor."""
        frames = window.frames
        rows = np.flatnonzero(keep & MAKES[frames["type"]])
        if not len(rows):
            return Births(rows, np.zeros(0, dtype=bool), np.zeros(0, dtype=DESCRIPTOR.dtype))
        puts, origin = window.picked(rows), window.origin[rows]
        raw, base, size = _payload_areas(window, puts, origin)
        begin = puts["offset"].astype(np.int64)
        length = puts["length"].astype(np.int64)
        good = (length >= DESCRIPTOR.size) & (begin + length <= size[origin])
        begin = np.where(good, begin + base[origin], 0)
        end = np.where(good, begin + length, 0)
        good &= _whole(raw, begin, end, puts["crc"])
        heads = _descriptors(raw, np.where(good, begin, 0))
        need = DESCRIPTOR.size + heads["parts"].astype(np.int64) * PART.size + heads["properties"]
        good &= ((heads["magic"] == _MAGIC) & (heads["version"] <= VERSION) & (need <= length)
                 & (heads["parts"] <= limits.QUEUES_MAX))
        return Births(rows, good, heads)


def _payload_areas(window: Window, puts: Rows, origin: Rows) -> tuple[bytes, Rows, Rows]:
    """The payload bytes of the blocks that hold these births, joined; where those of each block of
    the window begin, and how many they are."""
    count = len(window.blocks)
    wanted = np.zeros(count, dtype=np.int64)
    ends = puts["offset"].astype(np.int64) + puts["length"]
    np.maximum.at(wanted, origin, ends)
    pieces = [window.blocks[i].payload(0, int(wanted[i])) if wanted[i] else b""
              for i in range(count)]
    size = np.array([len(piece) for piece in pieces], dtype=np.int64)
    # The spare bytes let a descriptor be read at any offset.
    return b"".join([*pieces, bytes(DESCRIPTOR.size)]), np.cumsum(size) - size, size


def _whole(raw: bytes, begin: Rows, end: Rows, crcs: Rows) -> Rows:
    """Mask of the payloads that have the CRC which their submitter gave them."""
    found = crc32c_each(memoryview(raw), begin.tolist(), end.tolist())
    mask: Rows = np.array(found, dtype=np.uint32) == crcs
    return mask


def _descriptors(raw: bytes, begin: Rows) -> Rows:
    sliding = np.lib.stride_tricks.sliding_window_view(np.frombuffer(raw, "u1"), DESCRIPTOR.size)
    return np.ascontiguousarray(sliding[begin]).view(DESCRIPTOR.dtype).reshape(len(begin))
