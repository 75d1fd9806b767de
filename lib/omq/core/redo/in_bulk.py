"""What redo does to many messages at once: ends, new states of entries, and bodies that moved.

Only for messages with which nothing else happens in the window (Window.lone), so that the order of
frames does not matter; whatever does not fit is left to redo, frame by frame. Records that are not
in memory are read and checked in bulk. The outcome is that of one frame after the other, which
tests compare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from omq.base.arrays import Rows, picked
from omq.core.redo import births as bulk
from omq.core.redo.changes import entry_after
from omq.core.redo.held_records import Edit
from omq.core.redo.window import MAKES, MOVES_BODIES, Window
from omq.format.frame_rules import BY_NUMBER, Entry, mask
from omq.format.journal import FRAME, FrameFlag
from omq.format.pool import NO_RECORD, Message

if TYPE_CHECKING:
    from omq.core.redo.redo import Redo

_IN_BULK = mask(lambda rule: rule.entry is not None) | MOVES_BODIES
_COUNT_MAX = 255  # attempts and deferrals of a queue part


def end_many(redo: Redo, window: Window, lone: Rows) -> Rows:
    """Messages with one record that only end in this call, but those that frames have changed one
    by one. The rows of their ends."""
    frames = window.frames
    rows = np.flatnonzero(lone & (frames["flags"] & FrameFlag.LAST_PART != 0)
                          & ~MAKES[frames["type"]] & (frames["parts"] <= 1))
    ended = frames[rows]
    born, loaded = redo.images.drop(ended["qpool"])
    in_pool = ~born & ~loaded
    in_pool[in_pool] = _not_in(redo.dirty, ended["qpool"][in_pool])
    done = born | loaded | in_pool
    ended = ended[loaded | in_pool if redo.settled else done]
    redo.dirty.update(dict.fromkeys(ended["qpool"].tolist()))
    redo.clears.update(zip(ended["file"].tolist(), ended["record"].tolist(), strict=True))
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
            done[mine] = _free(rows) | good & ~own  # of a message that is gone: nothing to do
            # A row in memory has no room for a note.
            good &= own & (rows["parts"] == 1) & (rows["next"] == NO_RECORD) & (rows["note"] == 0)
            redo.images.load(bulk.compacted(picked(rows, good)))
        done[rest] |= redo.images.change(
            qpools[rest], lsns[rest], lambda held, at, which: edit(held, at, rest[which]))
    return done


def _free(rows: Rows) -> Rows:
    """Mask of the slots that hold nothing."""
    words = np.asarray(rows).view("<u8").reshape(len(rows), -1)
    return np.asarray(~words.any(axis=1))


def _not_in(known: dict[int, Message | None], qpools: Rows) -> Rows:
    return np.array([qpool not in known for qpool in qpools.tolist()], dtype=bool)
