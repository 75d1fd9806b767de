"""Plain records of the pool by one loop (omq.fast.pool_rows), and by numpy: the same index and the
same findings; whatever is not plain, or not whole, is left to numpy."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import random
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import pytest

from omq.base import form
from omq.base.checksum import crc32c
from omq.core.engine.state import Core
from omq.core.index.tables import Tables
from omq.core.load.pool_columns import _COLUMNS, _PARTS, PlainRows
from omq.core.load.rebuild import load
from omq.format.pool import (
    CRC_FROM,
    RECORD,
    RECORD_BYTES,
    Message,
    PartState,
    QueuePart,
    RecordKind,
    encode_message,
)
from omq.storage import pool_scan
from omq.storage.pool import PoolFiles
from omq.storage.slots import SlotAllocator
from omq.storage.spool import create_spool
from tests.forms.running import ROOT
from tests.unit.format.samples import pool_message

SOURCE: Final = (ROOT / "lib" / "omq" / "fast" / "pool_rows.py").read_text(encoding="utf-8")
FILE, FIRST = 11, 5
CHUNK: Final = 8


def interpreted(source: str = SOURCE) -> PlainRows:
    """The source, or a changed one, as Python."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "pool_rows.py")
        path.write_text(source, encoding="utf-8")
        spec = importlib.util.spec_from_file_location("pool_rows", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return cast(PlainRows, module.PoolRows())


def compiled() -> PlainRows:
    from omq.fast.pool_rows import PoolRows, usable

    if not usable():
        pytest.skip("there is no build, or this processor has no instruction for CRC-32C")
    return cast(PlainRows, PoolRows())


MADE: Final = [pytest.param(interpreted, id="interpreted"), pytest.param(compiled, id="compiled")]


def bound(rows: PlainRows, room: int) -> tuple[dict[str, Any], dict[str, Any]]:
    messages = {name: np.zeros(room, dtype) for name, dtype in _COLUMNS}
    parts = {name: np.zeros(room, dtype) for name, dtype in _PARTS}
    rows.bind(messages, parts)
    return messages, parts


def plain(record: int, parts: int = 1, **changes: Any) -> Message:
    listed = [QueuePart(7, 9, PartState.PREPARED, 254, 255, 0xF1F2F3F4, 0xE1E2E3E4,
                        0xD1D2D3D4D5D6D7D8)][:parts]
    return replace(pool_message(record=record), parts=listed, more=[], time_ns=-3, expiry=-5,
                   qpool=0xC1C2C3C4C5C6C7C8, correlation_id=bytes(range(24)), group=1 << 63,
                   origin=0xABCD, trace=0xB1B2B3B4B5B6B7B8, group_sequence=0xFFFFFFFE, **changes)


def image(message: Message) -> bytes:
    ((_, found),) = encode_message(message)
    return found


def sealed(raw: bytes, **fields: int) -> bytes:
    """The record with these fields of its head, and a CRC that fits."""
    values = {**RECORD.as_dict(raw), **fields}
    made = bytearray(RECORD.pack(*(values[name] for name in RECORD.names)) + raw[RECORD.size :])
    end = min(max(values["used"], CRC_FROM), RECORD_BYTES)
    made[4:8] = crc32c(bytes(made[CRC_FROM:end])).to_bytes(4, "little")
    return bytes(made)


def graded(raw: bytes, grade: int) -> bytes:
    made = bytearray(raw)
    made[RECORD.size + 2] = grade
    return sealed(bytes(made))


@pytest.mark.parametrize("made", MADE)
def test_every_field_is_what_the_record_says(made: Callable[[], PlainRows]) -> None:
    rows = made()
    messages, parts = bound(rows, 9)
    chunk = image(plain(FIRST)) + bytes(RECORD_BYTES) + image(plain(FIRST + 2, parts=0))
    assert rows.take(chunk, FILE, FIRST, 3, 4) == 2
    assert rows.parts == 1
    wanted = np.frombuffer(chunk, dtype=pool_scan.DTYPE)
    for name, column in messages.items():
        assert column[3] == wanted[name][0] and column[4] == wanted[name][2], name
        assert not column[:3].any() if column.dtype.kind != "V" else not any(column[0].tobytes())
    for name, column in parts.items():
        assert column[4] == (3 if name == "row" else wanted["parts_list"][name][0][0]), name
        assert not column[5]


WRONG: Final = {  # what is not plain, or not whole -> the line of the source that sees it
    "version": ("head & 255 > _VERSION or ", sealed(image(plain(FIRST)), version=2)),
    "kind": ("head >> 8 & 255 != _LIVE or ",
             sealed(image(plain(FIRST)), kind=int(RecordKind.MORE))),
    "parts": (" or count > 1\n", sealed(image(plain(FIRST)), parts=2, used=RECORD.size + 42)),
    "used": ("used != 176 + 21 * count or ", sealed(image(plain(FIRST)), used=196)),
    "file": ("place & 255 != file or ", sealed(image(plain(FIRST)), file=FILE + 1)),
    "note": ("place >> 8 & 255\n", sealed(image(plain(FIRST)), note=1)),
    "record": ("self._words[at + 5] != slot or ", sealed(image(plain(FIRST)), record=FIRST + 1)),
    "next": ("self._words[at + 6] != _NONE\n", sealed(image(plain(FIRST)), next=9)),
    "crc": ("or _crc32c(self._bytes, 4 * at + 8, 4 * at + used) != self._words[at + 1]",
            image(plain(FIRST)).replace(b"\xc8\xc7\xc6\xc5", b"\xc8\xc7\xc6\xc4")),
    "last byte": ("or _crc32c(self._bytes, 4 * at + 8, 4 * at + used) != self._words[at + 1]",
                  image(plain(FIRST))[:196] + b"\0" + image(plain(FIRST))[197:]),
    "priority": ("grade & 15 > 9 or ", graded(image(plain(FIRST)), 0x1A)),
    "state": (" or not self._known >> (grade >> 4) & 1", graded(image(plain(FIRST)), 0x54)),
    "not free": ("                        return -1\n", bytes(511) + b"\1"),
    "magic": ("                        return -1\n", b"OMQX" + image(plain(FIRST))[4:]),
}
WITHOUT: Final = {  # the line without what sees it
    "parts": "\n", "note": "0\n", "next": "0\n",
    "not free": "                        pass\n", "magic": "                        pass\n"}


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("what", WRONG)
def test_what_is_not_plain_is_not_taken(what: str, made: Callable[[], PlainRows]) -> None:
    _, record = WRONG[what]
    assert len(record) == RECORD_BYTES
    for chunk in (record, record + image(plain(FIRST + 1)),):
        rows = made()
        bound(rows, 9)
        assert rows.take(chunk, FILE, FIRST, 0, 0) == -1
    rows = made()
    bound(rows, 9)
    assert rows.take(image(plain(FIRST)), FILE, FIRST, 0, 0) == 1, "the record itself is plain"


@pytest.mark.parametrize("what", WRONG)
def test_each_check_is_needed(what: str) -> None:
    line, record = WRONG[what]
    assert SOURCE.count(line) == 1, line
    rows = interpreted(SOURCE.replace(line, WITHOUT.get(what, "")))
    bound(rows, 9)
    assert rows.take(record, FILE, FIRST, 0, 0) >= 0


def random_pool(pool: PoolFiles, r: random.Random, count: int) -> None:
    """Messages as they come, on one queue mostly; some have a twin, an older record of theirs."""
    changes: dict[tuple[int, int], bytes | None] = {}
    for number in range(count):
        file, record = r.randrange(3), number if r.random() < 0.9 else number + 3 * count
        several = 0 if r.random() < 0.1 else r.choice((2, 17)) if r.random() < 0.02 else 1
        parts = [QueuePart(r.randrange(3, 6), r.randrange(10), r.choice(list(PartState)),
                           r.randrange(3), r.randrange(3), r.choice((0, 1 << 31)),
                           r.randrange(1 << 32), r.randrange(1, 1 << 40)) for _ in range(several)]
        message = replace(
            pool_message(record=record), file=file, parts=parts,
            more=[record + count] if several > 16 else [], qpool=number + 1 - (r.random() < 0.02),
            lsn=number + 1, message_id=r.randbytes(24), flags=r.choice((1, 1, 9)),
            correlation_id=bytes(24) if r.random() < 0.8 else r.randbytes(24),
            group=r.choice((0, 0, 1, 2)), group_sequence=r.randrange(3), expiry=0,
            time_ns=r.randrange(1 << 61))
        changes.update(((file, place), data) for place, data in encode_message(message))
    pool.write(changes)


def damaged(pool: PoolFiles, r: random.Random) -> None:
    for file in pool.files():
        opened = pool._open_or_make(file)
        for _ in range(2):
            at = r.randrange(RECORD_BYTES, opened.size())
            opened.write([bytes([opened.read(1, at)[0] ^ 1 << r.randrange(8)])], at)


def loaded(pool: PoolFiles, uuid: bytes, count: int, rows: PlainRows | None) -> object:
    core = Core(Tables.private(2 * count, 4 * count), SlotAllocator(), cast(Any, None), uuid)
    core.now_ns = 1 << 60
    slots = SlotAllocator()
    found = load(core, pool, slots, lambda _text: None, rows)
    kept = {name: getattr(core, name) for name in ("runs", "moments", "active")}
    kept["lanes"] = {queue: lane.items() for queue, lane in core.lanes.items()}
    return (bytes(core.t.buffer), dataclasses.asdict(found), kept, slots._files)


class _Counted:
    """Of the chunks, those that were taken."""

    def __init__(self, rows: PlainRows) -> None:
        self._rows, self.taken, self.left = rows, 0, 0

    @property
    def parts(self) -> int:
        return self._rows.parts

    def bind(self, messages: dict[str, Any], parts: dict[str, Any]) -> None:
        self._rows.bind(messages, parts)

    def take(self, data: bytes, file: int, first: int, row: int, part: int) -> int:
        found = self._rows.take(data, file, first, row, part)
        self.taken, self.left = self.taken + (found >= 0), self.left + (found < 0)
        return found


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("seed", range(6))
def test_the_index_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int,
                               made: Callable[[], PlainRows]) -> None:
    monkeypatch.setattr(pool_scan, "CHUNK_RECORDS", CHUNK)
    if seed % 2:  # room that grows, in between as well
        monkeypatch.setattr("omq.core.load.pool_columns._ROOM_MAX", 3)
    r, count = random.Random(seed), 400
    info = create_spool(tmp_path / "spool")
    with contextlib.closing(PoolFiles(info.paths, info.uuid)) as pool:
        random_pool(pool, r, count)
        if seed > 2:
            damaged(pool, r)
        rows = _Counted(made())
        wanted = loaded(pool, info.uuid, count, None)
        assert loaded(pool, info.uuid, count, rows) == wanted
    assert rows.taken > 20 and rows.left > 5


def test_a_start_takes_it_where_it_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    from omq.services.manager.parts import plain_rows

    monkeypatch.setenv(form.VARIABLE, form.OFF)
    assert plain_rows() is None
    monkeypatch.delenv(form.VARIABLE)
    from omq.fast import FORM

    rows = plain_rows()
    assert rows is None or FORM == form.COMPILED
