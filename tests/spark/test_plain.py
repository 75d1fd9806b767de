"""Decoding, planning, scheduling and the generator: plain functions, no JVM."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pytest
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StructField, StructType

from omq.base.errors import BadRequest, Damaged, MixedArchives, NoArchive
from omq.format.archive import ArchiveHeader
from omq.format.findings import Finding, Kind
from omq.format.journal import FrameType
from omq.storage import durable
from omq.storage.archive_file import ArchiveFile
from omq.storage.disk import Disk
from omqtools.omqspark import columns, decode, parquet, plan, session, whatif
from omqtools.omqspark.advise import day_rows
from omqtools.omqspark.audit import file_findings
from omqtools.omqspark.decode import Filter
from omqtools.omqspark.instants import at_instant
from omqtools.omqspark.manifest import FileRecord, Manifest
from omqtools.omqspark.pipeline import run
from omqtools.omqspark.replay import ERROR_SHARE_MAX, percentiles, replay
from omqtools.omqspark.source import OmqjSource, PushdownReader, Reader, StreamReader
from omqtools.omqspark.source_read import Work
from omqtools.omqspark.tables import refuse
from omqtools.omqspark.whatif import (
    OUT_OF_TURN_MIN,
    TOLD,
    out_of_turn,
    queue_rows,
    readers_seen,
)
from tests.made.generate import generate
from tests.made.generator import Load, Traffic
from tests.made.truth import differences
from tests.made.writer import UUID
from tests.spark.conftest import generated

NAMES = list(columns.EVENTS)
EVENTS = parquet.schema_of("events")


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of 3 files or more, without faults."""
    return generated(tmp_path_factory, 6000, file_frames=12_000)[0] / "archive"


def tasks(where: Path, split_bytes: int = plan.SPLIT_BYTES) -> list[list[plan.Split]]:
    return plan.splits(plan.heads(str(where), plan.listing(str(where))), split_bytes)


def table(where: Path, names: list[str] = NAMES, filters: list[Filter] | None = None,
          split_bytes: int = plan.SPLIT_BYTES) -> pa.Table:
    found = [batch for task in tasks(where, split_bytes)
             for batch in decode.event_batches(task, names, filters or [], str(where))]
    return pa.Table.from_batches(found, columns.arrow_schema("events", names))


def copied(clean: Path, to: Path) -> Path:
    shutil.copytree(clean, to / "archive")
    return to / "archive"


def changed(path: Path, change: Any) -> None:
    data = bytearray(path.read_bytes())
    path.write_bytes(change(data) or data)


def test_every_frame_comes_out_in_order(clean: Path) -> None:
    found = table(clean)
    lsn = found["lsn"].to_numpy()
    assert lsn.tolist() == list(range(1, len(lsn) + 1))
    assert found["bad"].null_count == len(found)
    moves = found.filter(pa.compute.equal(found["type"], int(FrameType.MOVE)))
    assert {tuple(onto) for onto in moves["onto"].to_pylist()} == {(4,), (5,)}
    puts = found.filter(pa.compute.equal(found["type"], int(FrameType.PUT)))
    assert len(puts) == 6000
    assert set(puts["onto"].to_pylist()) == {None}


@pytest.mark.parametrize("split_bytes", [1, 1 << 20, 4 << 20])
def test_splits_of_any_size_give_the_same(clean: Path, split_bytes: int) -> None:
    names = ["lsn", "onto", "queue"]
    assert table(clean, names, split_bytes=split_bytes).sort_by("lsn") == table(clean, names)


def test_small_files_share_a_task_and_large_ones_are_split(clean: Path) -> None:
    assert len(tasks(clean)) == 1
    many = tasks(clean, 1 << 20)
    assert len(many) > len(plan.listing(str(clean)))


def test_chosen_columns_come_in_the_order_asked_for(clean: Path) -> None:
    found = table(clean, ["queue", "lsn"])
    assert found.column_names == ["queue", "lsn"]


