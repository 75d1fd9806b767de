"""What redo does to many messages at once: ends, hand-outs, and bodies that moved.

Only for messages with which nothing else happens in the window (Window.lone), so that the order of
frames does not matter; whatever does not fit is left to redo, frame by frame. Records that are not
in memory are read and checked in bulk. The outcome is that of one frame after the other, which
tests compare.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

import numpy as np

from omq.core import births as bulk
from omq.core.held_records import Edit, HeldRecords
from omq.core.redo_changes import At, Frame, Unusable, checked, targets
from omq.core.redo_source import RecordSource
from omq.core.redo_window import Frames, JournalBlock, Window, single
from omq.format.journal import RELOCATION, FrameFlag, FrameType
from omq.format.pool import NO_RECORD, Message, PartState

_NO_FRAMES = np.zeros(0, dtype=np.int64)


class State(Protocol):
    """Of core.redo.Redo."""

    pool: RecordSource
    images: HeldRecords
    dirty: dict[int, Message | None]
    clears: set[tuple[int, int]]
    settled: bool
    many: int

    def relocations(self, frame: Frame, block: JournalBlock) -> Frames: ...


def end_many(redo: State, window: Window, lone: Frames) -> Frames:
    """Messages with one record that only end in this call, but those that frames have changed one
    by one. The rows of their ends."""
    frames = window.frames
    rows = np.flatnonzero(lone & (frames["flags"] & FrameFlag.LAST_PART != 0)
                          & (frames["type"] != FrameType.PUT) & (frames["parts"] <= 1))
    ended = frames[rows]
    born, loaded = redo.images.drop(ended["qpool"])
    in_pool = ~born & ~loaded
    in_pool[in_pool] = _not_in(redo.dirty, ended["qpool"][in_pool])
    done = born | loaded | in_pool
    ended = ended[loaded | in_pool if redo.settled else done]
    redo.dirty.update(dict.fromkeys(ended["qpool"].tolist()))
    redo.clears.update(zip(ended["file"].tolist(), ended["record"].tolist(), strict=True))
    return np.asarray(rows[done])


def give_many(redo: State, window: Window, lone: Frames, moved: Frames) -> Frames:
    """Messages that are only handed out; those whose bodies `moved` (QPoolIds) are left. The rows
    of the hand-outs."""
    rows = np.flatnonzero(lone & (window.frames["type"] == FrameType.GIVE))
    rows = rows[~np.isin(window.frames["qpool"][rows], moved)]
    if len(rows) < redo.many:
        return _NO_FRAMES
    gives = window.frames[rows]
    tokens = gives["token"]
    tags = (gives["lsn"] ^ tokens ^ tokens >> np.uint64(32)) & np.uint64(0xFFFFFFFF)

    def edit(held: Frames, at: Frames, which: Frames) -> None:
        mine = held["parts_list"]["queue"][at, 0] == gives["queue"][which]
        at, which = at[mine], which[mine]
        part = held["parts_list"][:, 0]
        part["grade"][at] = part["grade"][at] & 15 | int(PartState.ACTIVE) << 4
        part["attempts"][at] = gives["attempt"][which]
        part["until"][at] = tags[which]

    done = _change(redo, gives["qpool"], gives["file"], gives["record"], gives["lsn"], edit)
    return np.asarray(rows[done])


def relocate_many(redo: State, window: Window, keep: Frames, ended: Frames
                  ) -> tuple[Frames, Frames]:
    """Bodies that moved, of messages of which no other frame is kept; those of `ended` ones
    (QPoolIds) are of no interest. QPoolIds of what is done, and of all; frames of which all is done
    are kept no more."""
    frames = window.frames
    rows, parts = [], [RELOCATION.array(b"", 0)]
    for row in np.flatnonzero(keep & (frames["type"] == FrameType.RELOCATE)).tolist():
        with suppress(Unusable):  # kept, and reported when it is looked at
            parts.append(redo.relocations(frames[row].item(), window.blocks[window.origin[row]]))
            rows.append(row)
    moves = RELOCATION.joined(parts)
    counts = [len(part) for part in parts[1:]]
    qpools, lsns = moves["qpool"], np.repeat(frames["lsn"][rows], counts)
    done = np.isin(qpools, ended)
    alone = np.flatnonzero(~done & ~np.isin(qpools, frames["qpool"][keep]) & single(qpools))
    if len(alone) >= redo.many:
        chosen = moves[alone]

        def edit(held: Frames, at: Frames, which: Frames) -> None:
            held["location"][at] = chosen["location"][which]
            held["offset"][at] = chosen["offset"][which]

        done[alone] = _change(redo, chosen["qpool"], chosen["file"], chosen["record"], lsns[alone],
                              edit)
    for row, part in zip(rows, np.split(done, np.cumsum(counts)), strict=False):
        keep[row] = not part.all()
    return qpools[done], qpools


def unusable_moves(window: Window, keep: Frames) -> list[int]:
    """Rows of the moves that belong to a unit of work and whose payload cannot be believed."""
    frames = window.frames
    out = []
    for row in np.flatnonzero(keep & (frames["type"] == FrameType.MOVE)
                              & (frames["unit"] != 0)).tolist():
        frame = frames[row].item()
        raw = window.blocks[window.origin[row]].payload(frame[At.OFFSET], frame[At.LENGTH])
        try:
            targets(frame, checked(frame, raw))
        except Unusable:
            out.append(row)
    return out


def _change(redo: State, qpools: Frames, files: Frames, records: Frames, lsns: Frames, edit: Edit
            ) -> Frames:
    """Change the records of these messages in arrays; mask of those that could be."""
    done = redo.images.change(qpools, lsns, edit)
    rest = np.flatnonzero(~done)
    rest = rest[_not_in(redo.dirty, qpools[rest])]
    if len(rest) >= redo.many:
        for file in np.unique(files[rest]).tolist():
            mine = rest[files[rest] == file]
            mine = mine[np.argsort(records[mine], kind="stable")]
            rows, good = redo.pool.read_rows(file, records[mine])
            good &= ((rows["qpool"] == qpools[mine]) & (rows["parts"] == 1)
                     & (rows["next"] == NO_RECORD))
            redo.images.load(bulk.compacted(rows[good]))
        done[rest] = redo.images.change(qpools[rest], lsns[rest], edit)
    return done


def _not_in(known: dict[int, Message | None], qpools: Frames) -> Frames:
    return np.array([qpool not in known for qpool in qpools.tolist()], dtype=bool)
