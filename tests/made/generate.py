"""Archives of synthetic traffic, with planted faults and a truth table: `python -m tests.made`.

    OUT/archive/NNNNNNNNNN.oma   through the real format module
    OUT/msgpool/*QP              the messages that are open at the end, as the pool holds them
    OUT/truth.json               what was planted, and what counts must come out

Faults harm nothing beside themselves: what is damaged holds only checkpoint marks, a missing file
is a number that was never used. So an audit must find exactly these.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

import numpy as np

from omq.base.arrays import Vector
from omq.base.clock import NS_PER_S
from omq.format import pool
from omq.format.journal import (
    FRAME,
    FrameFlag,
    FrameType,
)
from omq.storage import durable
from omq.storage.files import write_new_file
from tests.made.generator import POISON, Load, Traffic
from tests.made.stories import told
from tests.made.writer import NAMED, UUID, Writer

PIECE_MESSAGES: Final = 50_000
MARKS: Final = 1200  # checkpoint marks in the file that is damaged
FAULTS: Final = ("lost", "duplicated", "resurrected", "out_of_order", "attempts", "gap",
                 "missing_file", "crc")


def generate(out: Path, messages: int, *, faults: int, load: Load, file_frames: int,
             stories: int = 0) -> dict[str, Any]:
    """Make everything; the truth table. `faults`: how many of each kind; `stories`: how often each
    kind of message is told besides."""
    directory = out / "archive"
    for path in (out, directory, out / "msgpool"):
        durable.make_directory(path)
    traffic, writer = Traffic(load), Writer(directory, file_frames)
    planted: list[dict[str, Any]] = []
    counts: Counter[str] = Counter()
    left, first = messages, True
    while left:
        size = min(PIECE_MESSAGES, left)
        left -= size
        rows = traffic.piece(size, swap=faults if first else 0)
        if first and faults:
            rows = _plant(rows, faults, planted, traffic)
        first = False
        _write_piece(writer, traffic, rows, counts)
    which, told = _tell(writer, traffic, stories) if stories else ({}, Counter[str]())
    if faults:
        _damage(writer, faults, planted)
    planted += [{"kind": "out_of_order", "qpool": qpool} for qpool in traffic.swaps]
    open_rows = _open_messages(traffic)
    _write_pool(out / "msgpool", open_rows)
    truth = {
        "uuid": UUID.hex(), "messages": messages, "frames": writer.frames,
        "files": len(writer.files), "last_lsn": writer.follows_lsn,
        "events": dict(sorted(counts.items())), "open": len(open_rows), "faults": planted,
        "stories": which, "story_events": dict(sorted(told.items()))}
    text = json.dumps(truth, indent=1, sort_keys=True) + "\n"
    write_new_file(out / "truth.json", [text.encode()]).close()
    return truth


def _write_piece(writer: Writer, traffic: Traffic, rows: Vector, counts: Counter[str]) -> None:
    """All files of one piece; leases may name frames of an earlier file of the piece."""
    for at in range(0, len(rows), writer.file_frames):
        part = rows[at : at + writer.file_frames]
        ahead = part["given"] - at
        here = (ahead >= 0) & (part["given"] >= 0)
        base = writer.lsn + len(NAMED)
        part["lease"][here] = base + ahead[here]
        earlier = (part["given"] >= 0) & ~here
        part["lease"][earlier] = rows["lsn"][part["given"][earlier]]
        writer.write(part)
    traffic.give_leases(rows)
    for kind, count in zip(*np.unique(rows["type"], return_counts=True), strict=True):
        counts[FrameType(int(kind)).name] += int(count)


def _tell(writer: Writer, traffic: Traffic, times: int) -> tuple[dict[int, str], Counter[str]]:
    """The stories, in a file of their own, and another manager behind them."""
    book, which, traffic.next_qpool = told(traffic.next_qpool, writer.time_ns + NS_PER_S, times)
    rows, parts = book.frames(writer.lsn + len(NAMED))
    writer.write_frames(rows, parts)
    writer.epoch += 1
    mark = np.zeros(1, FRAME.dtype)
    mark["type"], mark["time"] = FrameType.CHECKPOINT, writer.time_ns + NS_PER_S
    mark["lsn"] = writer.lsn + len(NAMED)
    writer.write_frames(mark, parts[:0])
    return which, Counter(FrameType(int(kind)).name for kind in rows["type"])


def _ends(rows: Vector) -> Vector:
    done: Vector = rows["type"] == FrameType.DONE
    return done & ((rows["flags"] & FrameFlag.LAST_PART) > 0)


def _plant(rows: Vector, faults: int, planted: list[dict[str, Any]], traffic: Traffic) -> Vector:
    """Faults that are frames: left out, repeated, or with a number that must not be."""
    done = np.flatnonzero(_ends(rows))
    step = max(1, len(done) // (5 * faults + 1))
    chosen = done[step // 2 :: step][: 4 * faults]
    lost, twice, again, many = (chosen[i::4] for i in range(4))
    extra = []
    put = {int(q): i for i, q in enumerate(rows["qpool"]) if rows["type"][i] == FrameType.PUT}
    for place in twice.tolist():
        row = rows[put[int(rows["qpool"][place])]].copy()
        row["time"] += 1
        extra.append((row, "duplicated"))
    for place in again.tolist():
        row = rows[rows["given"][place]].copy()
        row["time"] = rows["time"][place] + 1000
        extra.append((row, "resurrected"))
    for place in many.tolist():
        rows["attempt"][rows["given"][place]] = 9
        planted.append({"kind": "attempts", "qpool": int(rows["qpool"][place])})
    for row, kind in extra:
        planted.append({"kind": kind, "qpool": int(row["qpool"])})
    planted += [{"kind": "lost", "qpool": int(rows["qpool"][i])} for i in lost]
    return _rearranged(rows, lost, np.array([row for row, _ in extra], rows.dtype), traffic)


def _rearranged(rows: Vector, without: Vector, extra: Vector, traffic: Traffic) -> Vector:
    """Without some rows and with others, in time order again; `given` goes on counting."""
    keep = np.ones(len(rows) + len(extra), bool)
    keep[without] = False
    joined = np.concatenate([rows, extra])
    order = np.argsort(joined["time"], kind="stable")
    order = order[keep[order]]
    place = np.full(len(joined), -1)
    place[order] = np.arange(len(order))
    traffic.moved(place)
    out = joined[order]
    named = out["given"] >= 0
    out["given"][named] = place[out["given"][named]]
    return out


def _damage(writer: Writer, faults: int, planted: list[dict[str, Any]]) -> None:
    """Files of checkpoint marks: one with a flipped bit, numbers and LSNs that are missing."""
    marks = np.zeros(MARKS, dtype=[*FRAME.dtype.descr, ("onto", "<u2")])
    marks["type"] = FrameType.CHECKPOINT
    for _ in range(faults):
        marks["time"] = writer.time_ns
        writer.write(marks.copy(), spoil=True)
        planted.append({"kind": "crc", "file": writer.number - 1})
        planted.append({"kind": "missing_file", "file": writer.number})
        writer.follows_number = writer.number
        writer.number += 1
        writer.write(marks.copy())
        planted.append({"kind": "gap", "lsn": writer.lsn, "count": 5})
        writer.lsn += 5
        writer.follows_lsn += 5
        writer.write(marks.copy())


def _open_messages(traffic: Traffic) -> Vector:
    """QPoolIds whose end is still to come."""
    later = np.concatenate([traffic.carried["qpool"], traffic.open_qpools()])
    return np.unique(later)


def _write_pool(directory: Path, qpools: Vector) -> None:
    file = pool.encode_file_header(0, UUID, 0)
    images = []
    for record, qpool in enumerate(qpools.tolist()):
        part = pool.QueuePart(POISON + 1, 4, pool.PartState.READY, 0, 0, 0, 0, 0)
        message = pool.Message(
            qpool=qpool, file=0, record=record, lsn=1, time_ns=0, message_id=bytes(24),
            correlation_id=bytes(24), flags=1, location=0, offset=0, length=0, crc=0, size=0,
            expiry=0, pid=0, uid=0, reply_to=0, origin=0, group=0, group_sequence=0,
            segment_offset=0, report=0, application=b"", trace=0, parts=[part], more=[])
        images += [image for _, image in pool.encode_message(message)]
    write_new_file(directory / "0QP", [file + b"".join(images)]).close()
