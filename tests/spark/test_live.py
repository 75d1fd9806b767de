"""The live source: an instance that runs, is killed, stops; files that move meanwhile. First plain
functions, then the stream with Spark."""

from __future__ import annotations

import re
import runpy
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from omq.base.errors import (
    ArchivePruned,
    BadRequest,
    Damaged,
    ManagerUnavailable,
    NoArchive,
    SpoolMissing,
)
from omq.core.index.view import IndexView
from omq.format.archive import HEADER
from omq.format.journal import BLOCK, BLOCK_MAGIC
from omq.storage import durable, spool
from omq.storage.archive import archive_name
from omq.storage.disk import Disk
from omq.storage.journal import file_name, numbers_in
from omq.storage.journal_retire import retire
from omqtools.omqspark import parquet
from omqtools.omqspark.live import Live, Position
from omqtools.omqspark.live_source import LiveReader, LiveStreamReader
from omqtools.omqspark.source import OmqjSource
from omqtools.omqspark.stream_waits import Waiting
from tests.process.operator_world import WAIT_S, Instance
from tests.tidy.tree import ROOT

EVENTS = parquet.schema_of("events")
NAMES = ["lsn", "time_ns", "type", "queue", "qpool", "onto", "flags", "file", "epoch", "bad"]
Row = dict[str, Any]


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    before = durable.use(Disk())
    made = Instance(tmp_path / "spool")
    made.start()
    try:
        yield made
    finally:
        made.end()
        durable.use(before)


class Reading:
    """What came out so far."""

    def __init__(self, root: Path) -> None:
        self.live = Live(str(root))
        self.at = self.live.begin()
        self.rows: list[Row] = []

    def more(self, **limits: Any) -> int:
        end = self.live.end(self.at, **limits)
        before = len(self.rows)
        self.rows += rows(self.live, self.at, end)
        self.at = end
        return len(self.rows) - before


def rows(live: Live, start: Position, end: Position) -> list[Row]:
    return [row for piece in live.pieces(start, end) for batch in live.batches(piece, NAMES)
            for row in batch.to_pylist()]


def archived(made: Instance, keep: int = 0) -> None:
    """The files of the journal retire, without those `keep` last."""
    numbers = numbers_in(made.paths.journal)
    for number in numbers[: len(numbers) - keep]:
        retire(made.paths, number, keep=True)


def test_it_follows_over_deaths_stops_and_files_that_move(instance: Instance) -> None:
    reading = Reading(instance.root)
    first = reading.more()
    assert first >= 0
    for n in range(3):
        (one,) = instance.put(["A", "B"], b"%d" % n)
        assert reading.more() == 1
        assert (reading.rows[-1]["qpool"], len(reading.rows[-1]["onto"])) == (one, 2)
    assert reading.more() == 0, "nothing is new"
    instance.kill()
    assert reading.more() == 0, "the dead one's index still says how far it came"
    instance.start()
    instance.put("A", b"after the death")
    assert reading.more() > 0
    assert {row["epoch"] for row in reading.rows} == {1, 2}
    middle, so_far = reading.at, list(reading.rows)
    instance.stop()
    reading.more()
    with pytest.raises(ManagerUnavailable), IndexView.attach(instance.paths):
        pass
    assert reading.at.lsn > middle.lsn, "it ended in order, so all of it is durable"
    archived(instance, keep=1)
    assert rows(reading.live, reading.live.begin(), reading.live.end(reading.live.begin())) == (
        reading.rows), "the same where they wait for the archiver"
    archived(instance)
    assert instance.run("omq-archive", "--quiet").code == 0
    assert numbers_in(instance.paths.archive, ".oma") == [1, 2]
    whole = rows(reading.live, reading.live.begin(), reading.live.end(reading.live.begin()))
    assert whole == reading.rows, "the same from the archive"
    assert rows(reading.live, middle, reading.at) == reading.rows[len(so_far):], (
        "a position of before still holds")
    lsns = [row["lsn"] for row in whole]
    assert lsns == sorted(set(lsns))
    assert not [row for row in whole if row["bad"]]


