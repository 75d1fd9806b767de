"""Quarantine: damaged bytes are copied aside, with where they were and why, before anything else.

    quarantine/<file>-<offset>.bin     the bytes as they were found, at most PIECE_BYTES_MAX of them
    quarantine/<file>-<offset>.json    file, offset, length, record, LSN, kind, reason, CRC, time

`<offset>` is hexadecimal. The original stays where it is: this is evidence for people and for
repair, nothing reads it back by itself.

Invariants: 1. the .bin is complete before its .json appears; 2. the same bytes of the same place
are kept once, other bytes of that place get the next name (`-2`, `-3` ...); 3. the directory is
bounded: PIECES_MAX pieces. Beyond it damage is still an event, but not copied.

In the middle of a crash: a .bin without .json is overwritten by the next `save` of that place.
Errors: DiskError, SpoolFull (the caller reports them; the service goes on).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

from omq.base import clock
from omq.base.checksum import crc32c
from omq.base.errors import DiskError
from omq.base.limits import MIB
from omq.base.paths import SpoolPaths
from omq.format.findings import Finding
from omq.storage import durable
from omq.storage.files import open_file, read_file, read_salvaged, write_new_file

PIECE_BYTES_MAX: Final = 4 * MIB
"""Bytes of one piece: a whole block of the journal at its default size."""
PIECES_MAX: Final = 1000
"""Pieces kept: enough to see a pattern; a dying disk must not fill itself with its own evidence."""
_SAME_PLACE_MAX: Final = 10
_NOTE_BYTES_MAX: Final = 4096
_REASON_CHARACTERS: Final = 500
_SECTOR: Final = 512
_UNSAFE = re.compile(r"[^A-Za-z0-9._]")


def save(paths: SpoolPaths, finding: Finding, data: bytes) -> Path | None:
    """Keep the bytes that a finding is about; the path of the copy, None when there is no room."""
    piece = data[:PIECE_BYTES_MAX]
    crc = crc32c(piece)
    stem = f"{_UNSAFE.sub('_', finding.file) or 'unnamed'}-{finding.offset:08x}"
    for turn in range(1, _SAME_PLACE_MAX + 1):
        name = stem if turn == 1 else f"{stem}-{turn}"
        known = _note(paths.quarantine / f"{name}.json")
        if known is None:
            return _write(paths, name, finding, piece, crc)
        if known.get("crc") == crc and known.get("kept") == len(piece):
            return paths.quarantine / f"{name}.bin"
    return None


def save_found(paths: SpoolPaths, finding: Finding) -> Path | None:
    """The same, the bytes read from where the finding says; None when they cannot be had."""
    source = place_of(paths, finding.file)
    if source is None or finding.length <= 0:
        return None
    try:
        file = open_file(source)
    except (FileNotFoundError, DiskError):
        return None  # the finding itself says so
    try:
        length = min(finding.length, PIECE_BYTES_MAX)
        data = read_salvaged(file, length, finding.offset, _SECTOR)
    finally:
        file.close()
    return save(paths, finding, data)


def place_of(paths: SpoolPaths, name: str) -> Path | None:
    """Where the spool file lies that a finding names; None for a name that is none of ours."""
    if re.fullmatch(r"[0-9]{10}\.jnl", name):
        current = paths.journal / name
        return current if durable.status(current) is not None else paths.archive / name
    if re.fullmatch(r"[0-9]{10}\.sto", name):
        return paths.store / name
    if re.fullmatch(r"[0-9]{1,2}QP|poolctrl|checkpoint\.dw", name):
        return paths.msgpool / name
    return None


def _note(path: Path) -> dict[str, object] | None:
    try:
        found = json.loads(read_file(path, _NOTE_BYTES_MAX))
    except FileNotFoundError:
        return None
    except (ValueError, DiskError):
        return {}  # occupied by something that is not ours
    return found if isinstance(found, dict) else {}


def _write(paths: SpoolPaths, name: str, finding: Finding, piece: bytes, crc: int) -> Path | None:
    listed = durable.list_directory(paths.quarantine)
    if sum(each.endswith(".json") for each in listed) >= PIECES_MAX:
        return None
    note = {
        "file": finding.file, "offset": finding.offset, "length": finding.length,
        "record": finding.record, "lsn": finding.lsn, "kind": finding.kind.value,
        "reason": finding.reason[:_REASON_CHARACTERS], "kept": len(piece), "crc": crc,
        "time": clock.iso_time(clock.wall_ns()),
    }  # fmt: skip
    target = paths.quarantine / f"{name}.bin"
    write_new_file(target, [piece]).close()
    text = json.dumps(note, sort_keys=True) + "\n"
    write_new_file(paths.quarantine / f"{name}.json", [text.encode()]).close()
    return target
