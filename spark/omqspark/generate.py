"""Archives of synthetic traffic, with planted faults and a truth table: `omq-spark generate`.

    OUT/archive/NNNNNNNNNN.oma   through the real format module
    OUT/msgpool/*QP              the messages that are open at the end, as the pool holds them
    OUT/truth.json               what was planted, and what counts must come out

Faults harm nothing beside themselves: what is damaged holds only checkpoint marks, a missing file
is a number that was never used. So an audit must find exactly these.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from omq.base.arrays import Vector
from omq.format import archive, pool
from omq.format.archive import PLACE, ROW_LAYOUTS, NameKind, Section
from omq.format.archive import ROW as PART_ROW
from omq.format.journal import (
    BLOCK,
    FRAME,
    BlockHeader,
    FileHeader,
    FrameFlag,
    FrameType,
    block_length,
    seal_block,
)
from omq.storage import durable
from omq.storage.archive import Pieces, archive_name, encode
from omq.storage.archive_names import text_rows
from omq.storage.files import write_new_file
from omqtools.omqspark.generator import POISON, PRODUCERS, QUEUES, READERS, Load, Traffic
from omqtools.omqspark.spoil import spoiled

UUID: Final = bytes.fromhex("0a" * 16)
PAGE: Final = 4096
BLOCK_FRAMES: Final = 64  # of a journal block: a busy manager's group commit
PIECE_MESSAGES: Final = 50_000
MARKS: Final = 1200  # checkpoint marks in the file that is damaged
FAULTS: Final = ("lost", "duplicated", "resurrected", "out_of_order", "attempts", "gap",
                 "missing_file", "crc")
_NAMES: Final = FRAME.names


@dataclass(slots=True)
class Writer:
    """Frames into archive files of about `file_frames` each."""

    out: Path
    file_frames: int
    number: int = 1
    lsn: int = 1
    time_ns: int = 0
    follows_number: int = 0
    follows_lsn: int = 0
    files: list[int] = field(default_factory=list)
    frames: int = 0

    def write(self, rows: Vector, *, spoil: bool = False) -> None:
        """One file: the names, then these rows, whose LSNs are given here."""
        head = _names(int(rows["time"][0]))
        rows["lsn"] = np.arange(self.lsn + len(head), self.lsn + len(head) + len(rows))
        head["lsn"] = np.arange(self.lsn, self.lsn + len(head))
        plain = np.concatenate([head, _plain(rows)])
        moved = rows[rows["onto"] > 0]
        parts = np.zeros(len(moved), PART_ROW.dtype)
        for name in ("lsn", "qpool", "priority"):
            parts[name] = moved[name]
        parts["queue"] = moved["onto"]
        pieces = self._pieces(plain, parts)
        _, oma, _ = encode(pieces, level=3)
        data = spoiled(b"".join(oma), pieces) if spoil else b"".join(oma)
        write_new_file(self.out / archive_name(self.number), [data]).close()
        self.files.append(self.number)
        self.frames += len(plain)
        self.follows_number, self.follows_lsn = self.number, int(plain["lsn"][-1])
        self.time_ns = int(plain["time"][-1])
        self.number += 1
        self.lsn = self.follows_lsn + 1

    def _pieces(self, rows: Vector, parts: Vector) -> Pieces:
        places, heads = _blocks(rows, self.number)
        first, when = int(rows["lsn"][0]), int(rows["time"][0])
        header = FileHeader(UUID, 1, self.number, PAGE, 0, first, self.follows_lsn,
                            self.follows_number, when, 1).encode()[: BLOCK.size]
        names: list[Any] = []
        for i, (queue, name) in enumerate(QUEUES.items()):
            names += text_rows(first + i, NameKind.QUEUE, queue, name.encode())
        for queue, count in READERS.items():
            for reader in range(count):
                text = f"{QUEUES[queue].lower()} {'main' if not reader else f'aux {reader}'}"
                names += text_rows(first, NameKind.READER, queue * 10 + reader, text.encode())
        for producer in range(PRODUCERS):
            text = f"producer-{producer}"
            names += text_rows(first, NameKind.PROGRAM, 100 + producer, text.encode())
        sections = {
            Section.FRAMES: rows, Section.PLACES: places, Section.PARTS: parts,
            Section.HEADS: np.frombuffer(header + b"".join(heads),
                                         ROW_LAYOUTS[Section.HEADS].dtype),
            Section.NAMES: np.array(names, dtype=archive.NAME.dtype),
            Section.EXTENTS: np.zeros(0, archive.EXTENT.dtype)}
        return Pieces(UUID, self.number, sections, [], [], 1, self.follows_lsn,
                      self.follows_number, PAGE, when,
                      journal_bytes=int(places[-1]["offset"]) + block_length(
                          int(places[-1]["count"]), 0, PAGE))


def _plain(rows: Vector) -> Vector:
    out = np.zeros(len(rows), FRAME.dtype)
    for name in _NAMES:
        out[name] = rows[name]
    return out


def _names(when: int) -> Vector:
    rows = np.zeros(len(QUEUES), FRAME.dtype)
    rows["type"], rows["queue"], rows["time"] = FrameType.QUEUE, list(QUEUES), when
    rows["flags"] = FrameFlag.REPEATED | FrameFlag.PERSISTENT
    return rows


def _blocks(rows: Vector, number: int) -> tuple[Vector, list[bytes]]:
    """Journal blocks around the rows: where they lie, and their headers with right CRCs."""
    count = -(-len(rows) // BLOCK_FRAMES)
    places, heads, offset = np.zeros(count, PLACE.dtype), [], PAGE
    for i in range(count):
        part = rows[i * BLOCK_FRAMES : (i + 1) * BLOCK_FRAMES]
        length = block_length(len(part), 0, PAGE)
        data = bytearray(BLOCK.size) + part.tobytes()
        first = int(part["lsn"][0])
        header = BlockHeader(1, first, len(part), first - 1, int(part["time"][0]), number, i, 0,
                             length, 0, 1)
        seal_block(data, UUID, header)
        heads.append(bytes(data[: BLOCK.size]))
        places[i] = (first, offset, 0, len(part), 0)
        offset += length
    return places, heads


def generate(out: Path, messages: int, *, faults: int, load: Load, file_frames: int
             ) -> dict[str, Any]:
    """Make everything; the truth table. `faults`: how many of each kind."""
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
    if faults:
        _damage(writer, faults, planted)
    planted += [{"kind": "out_of_order", "qpool": qpool} for qpool in traffic.swaps]
    open_rows = _open_messages(traffic)
    _write_pool(out / "msgpool", open_rows)
    truth = {
        "uuid": UUID.hex(), "messages": messages, "frames": writer.frames,
        "files": len(writer.files), "last_lsn": writer.follows_lsn,
        "events": dict(sorted(counts.items())), "open": len(open_rows), "faults": planted}
    text = json.dumps(truth, indent=1, sort_keys=True) + "\n"
    write_new_file(out / "truth.json", [text.encode()]).close()
    return truth


def _write_piece(writer: Writer, traffic: Traffic, rows: Vector, counts: Counter[str]) -> None:
    """All files of one piece; leases may name frames of an earlier file of the piece."""
    for at in range(0, len(rows), writer.file_frames):
        part = rows[at : at + writer.file_frames]
        ahead = part["given"] - at
        here = (ahead >= 0) & (part["given"] >= 0)
        base = writer.lsn + len(QUEUES)
        part["lease"][here] = base + ahead[here]
        earlier = (part["given"] >= 0) & ~here
        part["lease"][earlier] = rows["lsn"][part["given"][earlier]]
        writer.write(part)
    traffic.give_leases(rows)
    for kind, count in zip(*np.unique(rows["type"], return_counts=True), strict=True):
        counts[FrameType(int(kind)).name] += int(count)


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