def test_what_nobody_was_promised_does_not_come_out(instance: Instance,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may not look into the index knows what later blocks say; the last block waits."""
    instance.put("A", b"one", b"two")
    reading = Reading(instance.root)
    sure = reading.live.end(reading.at).lsn

    def refused(*_: Any) -> None:
        raise ManagerUnavailable(spool=instance.root, reason="as another user")

    monkeypatch.setattr(IndexView, "attach", refused)
    reading.more()
    assert 0 < reading.at.lsn < sure
    monkeypatch.undo()
    reading.more()
    assert reading.at.lsn == sure


def test_limits_and_absence(instance: Instance, tmp_path: Path) -> None:
    instance.put("A", b"one")
    instance.kill()
    instance.start()
    instance.put("A", b"two")
    reading = Reading(instance.root)
    assert reading.more(files_max=1) > 0
    assert reading.at.file == 2 and {row["file"] for row in reading.rows} == {1}
    middle = reading.at.lsn + 1
    reading.more(up_to=middle)
    assert max(row["lsn"] for row in reading.rows) <= middle
    assert reading.more() > 0
    instance.stop()
    archived(instance)
    moved = instance.paths.archive / file_name(1)
    moved.rename(tmp_path / moved.name)
    with pytest.raises(ArchivePruned):
        reading.live.end(Position(1, 0, 0))
    with pytest.raises(ArchivePruned):
        reading.live.pieces(Position(1, 0, 0), reading.at)
    (tmp_path / moved.name).rename(moved)
    second = instance.paths.archive / file_name(2)
    second.rename(instance.paths.archive / file_name(5))
    start = Position(1, 0, 0)
    wait = Waiting("spool")
    assert reading.live.end(start, wait=wait) == start, "it waits for those between"
    assert wait.said == (2, 4)
    assert reading.live.end(start).file == 5, "or goes on behind them"
    (instance.paths.archive / file_name(5)).rename(second)
    data = bytearray(second.read_bytes())
    data[20] ^= 1
    second.write_bytes(data)
    found = rows(reading.live, start, Position(2, 0, reading.at.lsn))
    assert [row["lsn"] for row in found if not row["bad"]] == [
        row["lsn"] for row in reading.rows], "a damaged head costs no frame"
    assert [row["file"] for row in found if row["bad"]] == [2]
    with pytest.raises(SpoolMissing):
        Live(str(tmp_path / "nowhere"))
    empty = spool.create_spool(tmp_path / "empty")
    with pytest.raises(NoArchive):
        Live(str(empty.paths.root)).begin()


def spoil(made: Instance) -> None:
    """A bit of a frame in the middle of the journal."""
    path = made.paths.journal / file_name(numbers_in(made.paths.journal)[0])
    data = bytearray(path.read_bytes())
    heads = [at for at in range(0, len(data), 4096) if data[at : at + 4] == BLOCK_MAGIC]
    data[heads[len(heads) // 2] + BLOCK.size + 20] ^= 1
    path.write_bytes(data)


def test_damage_comes_out_as_a_row(instance: Instance) -> None:
    instance.put("A", b"one", b"two", b"three")
    instance.stop()
    reading = Reading(instance.root)
    reading.more()
    whole = reading.rows
    spoil(instance)
    again = Reading(instance.root)
    again.more()
    bad = [row for row in again.rows if row["bad"]]
    good = [row for row in again.rows if not row["bad"]]
    assert bad
    assert 0 < len(good) < len(whole)
    assert all(row in whole for row in good)
    archived(instance)
    (instance.paths.archive / archive_name(1)).write_bytes(bytes(HEADER.size))
    assert Reading(instance.root).more() == 0, "an archive file without a head is not passed"


def test_damage_ends_what_fails_fast(instance: Instance) -> None:
    """As of an archive; where there is none, the rows are the same."""
    instance.put("A", b"one", b"two", b"three")
    instance.stop()
    whole = Reading(instance.root)
    whole.more()
    options = {"spool": str(instance.root), "mode": "FAILFAST"}
    reader = LiveReader(options, OmqjSource(options | {"columns": ",".join(NAMES)}).schema())
    assert [row for task in reader.partitions() for batch in reader.read(task)
            for row in batch.to_pylist()] == whole.rows
    spoil(instance)
    with pytest.raises(Damaged, match="CRC"):
        [batch for task in reader.partitions() for batch in reader.read(task)]


def test_options(instance: Instance) -> None:
    options = {"spool": str(instance.root), "maxfilespertrigger": "3"}
    stream = LiveStreamReader(options, EVENTS)
    assert stream.getDefaultReadLimit().max_files == 3  # type: ignore[attr-defined]
    with pytest.raises(BadRequest, match="events only"):
        LiveReader(options | {"table": "dict"}, EVENTS)
    assert list(stream.read(None)) == []  # type: ignore[arg-type]


def test_a_stream_sees_what_is_put_and_goes_on_where_it_was(spark: Any, instance: Instance,
                                                            tmp_path: Path) -> None:
    """processingTime, then availableNow from the same checkpoint, over a death of the manager."""
    batches: dict[int, list[Row]] = {}  # one that was cut comes again under its number
    came: dict[int, float] = {}
    news = threading.Condition()

    def take(frame: Any, number: int) -> None:
        found = [row.asDict() for row in frame.collect()]
        with news:
            batches[number] = found
            for row in found:
                came.setdefault(row["lsn"], time.time())
            news.notify_all()

    def seen() -> list[Row]:
        return [row for number in sorted(batches) for row in batches[number]]

    def came_out(qpools: list[int]) -> bool:
        return {row["qpool"] for row in seen()} >= set(qpools)

    def stream(**trigger: Any) -> Any:
        return (spark.readStream.format("omqj").option("spool", str(instance.root)).load()
                .select("lsn", "time_ns", "type", "qpool", "bad").writeStream
                .trigger(**trigger).option("checkpointLocation", str(tmp_path / "checkpoint"))
                .foreachBatch(take).start())

    query = stream(processingTime="500 milliseconds")
    try:
        for _ in range(3):
            put = instance.put("A", b"soon seen")
            with news:
                assert news.wait_for(partial(came_out, put), WAIT_S)
    finally:
        query.stop()
        query.awaitTermination(WAIT_S)
    lags = [came[row["lsn"]] - row["time_ns"] / 1e9 for row in seen() if row["type"] == 1]
    print(f"lag of a put: {min(lags):.2f} to {max(lags):.2f} s")
    instance.kill()
    instance.start()
    instance.put("A", b"while nobody looked")
    stream(availableNow=True).awaitTermination()
    lsns = [row["lsn"] for row in seen()]
    assert len(lsns) == len(set(lsns)), "each once"
    once = spark.read.format("omqj").option("spool", str(instance.root)).load()
    assert sorted(row["lsn"] for row in once.select("lsn").collect())[: len(lsns)] == sorted(lsns)
    assert not [row for row in seen() if row["bad"]]


def test_the_dashboards_query_of_the_documents(spark: Any, instance: Instance, tmp_path: Path
                                               ) -> None:
    instance.put("A", b"one", b"two")
    text = (ROOT / "lib/omq/docs/ANALYTICS.md").read_text(encoding="utf-8")
    (block,) = [each for each in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
                if "readStream" in each]
    for old, new in (("/var/spool/omq", str(instance.root)), ('"console"', '"noop"'),
                     ('processingTime="2 seconds"', "availableNow=True")):
        assert old in block
        block = block.replace(old, new)
    program = tmp_path / "dashboard.py"
    program.write_text(block, encoding="utf-8")
    names = runpy.run_path(str(program))
    names["query"].awaitTermination()
    assert names["query"].exception() is None
    assert sum(each["numInputRows"] for each in names["query"].recentProgress) > 0
