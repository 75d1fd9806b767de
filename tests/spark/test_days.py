"""A history of days in many batches: the same tables as of one run; days in which nothing happened
are not told again; small batches become one, and versions of before stay readable for a while."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from omq.base.errors import BadRequest
from omqtools.omqspark import compact as compaction
from omqtools.omqspark import daily, tables
from omqtools.omqspark.answer_tables import Index
from omqtools.omqspark.audit import audit
from omqtools.omqspark.audited import earlier
from omqtools.omqspark.compact import compact, groups
from omqtools.omqspark.gold import ANSWERS
from omqtools.omqspark.lake import Lake, all_messages, all_stays
from omqtools.omqspark.manifest import Batch
from omqtools.omqspark.pipeline import run
from tests.spark.conftest import generated
from tests.spark.test_late import the_same
from tests.spark.test_spark import rows_of

MESSAGES = 120
DAYS = 4
RATE = MESSAGES / (DAYS * 86_400)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generated(tmp_path_factory, MESSAGES, file_frames=210, rate=RATE)[0] / "archive"


@pytest.fixture(scope="module")
def many(spark: Any, archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A batch a file, the second file late, and strays that nobody reads; from then on parts of a
    day become one at once."""
    base = tmp_path_factory.mktemp("days")
    here, out = base / "archive", str(base / "tables")
    here.mkdir()
    files = sorted(archive.glob("*.oma"))
    for path in [files[0], *files[2:]]:
        shutil.copy(path, here)
    for stray in ("0000000099.oma", "9999999999.oma"):
        (here / stray).write_bytes(b"not an archive file" * 40)
    said = run(spark, str(here), out, incremental=False, files_per_batch=1)
    assert [each["file"] for each in said["passed_over"]] == [99, 9999999999]
    assert said["missing"] == [[2, 2]]
    verdict = audit(Lake(spark, out), str(here), pool=None)
    assert verdict["counts"]["missing_file"] == 1
    assert {"kind": "missing_file", "file": 2} in verdict["findings"]
    assert (verdict["uncertain"], verdict["counts"]["crc"]) == (True, 2)
    assert "lost" not in verdict["judged"]
    shutil.copy(files[1], here)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(daily, "PARTS_MAX", 1)
        lines: list[str] = []
        run(spark, str(here), out, incremental=True, files_per_batch=1, say=lines.append)
    progress(lines, len(files))
    return Lake(spark, out)


def progress(lines: list[str], files: int) -> None:
    """A late second file: it and all behind it are told, each as a batch of its own."""
    whole = [line for line in lines if "files are done" in line]
    assert whole == [f"{n} of {files - 1} files are done" for n in range(files - 1)]
    heads = [line for line in lines if ": files " in line]
    assert [re.sub(r".*: (files \d+ to \d+),.*", r"\1", line) for line in heads] == [
        f"files {n} to {n}" for n in range(2, files + 1)]
    assert len(lines) == len(whole) + 3 * len(heads)


@pytest.mark.usefixtures("by_spark")
def test_the_tables_are_those_of_one_run(many: Lake, archive: Path, tmp_path: Path) -> None:
    """Which Spark writes, as it does where the driver could not hold the rows."""
    run(many.spark, str(archive), str(tmp_path / "once"), incremental=False)
    once = Lake(many.spark, str(tmp_path / "once"))
    assert (len(many.known().batches), len(once.known().batches)) == (3, 1)
    the_same(many, once)
    for name in (answer.name for answer in ANSWERS):
        assert rows_of(tables.frame(many, name).drop("batch")) == rows_of(many.gold(name)), name
    minutes = many.gold("queue_minute")
    assert minutes.select("day").distinct().count() >= DAYS
    last = minutes.groupBy("queue").agg({"arrivals": "sum", "departures": "sum"}).collect()
    waiting = {row["queue"]: row["count"] for row in all_stays(many).where(
        "left_ns IS NULL").groupBy("queue").count().collect()}
    assert waiting == {row["queue"]: row["sum(arrivals)"] - row["sum(departures)"] for row in last
                       if row["sum(arrivals)"] != row["sum(departures)"]}


