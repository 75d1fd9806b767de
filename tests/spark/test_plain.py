"""Decoding, planning, scheduling and the generator: plain functions, no JVM."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from omq.base.errors import MixedArchives, NoArchive
from omq.format.archive import ArchiveHeader
from omq.format.findings import Finding, Kind
from omq.format.journal import FrameType
from omq.storage import durable
from omq.storage.archive_file import ArchiveFile
from omq.storage.disk import Disk
from omqtools.omqspark import columns, decode, plan
from omqtools.omqspark.audit import file_findings
from omqtools.omqspark.decode import Filter
from omqtools.omqspark.generate import UUID, generate
from omqtools.omqspark.generator import Load, Traffic
from omqtools.omqspark.main import at_instant
from omqtools.omqspark.manifest import FileRecord, Manifest
from omqtools.omqspark.replay import percentiles, replay
from omqtools.omqspark.source import StreamReader, Work
from omqtools.omqspark.truth import differences
from omqtools.omqspark.whatif import queue_rows, readers_seen
from tests.spark.conftest import generated

NAMES = list(columns.EVENTS)


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
    monkeypatch.setattr("omqtools.omqspark.generate.UUID", bytes(16))
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
        "apart": False})
    real, replayed, asked = queue_rows(frame, {3: 4})
    assert real["batch"] == batch
    assert replayed["mean_s"] == pytest.approx(real["mean_s"], abs=1e-5)
    assert asked["error_s"] < 1e-5
    assert asked["mean_s"] < real["mean_s"] / 2


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
    stream, everything = StreamReader(options, NAMES), ReadAllAvailable()
    start = stream.initialOffset()
    assert stream.latestOffset(start, everything) == {"file": 1}
    hasty = StreamReader(options | {"waitForMissing": "false"}, NAMES)
    assert hasty.latestOffset(start, everything) == {"file": 99}
    held.rename(where / held.name)
    last = max(item.number for item in plan.listing(str(clean)))
    assert stream.latestOffset({"file": 1}, everything) == {"file": last}
