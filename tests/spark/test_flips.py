"""Every byte of an archive file counts: flip it, and it is told, or what is read is the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omqtools.omqspark import columns, decode, plan
from omqtools.omqspark.plan import Listed
from tests.spark.conftest import generated

TABLES: dict[str, Callable[..., Iterator[pa.RecordBatch]]] = {
    "events": decode.event_batches, "blocks": decode.block_batches, "dict": decode.name_batches}
BIT_OF_BYTE = 5  # with its place: so that all bits are tried


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generated(tmp_path_factory, 4, file_frames=10_000)[0] / "archive" / "0000000001.oma"


def read(where: Path) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Every table of one file, and what each says to be wrong with it."""
    found = plan.heads(str(where.parent), [Listed(1, str(where), where.stat().st_size)])
    splits = [split for task in plan.splits(found, plan.SPLIT_BYTES) for split in task]
    tables, bad = {}, {}
    for name, batches in TABLES.items():
        names = list(columns.TABLES[name])
        table = pa.Table.from_batches(batches(splits, names, where=str(where.parent)),
                                      columns.arrow_schema(name, names))
        table.validate(full=True)  # the JVM reads it without looking at bounds (session.ARROW)
        bad[name] = [text for text in table["bad"].to_pylist() if text]
        tables[name] = table
    return tables, bad


def test_every_flipped_byte_is_reported_or_changes_nothing(small: Path, tmp_path: Path) -> None:
    before, bad = read(small)
    assert not any(bad.values())
    assert all(len(table) for table in before.values()), "there is something of each"
    data, path = small.read_bytes(), tmp_path / small.name
    silent = []
    for at in range(len(data)):
        spoiled = bytearray(data)
        spoiled[at] ^= 1 << (at * BIT_OF_BYTE % 8)
        path.write_bytes(spoiled)
        tables, bad = read(path)
        if not any(bad.values()):
            silent.append(at)
        for name, told in bad.items():  # who reads one table hears of what it lost
            assert told or tables[name] == before[name], f"byte {at}: other {name}, and no word"
            assert all(json.loads(text)["reason"] for text in told)
    assert len(silent) < len(data) / 100, f"{len(silent)} of {len(data)}: what is not looked at?"


def test_a_file_that_may_not_be_read_is_a_finding(small: Path, tmp_path: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / small.name
    path.write_bytes(small.read_bytes())

    def refused(self: plan.Reader, length: int, offset: int) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(plan.Reader, "read", refused)
    tables, bad = read(path)
    assert {json.loads(text)["kind"] for told in bad.values() for text in told} == {"unreadable"}
    assert len(tables["events"]) == 1
