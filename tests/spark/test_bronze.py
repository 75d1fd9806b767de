"""Writing bronze and reading from any file system: plain functions, no JVM."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from omq.base.errors import BadRequest, SparkFailed
from omq.format.archive import NAME, ROW, NameKind
from omq.storage.archive_names import text_rows
from omqtools.omqspark import bronze, columns, decode, failures, plan
from omqtools.omqspark.source_read import Work
from tests.spark.conftest import generated

NAMES = list(columns.BRONZE)
FRAMES_MIN = 2400  # of 500 messages


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generated(tmp_path_factory, 500, file_frames=1000)[0] / "archive"


def written(where: Path) -> pa.Table:
    files = sorted(where.rglob("*.parquet"))
    return pa.concat_tables(pq.ParquetFile(path).read() for path in files)


def write(archive: Path, out: Path, number: int = 0) -> tuple[int, list[dict[str, Any]]]:
    work = Work({"path": str(archive)}, NAMES)
    (task,) = work.tasks(work.listing())
    done = bronze.write_task(work, task, number, str(out / "bronze"), str(out / "names"))
    assert not done.more
    return done.rows, done.findings


def test_a_task_writes_what_it_decodes(archive: Path, tmp_path: Path) -> None:
    rows, bad = write(archive, tmp_path)
    found = written(tmp_path / "bronze")
    assert found.schema == columns.arrow_schema("events", NAMES)
    assert len(found) == rows >= FRAMES_MIN
    assert bad == []
    assert found["lsn"].to_pylist() == list(range(1, rows + 1))
    assert "ROUTER" in written(tmp_path / "names")["text"].to_pylist()


def test_a_task_that_runs_twice_gives_the_same_bytes(archive: Path, tmp_path: Path) -> None:
    def files() -> dict[str, bytes]:
        return {str(p.relative_to(tmp_path)): p.read_bytes()
                for p in tmp_path.rglob("*") if p.is_file()}

    write(archive, tmp_path)
    before = files()
    write(archive, tmp_path)
    assert files() == before


def test_a_full_disk_leaves_no_file_that_counts(archive: Path, tmp_path: Path,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Any, table: Any, rows: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(OSError, match="No space left"):
        write(archive, tmp_path)
    assert [p for p in tmp_path.rglob("*") if p.is_file() and not p.name.startswith(".")] == []


def batch(*times_ns: int | None) -> pa.RecordBatch:
    arrays = [pa.array(times_ns, kind) if name == "time_ns" else pa.nulls(len(times_ns), kind)
              for name, (_, kind) in columns.EVENTS.items() if name in NAMES]
    return pa.RecordBatch.from_arrays(arrays, schema=columns.arrow_schema("events", NAMES))


def test_clocks_that_jump_give_each_day_its_rows(tmp_path: Path) -> None:
    """Forward by days and back again, more days than a task keeps open."""
    files = bronze.TaskFiles(str(tmp_path), 7)
    days = [1, 2, 1, 9, 8, 7, 6, 1, 2]
    for number, day in enumerate(days):
        for name, part in bronze.by_day(batch(day * bronze.DAY_NS + number, day * bronze.DAY_NS)):
            files.add(name, part)
    mixed = dict(bronze.by_day(batch(0, bronze.DAY_NS, 5)))
    assert {day: len(part) for day, part in mixed.items()} == {"1970-01-01": 2, "1970-01-02": 1}
    assert [day for day, _ in bronze.by_day(batch(None))] == [bronze.NO_DAY]
    files.close()
    for day in set(days):
        found = written(tmp_path / f"day=1970-01-{1 + day:02d}")["time_ns"].to_pylist()
        assert {time // bronze.DAY_NS for time in found} == {day}
        assert len(found) == 2 * days.count(day)
    assert not list(tmp_path.rglob(".part*"))


def test_any_file_system_will_do(archive: Path, tmp_path: Path,
                                 monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _ = write(Path(f"file:{archive}"), Path(f"file:{tmp_path}"))
    memory = pafs._MockFileSystem()
    memory.create_dir("bucket/archive")
    for path in archive.iterdir():
        with memory.open_output_stream(f"bucket/archive/{path.name}") as stream:
            stream.write(path.read_bytes())
    monkeypatch.setattr(plan, "filesystem", lambda where: (memory, where))
    monkeypatch.setattr(decode, "filesystem", lambda where: (memory, where))
    rows, bad = write(Path("bucket/archive"), Path("bucket/out"))
    assert (rows, bad) == (expected, [])
    found = memory.get_file_info(pafs.FileSelector("bucket/out", recursive=True))
    names = [info.base_name for info in found if info.type == pafs.FileType.File]
    assert len(names) == 2
    assert all(name.endswith(".parquet") for name in names)


def test_the_cause_of_a_failure_is_one_line() -> None:
    trace = ("An error occurred while calling o99.collect.\n: org.apache.spark.SparkException: Job "
             "aborted\n\tat x.y\nCaused by: org.apache.spark.api.python.PythonException: Traceback"
             "\n  File \"a.py\", line 3\nOSError: [Errno 28] No space left on device\n\n\tat z\n")
    assert failures.cause(trace) == "OSError: [Errno 28] No space left on device"
    assert failures.cause("plain words\nmore") == "plain words"
    with pytest.raises(SparkFailed, match="No space left"), failures.told():
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(BadRequest, match="mine"), failures.told():
        raise BadRequest(reason="mine")


def test_lists_of_queues_follow_their_frames() -> None:
    rows = np.zeros(4, [("lsn", "<u8"), ("queue", "<u2")])
    rows["lsn"], rows["queue"] = [5, 5, 7, 9], [1, 2, 3, 4]
    parts = columns.Beside(rows, np.zeros(0, NAME.dtype))
    mine, offsets = parts.parts(np.arange(4, 9, dtype="<u8"))
    assert (mine["queue"].tolist(), offsets.tolist()) == ([1, 2, 3], [0, 0, 2, 2, 3, 3])
    mine, offsets = parts.parts(np.array([5, 8, 9], "<u8"))  # 7 was filtered out
    assert (mine["queue"].tolist(), offsets.tolist()) == ([1, 2, 4], [0, 2, 2, 3])
    assert parts.parts(np.zeros(0, "<u8"))[1].tolist() == [0]


def test_groups_stand_beside_their_births() -> None:
    group = NameKind.GROUP
    rows = [*text_rows(3, NameKind.TEXT, 5, b"a reason"), *text_rows(5, group, 2, b"g"),
            *text_rows(7, group, 1 << 31 | 3, b"g"), *text_rows(9, group, 0, b"h")]
    beside = columns.Beside(np.zeros(0, ROW.dtype), np.array(rows, NAME.dtype))
    found = beside.groups(np.array([3, 5, 6, 7], "<u8"))
    assert {name: column.to_pylist() for name, column in found.items()} == {
        "group_id": [None, "g", None, "g"], "group_sequence": [None, 2, None, 3],
        "group_last": [None, False, None, True]}
