"""Archive files of frames that a generator made, through the real format module.

A file begins with the names of all queues, as a manager's does; LSNs go on from file to file. Its
journal blocks are made up around the frames, with right CRCs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from omq.base.arrays import Vector
from omq.format import archive
from omq.format.archive import PLACE, ROW_LAYOUTS, NameKind, Section
from omq.format.archive import ROW as PART_ROW
from omq.format.frame_rules import Hand, numbers
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
from omq.storage.archive import Pieces, archive_name, encode
from omq.storage.archive_names import text_rows
from omq.storage.files import write_new_file
from tests.made.generator import PRODUCERS, QUEUES, READERS
from tests.made.spoil import spoiled
from tests.made.stories import QUEUES as STORY_QUEUES

UUID: Final = bytes.fromhex("0a" * 16)
PAGE: Final = 4096
BLOCK_FRAMES: Final = 64  # of a journal block: a busy manager's group commit
NAMED: Final = QUEUES | STORY_QUEUES
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
    epoch: int = 1

    def write(self, rows: Vector, *, spoil: bool = False) -> None:
        """One file: the names, then these rows, whose LSNs are given here."""
        first = self.lsn + len(NAMED)
        rows["lsn"] = np.arange(first, first + len(rows))
        moved = rows[rows["onto"] > 0]
        parts = np.zeros(len(moved), PART_ROW.dtype)
        for name in ("lsn", "qpool", "priority"):
            parts[name] = moved[name]
        parts["queue"] = moved["onto"]
        self.write_frames(_plain(rows), parts, spoil=spoil)

    def write_frames(self, rows: Vector, parts: Vector, *, spoil: bool = False) -> None:
        """The same of frames that have their LSNs, with the queues that they name."""
        head = _names(int(rows["time"][0]))
        head["lsn"] = np.arange(self.lsn, self.lsn + len(head))
        plain = np.concatenate([head, rows])
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
        places, heads = _blocks(rows, self.number, self.epoch)
        first, when = int(rows["lsn"][0]), int(rows["time"][0])
        header = FileHeader(UUID, self.epoch, self.number, PAGE, 0, first, self.follows_lsn,
                            self.follows_number, when, 1).encode()[: BLOCK.size]
        names: list[Any] = []
        for i, (queue, name) in enumerate(NAMED.items()):
            names += text_rows(first + i, NameKind.QUEUE, queue, name.encode())
        for queue, count in READERS.items():
            for reader in range(count):
                text = f"{QUEUES[queue].lower()} {'main' if not reader else f'aux {reader}'}"
                names += text_rows(first, NameKind.READER, queue * 10 + reader, text.encode())
        for producer in range(PRODUCERS):
            text = f"producer-{producer}"
            names += text_rows(first, NameKind.PROGRAM, 100 + producer, text.encode())
        own = [queue * 10 + reader for queue, count in READERS.items() for reader in range(count)]
        for kinds, what, known in (
                (numbers(lambda rule: rule.makes), NameKind.PROGRAM, range(100, 100 + PRODUCERS)),
                (numbers(lambda rule: rule.hand is Hand.GIVEN), NameKind.READER, own)):
            told = np.unique(rows["client"][np.isin(rows["type"], kinds)])
            for client in told[~np.isin(told, known)].tolist():  # of stories
                names += text_rows(first, what, client, f"story {client}".encode())
        sections = {
            Section.FRAMES: rows, Section.PLACES: places, Section.PARTS: parts,
            Section.HEADS: np.frombuffer(header + b"".join(heads),
                                         ROW_LAYOUTS[Section.HEADS].dtype),
            Section.NAMES: np.array(names, dtype=archive.NAME.dtype),
            Section.EXTENTS: np.zeros(0, archive.EXTENT.dtype)}
        return Pieces(UUID, self.number, sections, [], [], self.epoch, self.follows_lsn,
                      self.follows_number, PAGE, when,
                      journal_bytes=int(places[-1]["offset"]) + block_length(
                          int(places[-1]["count"]), 0, PAGE))


def _plain(rows: Vector) -> Vector:
    out = np.zeros(len(rows), FRAME.dtype)
    for name in _NAMES:
        out[name] = rows[name]
    return out


def _names(when: int) -> Vector:
    rows = np.zeros(len(NAMED), FRAME.dtype)
    rows["type"], rows["queue"], rows["time"] = FrameType.QUEUE, list(NAMED), when
    rows["flags"] = FrameFlag.REPEATED | FrameFlag.PERSISTENT
    return rows


def _blocks(rows: Vector, number: int, epoch: int) -> tuple[Vector, list[bytes]]:
    """Journal blocks around the rows: where they lie, and their headers with right CRCs."""
    count = -(-len(rows) // BLOCK_FRAMES)
    places, heads, offset = np.zeros(count, PLACE.dtype), [], PAGE
    for i in range(count):
        part = rows[i * BLOCK_FRAMES : (i + 1) * BLOCK_FRAMES]
        length = block_length(len(part), 0, PAGE)
        data = bytearray(BLOCK.size) + part.tobytes()
        first = int(part["lsn"][0])
        header = BlockHeader(epoch, first, len(part), first - 1, int(part["time"][0]), number, i, 0,
                             length, 0, 1)
        seal_block(data, UUID, header)
        heads.append(bytes(data[: BLOCK.size]))
        places[i] = (first, offset, 0, len(part), 0)
        offset += length
    return places, heads
