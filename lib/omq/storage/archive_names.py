"""What analytics needs out of payloads: names, texts, groups, and the queues of a PUT or MOVE.

Taken when an archive file is made, so that reading events never touches the bodies. A payload whose
CRC is wrong gives nothing but a Finding: its bytes are kept with the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from omq.base.arrays import Rows
from omq.base.checksum import crc32c
from omq.base.names import message_id_text
from omq.format import message
from omq.format.archive import NAME, ROW, TEXT_BYTES, TEXT_PIECES_MAX, NameKind
from omq.format.findings import Finding, Kind
from omq.format.frame_rules import BY_NUMBER, About, Payload, mask, parts_at
from omq.format.message import DESCRIPTOR, NO_ID, PART
from omq.storage.journal_scan import Block

_MESSAGES = mask(lambda rule: rule.payload is Payload.MESSAGE)
_GROUP_AT = DESCRIPTOR.offset("group_id")
_NAMES = {About.QUEUE: (NameKind.QUEUE, "queue"), About.READER: (NameKind.READER, "client")}
NameRow = tuple[int, int, int, int, int, bytes]
PartRow = tuple[int, int, int, int, int, int, bytes]


def names_and_parts(blocks: list[Block], findings: list[Finding]) -> tuple[Rows, Rows]:
    """Rows of the sections NAMES and PARTS, by LSN; findings are added to."""
    names: list[NameRow] = []
    parts: list[PartRow] = []
    programs: set[int] = set()
    for block in blocks:
        for frame in _interesting(block, programs):
            raw = block.payload(int(frame["offset"]), int(frame["length"]))
            if frame["crc"] and crc32c(raw) != frame["crc"]:
                findings.append(_damaged(block, frame))
                continue
            _take(frame, raw, names, parts, programs)
    return np.array(names, dtype=NAME.dtype), np.array(parts, dtype=ROW.dtype)


def _interesting(block: Block, programs: set[int]) -> Iterator[Any]:
    """Frames whose payload says more than a body: seldom ones, births of groups, and the first PUT
    of a client."""
    frames = block.frames
    puts = _MESSAGES[frames["type"]]
    chosen = (~puts | (frames["parts"] > 0)) & (frames["length"] > 0)
    chosen[_grouped(block, np.flatnonzero(puts & (frames["length"] >= DESCRIPTOR.size)))] = True
    new = puts & ~np.isin(frames["client"], list(programs))
    if new.any():
        _, first = np.unique(frames["client"][new], return_index=True)
        chosen[np.flatnonzero(new)[first]] = True
    for row in np.flatnonzero(chosen & (frames["length"] > 0)).tolist():
        yield frames[row]


def _grouped(block: Block, rows: Rows) -> Rows:
    """Those of these frames, births with a descriptor or their queue parts alone, in whose bytes
    there is something where a group id would stand. All at once: most messages have none."""
    raw = np.frombuffer(block.data, "u1")
    size = len(NO_ID)
    at = block.header.payload_at + block.frames["offset"][rows].astype(np.int64) + _GROUP_AT
    inside = at + size <= len(raw)
    rows, at = rows[inside], at[inside]
    if not len(rows):
        return rows
    windows = np.lib.stride_tricks.sliding_window_view(raw, size)
    return np.asarray(rows[windows[at].any(axis=1)])


def _take(frame: Any, raw: bytes, names: list[NameRow], parts: list[PartRow], programs: set[int]
          ) -> None:
    kind, lsn = int(frame["type"]), int(frame["lsn"])
    rule = BY_NUMBER[kind]
    if rule.payload is Payload.NAME:
        name, key = _NAMES[rule.about]
        names += text_rows(lsn, name, int(frame[key]), raw)
    elif rule.payload in (Payload.TEXT, Payload.ORDER):
        names += text_rows(lsn, NameKind.TEXT, kind, raw)
    elif rule.payload is Payload.QUEUES:
        parts += _parts(frame, raw, 0, len(raw) // PART.size)
    elif parts_at(kind, int(frame["flags"])) == 0:  # a message's, but without the message
        parts += _parts(frame, raw, 0, min(len(raw) // PART.size, int(frame["parts"])))
    elif rule.payload is Payload.MESSAGE:
        found = message.decode(raw)
        if isinstance(found, Finding):
            return
        client = int(frame["client"])
        if client not in programs:
            programs.add(client)
            names += text_rows(lsn, NameKind.PROGRAM, client, found.descriptor.application)
        if any(found.descriptor.group_id):
            names += text_rows(lsn, NameKind.GROUP, found.descriptor.group_sequence,
                               message_id_text(found.descriptor.group_id).encode())
        parts += _parts(frame, raw, DESCRIPTOR.size, min(len(found.parts), int(frame["parts"])))


def _parts(frame: Any, raw: bytes, at: int, count: int) -> Iterator[PartRow]:
    for i in range(count):
        queue, priority, _, until = PART.unpack_from(raw, at + i * PART.size)
        yield (int(frame["lsn"]), int(frame["qpool"]), queue, priority, min(i, 255), until, b"")


def text_rows(lsn: int, kind: NameKind, key: int, text: bytes) -> Iterator[NameRow]:
    """A text in pieces of one row each."""
    for at in range(min(-(-len(text) // TEXT_BYTES), TEXT_PIECES_MAX)):
        piece = text[at * TEXT_BYTES : (at + 1) * TEXT_BYTES]
        yield (lsn, kind, at, len(piece), key, piece)


def texts(rows: Rows, kind: NameKind) -> dict[tuple[int, int], str]:
    """(lsn, key) -> text, of one kind; bytes that are no UTF-8 are shown as question marks."""
    out: dict[tuple[int, int], bytes] = {}
    for row in rows[rows["kind"] == kind]:
        key = (int(row["lsn"]), int(row["key"]))
        length = min(int(row["length"]), TEXT_BYTES)
        out[key] = out.get(key, b"") + row["text"].tobytes()[:length]
    return {key: text.decode("utf-8", "replace").rstrip("\0") for key, text in out.items()}


def _damaged(block: Block, frame: Any) -> Finding:
    return Finding(
        Kind.CORRUPT, f"payload of {int(frame['type'])} of message {int(frame['qpool'])} fails its "
        "CRC", f"{block.number:010d}.jnl", block.payload_at + int(frame["offset"]),
        int(frame["length"]), lsn=int(frame["lsn"]))