def test_days_of_before_are_left_alone(many: Lake) -> None:
    known = many.known()
    index = many.index(known.current)
    for name in ("queue_minute", "queue_hour", "readers"):
        shown = index.shown[name]
        assert len(shown) >= DAYS
        assert shown[max(shown)] == known.current
        assert shown[min(shown)] < known.current, "not told again"
        assert set(index.state[name]) == set(shown)
        assert all(len(parts) == 1 for parts in index.state[name].values())
        told = [batch.number for batch in known.batches]
        assert many._batches(f"known/{name}") == told, "kept for a file that comes late"


def test_batches_become_one_and_earlier_versions_stay(
        many: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "SNAPSHOTS_KEPT", 1)
    shutil.copytree(many.out, tmp_path / "tables")
    mine, archive = Lake(many.spark, str(tmp_path / "tables")), Path(many.out, "..", "archive")
    audit(mine, str(archive), pool=None)
    rows = {name: rows_of(tables.frame(mine, name).drop("batch")) for name in tables.PUBLISHED}
    before = {name: tables.versions(mine)["versions"][name] for name in ("messages", "stays")}
    files = {name: len(tables.files(tables.table(mine, name))) for name in before}
    old = [batch.number for batch in mine.known().batches]
    events = {name: rows_of(mine.read(name).drop("batch")) for name in ("bronze", "names")}

    did = compact(mine, 7)
    assert did["merged"] == {str(max(old) + 1): old[:-1]}
    known = mine.known()
    assert [batch.number for batch in known.batches] == [max(old) + 1, old[-1]]
    assert known.counted() == set(known.files) == many.known().counted()
    for name, found in rows.items():
        assert rows_of(tables.frame(mine, name).drop("batch")) == found, name
    assert rows_of(all_messages(mine)) == rows_of(all_messages(many))
    for name, found in events.items():
        assert mine._batches(name) == known.bronze()
        assert len(known.bronze()) < len(many.known().bronze())
        assert rows_of(mine.read(name).drop("batch")) == found, name
    parts = mine.index(known.current).state["queue_hour"]
    assert len(parts) >= DAYS and all(len(batches) == 1 for batches in parts.values())
    assert earlier(mine, known, 3).batches == [batch.number for batch in known.batches]
    for name, version in before.items():
        assert len(tables.files(tables.table(mine, name))) < files[name]
        assert rows_of(tables.frame(mine, name, version).drop("batch")) == rows[name], "as it was"
    (entry,) = [json.loads(line)["add"] for line in Path(
        mine.path("stays"), "_delta_log", f"{before['stays'] + 1:020}.json").read_text(
        ).splitlines() if '"add"' in line][:1]
    assert entry["dataChange"] is False
    assert compact(mine, 7)["merged"] == {}, "there is nothing more to do"
    assert compact(mine, 0)["removed_files"] > 0
    assert rows_of(tables.frame(mine, "stays").drop("batch")) == rows["stays"]

    again = run(mine.spark, str(archive), mine.out, incremental=True, again="2")
    assert mine.known().files[2].batch == again["batches"][0], "it was read, not remembered"
    the_same(mine, many)
    with pytest.raises(BadRequest, match="not in the archive"):
        run(mine.spark, str(archive), mine.out, incremental=True, again="1999-12-31")


def test_what_is_merged() -> None:
    batches = [Batch(number, [number]) for number in range(6)]
    rows = {0: 900, 1: 10, 2: 20, 3: 2000, 4: 30, 5: 40}
    assert [[batch.number for batch in group] for group in groups(batches, rows, 1000)] == [
        [0, 1, 2], [4, 5]]
    assert [[batch.number for batch in group] for group in groups(batches, rows, 100)] == [
        [1, 2], [4, 5]]
    assert groups(batches[:1], rows, 1000) == groups([], rows, 1000) == []


def test_an_index_says_which_days_another_one_shows_otherwise() -> None:
    one = Index({"a": {"d1": [1, 2]}}, {"a": {"d1": 2, "d2": 1}, "b": {"d1": 1}})
    other = Index({}, {"a": {"d1": 1, "d2": 1, "d3": 0}, "c": {"d1": 1}})
    assert one.unlike(other) == {"a": {"d1", "d3"}, "b": {"d1"}, "c": {"d1"}}
    assert Index.decode(one.encode()) == one == one.copy()
    assert Index.decode(None) == Index()