@pytest.mark.parametrize("filters", [
    [Filter("type", "=", int(FrameType.DEFER))],
    [Filter("lsn", ">=", 5000), Filter("lsn", "<", 5100)],
    [Filter("qpool", "in", [17, 3999])],
    [Filter("queue", "=", 4), Filter("type", "=", int(FrameType.GIVE))],
    [Filter("time_ns", "<=", 0)],
])  # fmt: skip
def test_filters_give_what_a_filter_afterwards_gives(clean: Path, filters: list[Filter]) -> None:
    expected = table(clean)
    for each in filters:
        values = expected[each.column].to_numpy()
        expected = expected.filter(pa.array(decode._TEST[each.test](values, each.value)))
    assert table(clean, filters=filters).equals(expected)


@pytest.mark.parametrize("kind", [EqualTo, GreaterThan, GreaterThanOrEqual, LessThan,
                                  LessThanOrEqual])
def test_an_instant_is_pushed_down_as_nanoseconds(clean: Path, kind: Any) -> None:
    """`ts` is in whole microseconds, the frames' time is not."""
    whole = table(clean)
    some = whole["ts"][len(whole) // 2].as_py()
    assert whole["time_ns"][len(whole) // 2].as_py() % 1000, "or nothing is rounded"
    reader = PushdownReader({"path": str(clean), "pushdown": "true"}, EVENTS)
    assert list(reader.pushFilters([kind(("ts",), some)])) == []
    test = {EqualTo: "equal", GreaterThan: "greater", GreaterThanOrEqual: "greater_equal",
            LessThan: "less", LessThanOrEqual: "less_equal"}[kind]
    expected = whole.filter(getattr(pa.compute, test)(whole["ts"], whole["ts"][len(whole) // 2]))
    assert 0 < len(expected) < len(whole)
    assert table(clean, filters=reader.work.filters).equals(expected)


@pytest.mark.parametrize("left", [
    In(("ts",), (datetime(2026, 1, 1, tzinfo=UTC),)), EqualTo(("ts",), datetime(2026, 1, 1)),
    LessThan(("ts",), datetime(1969, 1, 1, tzinfo=UTC)), EqualTo(("ts",), None),
    EqualTo(("lsn",), -1), EqualTo(("bad",), "x"), EqualTo(("type", "of"), 1), In(("lsn",), ())])
def test_what_is_not_pushed_down_is_left_to_spark(clean: Path, left: Any) -> None:
    reader = PushdownReader({"path": str(clean), "pushdown": "true"}, EVENTS)
    assert list(reader.pushFilters([left])) == [left]
    assert reader.work.filters == []


def test_filters_skip_blocks(clean: Path) -> None:
    fs, _ = plan.filesystem(str(clean))
    with plan.opened(fs, tasks(clean)[0][0]) as file:
        assert isinstance(file, ArchiveFile)
        wanted = decode._wanted(file, [Filter("lsn", "<", 100)])
    assert wanted is not None
    assert 0 < np.count_nonzero(wanted) < len(wanted) / 2


def bad_rows(where: Path) -> list[dict[str, Any]]:
    texts = [text for text in table(where, ["lsn", "bad"])["bad"].to_pylist() if text]
    return [json.loads(text) for text in texts]


def test_a_cut_file_is_a_row_and_the_rest_comes_out(clean: Path, tmp_path: Path) -> None:
    where = copied(clean, tmp_path)
    path = where / "0000000002.oma"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    kinds = [row["kind"] for row in bad_rows(where)]
    assert kinds[0] == "torn"
    assert "gap" in kinds
    assert 0 < len(table(where, ["lsn"])) < len(table(clean, ["lsn"]))


def test_a_flipped_bit_in_a_compressed_frame(clean: Path, tmp_path: Path) -> None:
    where = copied(clean, tmp_path)

    def flip(data: bytearray) -> None:
        data[5000] ^= 1

    changed(where / "0000000001.oma", flip)
    bad = bad_rows(where)
    assert bad, "each block that it reached says so"
    for row in bad:
        assert row["kind"] == "corrupt"
        assert row["path"].endswith("0000000001.oma")
    names = ["lsn", "time_ns", "type", "qpool", "size", "pid"]
    before = {tuple(row.values()) for row in table(clean, names).to_pylist()}
    after = {tuple(row.values()) for row in table(where, names).to_pylist()} - {(None,) * 6}
    assert after < before, "nothing comes out that was not there"


def test_a_bad_block_gives_up_only_its_bad_journal_block(tmp_path: Path) -> None:
    durable.use(Disk())
    truth = generate(tmp_path, 500, faults=1, load=Load(rate=200.0), file_frames=100_000)
    found = table(tmp_path / "archive", ["lsn", "bad"])
    bad = [json.loads(text) for text in found["bad"].to_pylist() if text]
    assert [row["reason"] for row in bad] == ["block fails its CRC"]
    lsn = {n for n in found["lsn"].to_pylist() if n is not None}
    lost = truth["frames"] - len(lsn)
    assert 64 <= lost < 511, "one journal block, and those over the edges of the sealed block"


def test_nothing_is_salvaged_from_a_block_that_the_head_does_not_count(clean: Path) -> None:
    fs, _ = plan.filesystem(str(clean))
    with plan.opened(fs, tasks(clean)[0][0]) as file:
        assert isinstance(file, ArchiveFile)
        bad = Finding(Kind.CORRUPT, "as if", record=0)
        assert sum(map(len, decode.Salvager(file).blocks(0, bad))) > 0
        file.header = replace(file.header, frames=0)
        assert decode.Salvager(file).blocks(0, bad) == []


def test_foreign_and_renamed_files(clean: Path, tmp_path: Path) -> None:
    where = copied(clean, tmp_path)
    (where / "notes.txt").write_text("not ours")
    (where / "0000000099.oma").write_bytes(b"PK" * 500)
    shutil.copy(where / "0000000001.oma", where / "0000000098.oma")
    assert sorted(row["kind"] for row in bad_rows(where)) == ["foreign", "foreign"]


def test_a_newer_file_is_not_called_damage(clean: Path, tmp_path: Path) -> None:
    where = copied(clean, tmp_path)

    def newer(data: bytearray) -> None:
        data[16] = 9

    changed(where / "0000000001.oma", newer)
    assert [row["kind"] for row in bad_rows(where)] == ["newer"]


def test_no_archive(tmp_path: Path) -> None:
    for where in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(NoArchive):
            plan.listing(str(where))


def test_archives_of_two_instances(clean: Path, tmp_path: Path,
                                   monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.made.writer.UUID", bytes(16))
    generate(tmp_path / "other", 10, faults=0, load=Load(), file_frames=1000)
    where = copied(clean, tmp_path)
    shutil.copy(tmp_path / "other" / "archive" / "0000000001.oma", where / "0000000001.oma")
    with pytest.raises(MixedArchives, match=UUID.hex()):
        plan.heads(str(where), plan.listing(str(where)))


def manifest_of(where: Path) -> Manifest:
    known = Manifest()
    for item, header in plan.heads(str(where), plan.listing(str(where))):
        if isinstance(header, ArchiveHeader):
            known.take(FileRecord.of(header, item.size, 0))
    return known


def test_missing_numbers_and_lsns_between_files(clean: Path, tmp_path: Path) -> None:
    where = copied(clean, tmp_path)
    (where / "0000000002.oma").unlink()
    found, counts = file_findings(manifest_of(where), [])
    assert sorted(each["kind"] for each in found) == ["gap", "missing_file"]
    assert counts == {"crc": 0, "gap": 1, "missing_file": 1}
    assert file_findings(manifest_of(clean), [])[0] == []


def test_a_number_far_away_costs_nothing(clean: Path, tmp_path: Path) -> None:
    """A name alone is believed nothing; a head is, but its hole is not counted one by one."""
    where = copied(clean, tmp_path)
    shutil.copy(where / "0000000001.oma", where / "9999999999.oma")
    (where / "0000000099.oma").write_bytes(b"not an archive")
    work = Work({"path": str(where)}, ["lsn", "bad"])
    assert not [text for task in work.tasks(work.listing()) for text in task.bad]
    known = manifest_of(where)
    known.take(replace(known.files[1], number=4_000_000_000))
    found, counts = file_findings(known, [])
    assert counts["missing_file"] == 4_000_000_000 - max(manifest_of(clean).files) - 1
    assert len(found) < 300


def rows_of(where: Path, name: str = "events", **options: str) -> pa.Table:
    """All rows of a table as a worker of Spark would have them."""
    told = {"path": str(where), "table": name, **options}
    schema = OmqjSource(told).schema()
    reader = Reader(told, schema)
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    return pa.Table.from_batches(batches, to_arrow_schema(schema, timezone="UTC"))


@pytest.mark.parametrize("name", list(columns.TABLES))
def test_what_fails_fast_reads_the_same_and_is_never_null(clean: Path, name: str) -> None:
    usual, quick = rows_of(clean, name), rows_of(clean, name, mode="failfast")
    assert len(quick)
    assert quick.cast(usual.schema).equals(usual)
    assert {each.name for each in quick.schema if each.nullable} == (
        columns.SPARSE & set(quick.column_names))
    assert all(each.nullable for each in usual.schema)


def test_columns_are_chosen_by_name(clean: Path) -> None:
    """Only these are decoded, in this order; `bad` need not be among them."""
    for mode in ("PERMISSIVE", "FAILFAST"):
        found = rows_of(clean, columns="queue, lsn,", mode=mode)
        assert found.column_names == ["queue", "lsn"]
        assert found.cast(columns.arrow_schema("events", ["queue", "lsn"])) == table(
            clean, ["queue", "lsn"])


@pytest.mark.parametrize("options", [{}, {"columns": "lsn"}, {"table": "blocks"},
                                     {"table": "dict"}])
def test_damage_ends_what_fails_fast(clean: Path, tmp_path: Path, options: dict[str, str]) -> None:
    """A byte here and there, where this table looks, and what has no table of its own; then a file
    that is missing."""
    where = copied(clean, tmp_path)
    path = where / "0000000002.oma"
    right = path.read_bytes()
    name = options.get("table", "events")
    told = 0
    places = [*range(4096, len(right) * 9 // 10, len(right) // 20),
              *range(len(right) * 9 // 10, len(right), len(right) // 400)]
    for at in places:
        path.write_bytes(right[:at] + bytes([right[at] ^ 16]) + right[at + 1:])
        bad = [text for text in rows_of(where, name)["bad"].to_pylist() if text]
        if not bad:
            assert len(rows_of(where, mode="FAILFAST", **options))
            continue
        told += 1
        with pytest.raises(Damaged, match=re.escape(json.loads(bad[0])["reason"])) as caught:
            rows_of(where, mode="FAILFAST", **options)
        assert str(path) in str(caught.value)
    assert told, "no byte that this table looks at was spoiled"
    path.unlink()
    with pytest.raises(Damaged, match="file number 2 is missing"):
        rows_of(where, mode="FAILFAST", **options)


@pytest.mark.parametrize(("options", "nullable", "reason"), [
    ({"mode": "DROPMALFORMED"}, {"lsn": True}, "WHERE bad IS NULL"),
    ({}, {"lsn": False, "queue": True}, "lsn: NOT NULL"),
    ({"mode": "FAILFAST"}, {"lsn": False, "onto": False}, "onto: NOT NULL"),
    ({}, {"lsn": True, "colour": True}, "no column colour")])
def test_what_cannot_be_promised_is_refused(clean: Path, options: dict[str, str],
                                            nullable: dict[str, bool], reason: str) -> None:
    """A schema of the user's own says NOT NULL of some columns."""
    asked = StructType([StructField(name, LongType(), may) for name, may in nullable.items()])
    with pytest.raises(BadRequest, match=reason):
        Reader({"path": str(clean), **options}, asked)
    with pytest.raises(BadRequest, match="no column colour"):
        OmqjSource({"columns": "lsn,colour"}).schema()


def test_one_reader_serves_by_priority_then_arrival() -> None:
    arrival, priority = np.array([0.0, 1.0, 2.0, 3.0]), np.array([4, 4, 9, 4])
    done = replay(arrival, priority, np.full(4, 10.0), 1)
    assert done.start.tolist() == [0.0, 20.0, 10.0, 30.0]
    assert done.free == [40.0]


def test_the_main_reader_is_preferred() -> None:
    done = replay(np.array([0.0, 1.0, 30.0]), np.full(3, 4), np.full(3, 10.0), 3)
    assert done.reader.tolist() == [0, 1, 0]
    assert done.start.tolist() == [0.0, 1.0, 30.0]


def test_busy_readers_are_waited_for() -> None:
    done = replay(np.array([0.0]), np.array([4]), np.array([1.0]), 2, free=[7.0, 5.0])
    assert (done.start.tolist(), done.reader.tolist()) == ([5.0], [1])


def test_a_batch_is_what_is_there_when_it_is_asked_for() -> None:
    arrival = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    done = replay(arrival, np.array([4, 4, 4, 9, 4]), np.full(5, 10.0), 1, batch=3)
    assert done.start.tolist() == [0.0, 10.0, 10.0, 10.0, 40.0]
    assert done.free == [50.0]


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_whatif_finds_the_batch_and_then_the_waits(batch: int) -> None:
    random = np.random.default_rng(3)
    arrival = np.cumsum(random.exponential(1.0, 400)).round(6)
    work = random.exponential(1.9, 400).round(6)
    done = replay(arrival, np.full(400, 4), work, 2, batch=batch)
    frame = pd.DataFrame({
        "queue": 3, "arrived_ns": (arrival * 1e9).astype("<i8"), "arrived_lsn": np.arange(400),
        "given_ns": (done.start * 1e9).astype("<i8"), "priority": 4,
        "left_ns": ((done.start + work) * 1e9).astype("<i8"),
        "work_ns": (work * 1e9).astype("<i8"), "reader": done.reader, "last_epoch": 1,
        "apart": False, "elsewhere": False})
    real, replayed, asked = queue_rows(frame, {3: 4})
    assert real["batch"] == batch
    assert replayed["mean_s"] == pytest.approx(real["mean_s"], abs=1e-5)
    assert asked["error_s"] < 1e-5
    assert asked["mean_s"] < real["mean_s"] / 2


def served(arrival: Any, work: Any, readers: int) -> pd.DataFrame:
    """Stays of one queue, as so many readers had them."""
    done = replay(arrival, np.full(len(arrival), 4), work, readers)
    return pd.DataFrame({
        "queue": 3, "arrived_ns": (arrival * 1e9).astype("<i8"),
        "arrived_lsn": np.arange(len(arrival)), "given_ns": (done.start * 1e9).astype("<i8"),
        "priority": 4, "left_ns": ((done.start + work) * 1e9).astype("<i8"),
        "work_ns": (work * 1e9).astype("<i8"), "reader": done.reader, "last_epoch": 1,
        "apart": False, "elsewhere": False})


def test_a_reader_of_several_at_once_is_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the service that sends mail: one process has up to six in hand, and ends each when its
    peer has taken it. Another window is another wait; as many in all are the same."""
    random = np.random.default_rng(3)
    arrival = np.cumsum(random.exponential(1.0, 400)).round(6)
    held = random.exponential(5.5, 400).round(6)
    frame = served(arrival, held, 6).assign(reader=1)
    order = np.argsort(frame["left_ns"].to_numpy())
    left = frame["left_ns"].to_numpy()[order]
    since = np.maximum(frame["given_ns"].to_numpy()[order], np.concatenate([[0], left[:-1]]))
    frame.loc[order, "work_ns"] = left - since  # as with_work tells it: one after another
    real, replayed, asked = queue_rows(frame, {3: 2})
    assert (real["readers"], real["at_once"], real["batch"]) == (1, 6, 1)
    assert replayed["mean_s"] == pytest.approx(real["mean_s"], abs=1e-5)
    waits = replay(arrival, np.full(400, 4), held, 12).start - arrival
    assert asked["mean_s"] == pytest.approx(float(waits.mean()), abs=1e-5)
    assert not asked["refused"] and 0 < asked["busy"] < replayed["busy"] <= 1
    assert out_of_turn(frame) > 5 * OUT_OF_TURN_MIN
    monkeypatch.setattr(whatif, "OUT_OF_TURN_MIN", 1)
    assert queue_rows(frame, {3: 2})[2]["refused"], "told one after another it cannot be replayed"


def test_who_ends_messages_in_their_order_does_one_after_another() -> None:
    rows = [{"last_epoch": 1, "reader": reader, "given_ns": given, "left_ns": given + left}
            for reader in (1, 2) for given in range(0, 1000, 100)
            for left in (90, 30, 60)]  # three taken together, ended in any order
    assert out_of_turn(pd.DataFrame(rows)) == 0
    rows[4]["left_ns"] = 350  # behind the next three and one of those after them
    assert out_of_turn(pd.DataFrame(rows)) == 4 / 60


def test_what_takes_a_readers_time_is_a_load() -> None:
    """Half of the messages are attempts once more, or of another queue: those that are judged wait
    for them, and without them the replay would be off."""
    random = np.random.default_rng(4)
    arrival = np.cumsum(random.exponential(1.0, 400)).round(6)
    work = random.exponential(1.5, 400).round(6)
    load = random.random(400) < 0.5
    done = replay(arrival, np.where(load, 10, 4), work, 2)
    frame = served(arrival, work, 2)
    frame["given_ns"], frame["reader"] = (done.start * 1e9).astype("<i8"), done.reader
    frame["left_ns"] = ((done.start + work) * 1e9).astype("<i8")
    frame["apart"] = load
    frame["elsewhere"] = load & (random.random(400) < 0.5)
    frame.loc[load, "arrived_ns"] = frame.loc[load, "given_ns"]  # they come when they began
    real, replayed, asked = queue_rows(frame, {3: 4})
    assert real["messages"] == int((~load).sum())
    assert real["left_out"] == int((load & ~frame["elsewhere"]).sum())
    assert replayed["error_share"] < ERROR_SHARE_MAX and not asked["refused"]
    without = queue_rows(frame[~load], {3: 4})
    assert without[2]["refused"] and without[0]["error_share"] > 3 * ERROR_SHARE_MAX


def test_what_cannot_tell_the_past_is_not_asked() -> None:
    random = np.random.default_rng(3)
    arrival = np.cumsum(random.exponential(1.0, 400)).round(6)
    frame = served(arrival, random.exponential(1.5, 400).round(6), 2)
    frame["given_ns"] += 20 * 10**9  # all were held back by something that no rule here knows
    frame["left_ns"] += 20 * 10**9
    real, replayed, asked = queue_rows(frame, {3: 4})
    assert real["error_share"] > ERROR_SHARE_MAX
    assert (real["refused"], replayed["refused"], asked["refused"]) == (False, False, True)
    assert real["p50_s"] >= 20
    assert {asked[name] for name in TOLD} == {None}
    assert {row["readers"] for row in day_rows(frame, 1.0)} == {None}


def test_advice_is_the_least_number_of_readers_that_does_it() -> None:
    """Hours of different load; with one reader less the wait is longer than wished."""
    random = np.random.default_rng(5)
    calm = np.sort(random.uniform(0, 3600, 200))
    busy = 3600 + np.sort(random.uniform(0, 3600, 1400))
    arrival = np.concatenate([calm, busy]).round(6)
    work = random.exponential(6.0, len(arrival)).round(6)
    frame = served(arrival, work, 4)
    one, two = day_rows(frame, 10.0)
    assert (one["arrivals"], two["arrivals"]) == (200, 1400)
    assert one["readers"] < two["readers"]
    for row, low in ((one, 0.0), (two, 3600.0)):
        mine = (arrival >= low) & (arrival < low + 3600)
        for readers, enough in ((row["readers"], True), (row["readers"] - 1, False)):
            if readers:
                waits = replay(arrival, np.full(len(arrival), 4), work, readers).start - arrival
                assert (np.quantile(waits[mine], 0.95) <= 10.0) is np.bool_(enough)
        assert row["p95_s"] <= 10.0
        assert (row["had"], row["refused"]) == (4, False)
    assert day_rows(frame.assign(apart=True), 10.0) == []
    assert day_rows(frame[frame["arrived_ns"] < 3600 * 10**9], 1e6)[0]["readers"] == 1


def test_readers_that_follow_each_other_are_one() -> None:
    """Twelve processes, two at a time: each died and was replaced."""
    rows = [{"last_epoch": 1, "reader": r, "given_ns": (r // 2) * 100 + k * 10,
             "left_ns": (r // 2) * 100 + k * 10 + 10} for r in range(12) for k in range(10)]
    assert readers_seen(pd.DataFrame(rows)) == 2


def test_replay_never_overlaps_a_reader_and_keeps_order() -> None:
    random = np.random.default_rng(3)
    arrival = np.cumsum(random.exponential(1.0, 500))
    work = random.exponential(2.5, 500)
    done = replay(arrival, np.full(500, 4), work, 3)
    assert (done.start >= arrival).all()
    assert (np.diff(done.start) >= 0).all(), "one priority: first come, first served"
    for reader in range(3):
        mine = done.reader == reader
        assert (done.start[mine][1:] >= (done.start + work)[mine][:-1]).all()


def test_percentiles() -> None:
    assert percentiles(np.arange(101.0)) == {"p50": 50.0, "p90": 90.0, "p99": 99.0}
    assert percentiles(np.zeros(0)) == {}


def test_traffic_is_the_same_for_the_same_seed_and_leaves_nothing_out() -> None:
    one, two = (Traffic(Load(seed=5)) for _ in range(2))
    first, again = one.piece(500), two.piece(500)
    assert first.tobytes() == again.tobytes()
    assert (np.diff(first["time"]) >= 0).all()
    assert len(np.unique(first["qpool"][first["type"] == FrameType.PUT])) >= 499


def test_differences() -> None:
    truth = {"faults": [{"kind": "lost", "qpool": 4}, {"kind": "gap", "lsn": 9, "count": 5}]}
    verdict = {"findings": [{"kind": "gap", "lsn": 9, "file": 3},
                            {"kind": "crc", "file": 2, "detail": ""}]}
    assert differences(truth, verdict) == ({("lost", 4)}, {("crc", 2)})


def test_what_cannot_be_committed_is_refused_before_anything(tmp_path: Path) -> None:
    for out in ("hdfs://nodes/omq/tables", "HDFS:///omq", "viewfs://a/b"):
        with pytest.raises(BadRequest, match="delta-rs does not know"):
            run(None, str(tmp_path), out, incremental=True)  # type: ignore[arg-type]
    for out in (str(tmp_path), "s3://bucket/tables", "file:///srv/tables", "/srv/hdfs"):
        refuse(out)


@pytest.mark.parametrize(("frames", "cores", "expected"), [
    (10_000, 2, ("false", "NO_CODEGEN", "false", "1")),
    (200_000, 2, ("false", "NO_CODEGEN", "true", "2")),
    (5_000_000, 2, ("true", "FALLBACK", "true", "20")),
    (5_000_000, 64, ("true", "FALLBACK", "true", "64")),
    (10**12, 2, ("true", "FALLBACK", "true", "20000"))])
def test_a_batch_is_done_as_its_size_asks(frames: int, cores: int, expected: tuple[str, ...]
                                          ) -> None:
    said: dict[str, str] = {}
    told: set[str] = set()
    spark = SimpleNamespace(
        sparkContext=SimpleNamespace(defaultParallelism=cores, getConf=lambda: SimpleNamespace(
            contains=told.__contains__)),
        conf=SimpleNamespace(set=said.__setitem__))
    assert session.sized(spark, frames) is (frames < 100_000)  # type: ignore[arg-type]
    assert tuple(said.values()) == expected
    told.add("spark.sql.shuffle.partitions")
    said.clear()
    session.sized(spark, frames)  # type: ignore[arg-type]
    assert tuple(said.values()) == expected[:3], "what somebody has set stays"


def test_the_jvm_compiles_little_unless_somebody_configures_it(monkeypatch: pytest.MonkeyPatch
                                                               ) -> None:
    for own, expected in ({}, True), ({"SPARK_CONF_DIR": "/etc/spark"}, False):
        monkeypatch.setattr(os, "environ", dict(own))
        session._environment({"spark.driver.memory": "1g"}, session.QUICK)
        assert ("TieredStopAtLevel=1" in os.environ["PYSPARK_SUBMIT_ARGS"]) is expected


def test_at_instant() -> None:
    assert at_instant("42") == (42, None)
    assert at_instant("2026-01-31T12:00") == (None, 1_769_860_800_000_000_000)
    assert at_instant("2026-01-31T12:00+01:00") == (None, 1_769_857_200_000_000_000)


def test_a_stream_waits_for_the_file_that_is_missing(clean: Path, tmp_path: Path) -> None:
    where = copied(clean, tmp_path)
    held = tmp_path / "0000000002.oma"
    (where / held.name).rename(held)
    (where / "0000000099.oma").write_bytes(b"a stray file")
    options = {"path": str(where)}
    stream, everything = StreamReader(options, EVENTS), ReadAllAvailable()
    start = stream.initialOffset()
    assert stream.latestOffset(start, everything) == {"file": 1}
    hasty = StreamReader(options | {"waitForMissing": "false"}, EVENTS)
    assert hasty.latestOffset(start, everything) == {"file": 99}
    held.rename(where / held.name)
    last = max(item.number for item in plan.listing(str(clean)))
    assert stream.latestOffset({"file": 1}, everything) == {"file": last}
