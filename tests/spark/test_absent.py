"""Files that are missing, or go while a stream reads: each is told, by the stream of a spool and by
that of an archive. No Spark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from omq.base.errors import ArchivePruned, Damaged, OffsetUnknown
from omq.storage import durable
from omq.storage.disk import Disk
from omq.storage.journal import file_name, numbers_in
from omq.storage.journal_retire import retire
from omqtools.omqspark import parquet
from omqtools.omqspark.live import Live, Position
from omqtools.omqspark.live_source import LiveReader, LiveStreamReader
from omqtools.omqspark.source import OmqjSource, StreamReader
from tests.process.operator_world import Instance

EVENTS = parquet.schema_of("events")
NAMES = ["lsn", "qpool", "file", "bad"]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A spool whose journal has four files, of four starts."""
    before = durable.use(Disk())
    made = Instance(tmp_path_factory.mktemp("absent") / "spool")
    try:
        for number in range(4):
            made.start()
            made.put("A", b"%d" % number)
            made.stop()
        yield made.root
    finally:
        made.end()
        durable.use(before)


@pytest.fixture
def root(stopped: Path, tmp_path: Path) -> Path:
    """A copy, of which files may go."""
    shutil.copytree(stopped, tmp_path / "spool")
    return tmp_path / "spool"


def without(live: Live, *numbers: int) -> None:
    """As with archive = delete."""
    for number in numbers:
        assert retire(live.paths, number, keep=False)


def rows(reader: LiveReader, start: Position, end: Position) -> list[dict[str, Any]]:
    return [row for task in reader.between(start, end) for batch in reader.read(task)
            for row in batch.to_pylist()]


def reader_of(root: Path, **options: str) -> LiveReader:
    told = {"spool": str(root), "columns": ",".join(NAMES), **options}
    return LiveReader(told, OmqjSource(told).schema())


def test_a_hole_in_a_spool_is_a_row_and_what_follows_comes_out(root: Path) -> None:
    """A query that begins before it, and a read of all there is."""
    reader = reader_of(root)
    whole = rows(reader, reader.live.begin(), reader.live.end(reader.live.begin()))
    files = numbers_in(reader.live.paths.journal)
    assert len(files) == 4
    without(reader.live, *files[1:3])
    start = reader.live.begin()
    end = reader.live.end(start)
    assert end.file == files[3] and end.lsn == whole[-1]["lsn"]
    found = rows(reader, start, end)
    assert [row for row in found if not row["bad"]] == [
        row for row in whole if row["file"] in (files[0], files[3])]
    (told,) = [row["bad"] for row in found if row["bad"]]
    assert f"file numbers {files[1]} to {files[2]} are missing" in told
    once = [row for task in reader.partitions() for batch in reader.read(task)
            for row in batch.to_pylist()]
    assert once == found
    middle = reader.live.end(start, files_max=1)
    assert rows(reader, start, middle) + rows(reader, middle, end) == found, "each once, in pieces"


def test_a_hole_ends_what_fails_fast(root: Path) -> None:
    reader = reader_of(root, mode="FAILFAST")
    without(reader.live, numbers_in(reader.live.paths.journal)[1])
    with pytest.raises(Damaged, match="is missing"):
        [batch for task in reader.partitions() for batch in reader.read(task)]


def test_who_waits_for_a_hole_says_so_once(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    options = {"spool": str(root), "waitForMissing": "true"}
    stream = LiveStreamReader(options, EVENTS)
    files = numbers_in(stream.reader.live.paths.journal)
    without(stream.reader.live, files[1])
    start = stream.initialOffset()
    for _ in range(3):
        assert stream.latestOffset(start, ReadAllAvailable())["file"] == files[0]
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert f"file number {files[1]} is missing" in said and "waitForMissing=false" in said


def test_what_was_read_may_go(root: Path) -> None:
    """archive = delete removes a file behind a checkpoint: nothing is lost to who had all of it."""
    live = Live(str(root))
    first, second, *_ = numbers_in(live.paths.journal)
    had = Position(first, 1, live.end(live.begin(), files_max=1).lsn)
    without(live, first)
    assert live.pieces(had, live.end(had))[0].number == second
    with pytest.raises(ArchivePruned, match="checkpoint"):
        live.end(replace(had, lsn=had.lsn - 1))
    without(live, *numbers_in(live.paths.journal)[:-1])
    with pytest.raises(ArchivePruned):
        live.pieces(had, Position(second, 0, had.lsn + 1))


def test_a_file_that_goes_while_it_is_read_is_told_by_name(root: Path,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    live = Live(str(root))
    start = live.begin()
    pieces = live.pieces(start, live.end(start))
    without(live, pieces[0].number)
    with pytest.raises(ArchivePruned, match=f"file {pieces[0].number} "):
        list(live.batches(pieces[0], NAMES))
    listed = Live.numbers
    monkeypatch.setattr(Live, "numbers", lambda self: [*listed(self), 999])
    for look in (live.end, lambda start: live.pieces(start, Position(999, 0, 1 << 40))):
        with pytest.raises(ArchivePruned, match="file 999 "):
            look(live.begin())


def test_an_offset_of_another_spool_is_told(root: Path) -> None:
    """A checkpoint outlived its spool, or the spool was restored."""
    live = Live(str(root))
    for look in (lambda: live.end(Position(99, 0, 1)),
                 lambda: live.pieces(Position(99, 0, 1), Position(99, 0, 2))):
        with pytest.raises(OffsetUnknown, match="99"):
            look()
    newest = numbers_in(live.paths.journal)[-1]
    for number in numbers_in(live.paths.journal):
        (live.paths.journal / file_name(number)).rename(
            live.paths.journal / f"{number}.gone")
    with pytest.raises(OffsetUnknown):
        live.end(Position(newest, 0, 1))


def test_the_stream_of_an_archive_says_what_it_waits_for(
        made: tuple[Path, dict[str, Any]], tmp_path: Path, capfd: pytest.CaptureFixture[str]
        ) -> None:
    where = tmp_path / "archive"
    shutil.copytree(made[0] / "archive", where)
    (where / "0000000002.oma").rename(tmp_path / "0000000002.oma")
    stream = StreamReader({"path": str(where)}, EVENTS)
    start = stream.initialOffset()
    for _ in range(2):
        assert stream.latestOffset(start, ReadAllAvailable()) == {"file": 1}
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and "file number 2 is missing" in said
    (where / "0000000003.oma").unlink()
    assert stream.latestOffset({"file": 1}, ReadAllAvailable()) == {"file": 1}, "also later"
    assert "file numbers 2 to 3 are missing" in capfd.readouterr().err
    hasty = StreamReader({"path": str(where), "waitForMissing": "false"}, EVENTS)
    end = hasty.latestOffset({"file": 1}, ReadAllAvailable())
    bad = [text for task in hasty.partitions({"file": 1}, end) for text in task.bad]  # type: ignore[attr-defined]
    assert "file numbers 2 to 3 are missing" in bad[0]
    with pytest.raises(OffsetUnknown, match="4000"):
        stream.latestOffset({"file": 4000}, ReadAllAvailable())
