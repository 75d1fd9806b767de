"""Small batches become one and take less room; what comes later is told as if nothing had been
joined, also what comes late. And the logs of the tables: what of them is of no use."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from omqtools.omqspark import compact as compacting
from omqtools.omqspark import table_logs
from omqtools.omqspark.audit import audit
from omqtools.omqspark.compact import compact, recent
from omqtools.omqspark.lake import Lake
from omqtools.omqspark.manifest import Batch, FileRecord, Manifest
from omqtools.omqspark.out_directory import AUDITED, Out
from omqtools.omqspark.pipeline import run
from omqtools.omqspark.session import Later
from tests.spark.conftest import generated
from tests.spark.told import no_session, told

LATE, AFTER = 2, 5
"""The file that comes late, and the first of those that come behind `compact`."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """An archive of each kind of message, and nothing wrong with it."""
    made, _ = generated(tmp_path_factory, 1600, file_frames=1200, stories=1)
    return sorted((made / "archive").glob("*.oma"))


def each_alone(archive: Path, out: Path, files: list[Path]) -> None:
    archive.mkdir(exist_ok=True)
    for path in files:
        shutil.copy2(path, archive)
        run(Later(no_session), str(archive), str(out), incremental=True)


@pytest.fixture(params=["all of them", "the last"])
def recent_frames(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "the last":  # so another batch is before what becomes one
        monkeypatch.setattr(compacting, "RECENT_FRAMES", 2800)
    return str(request.param)


def test_what_comes_behind_it_is_told_as_ever(files: list[Path], recent_frames: str,
                                              tmp_path: Path) -> None:
    """The files behind those that were joined, then one that belongs between them."""
    archive, out, lake = tmp_path / "archive", tmp_path / "tables", Out(str(tmp_path / "tables"))
    assert len(files) > AFTER + 1
    late, *early = files[LATE], *files[:LATE], *files[LATE + 1 : AFTER]
    each_alone(archive, out, early)
    before, said = told(out), len(lake.known().batches)
    done = compact(lake, 0)
    (parts,) = done["merged"].values()
    assert (len(parts) == said) == (recent_frames == "all of them") and len(parts) > 1
    assert lake.known().current == max(map(int, done["merged"])), "the newest is a part of it"
    assert told(out) == before
    assert compact(lake, 0)["merged"] == {}, "once"
    run(Later(no_session), str(archive), str(out), incremental=True)
    assert told(out) == before, "nothing new"
    for path in files[AFTER:-1]:
        shutil.copy2(path, archive)
    each_alone(archive, out, files[-1:])
    each_alone(archive, out, [late])
    one = tmp_path / "one"
    run(Later(no_session), str(archive), str(one), incremental=False)
    assert told(out) == told(one)


def test_what_was_judged_stays_so(files: list[Path], tmp_path: Path) -> None:
    """What an audit has not judged yet is not joined with what it has: it would begin anew."""
    archive, out = tmp_path / "archive", tmp_path / "tables"
    lake: Any = Lake(Later(no_session), str(out))
    each_alone(archive, out, files[:4])
    first = audit(lake, str(archive), pool=None)
    each_alone(archive, out, files[4:5])
    done = compact(lake, 0)
    assert list(done["merged"].values()) == [[0, 1, 2, 3]]
    (number,) = map(int, done["merged"])
    assert json.loads((out / AUDITED).read_text())["batches"] == [number]
    second = audit(lake, str(archive), pool=None)
    assert second["ended"] > first["ended"]
    (out / AUDITED).unlink()
    anew = audit(lake, str(archive), pool=None)
    assert {**anew, "audited": 0, "findings": 0} == {**second, "audited": 0, "findings": 0}


def a_manifest(frames: list[int]) -> Manifest:
    known = Manifest("ab", batches=[Batch(n, [n + 1]) for n in range(len(frames))])
    for n, count in enumerate(frames):
        known.take(FileRecord(n + 1, n, 1, 1, 1, 0, count, 1, 1, 1, 0, 0))
    return known


@pytest.mark.parametrize(("frames", "old", "states", "judged", "found"), [
    ([1, 1, 1], 0, {0, 1, 2}, set(), [0, 1, 2]),
    ([1], 0, {0}, set(), []),
    ([200_000, 100_000, 100_000], 0, {0, 1, 2}, set(), [1, 2]),
    ([250_001, 1], 0, {0, 1}, set(), []),
    ([1, 250_001], 0, {0, 1}, set(), []),
    ([1, 1, 1, 1], 0, {0, 1, 2, 3}, {0, 1, 2}, [0, 1, 2]),
    ([1, 1, 1, 1], 0, {0, 1, 2, 3}, {0}, []),
    # The one before it has no state, or is joined itself: the next one keeps its own.
    ([1, 1, 1, 1], 1, {1, 2, 3}, set(), [2, 3]),
    ([200_000, 200_000, 50_000, 1], 0, {1, 2, 3}, set(), [2, 3]),
    ([1, 1, 1], 1, {1, 2}, set(), []),
])
def test_which_batches_become_one(frames: list[int], old: int, states: set[int], judged: set[int],
                                  found: list[int]) -> None:
    groups = recent(a_manifest(frames), old, states, judged)
    assert [[batch.number for batch in group] for group in groups] == ([found] if found else [])


def names(*entries: str) -> dict[str, tuple[int, int]]:
    """"3" a commit, "3c" a checkpoint; each is written at the time of its version."""
    return {f"{int(one.rstrip('c')):020d}.{'checkpoint.parquet' if 'c' in one else 'json'}":
            (int(one.rstrip("c")), int(one.rstrip("c"))) for one in entries}


@pytest.mark.parametrize(("entries", "published", "until", "gone"), [
    ("0 1 2 3 4", 4, 9, ""),
    ("0 1 2 2c 3 4", 4, 9, "0 1"),
    ("0 1 2 2c 3 4", 4, 2, "0 1"),
    ("0 1 2 2c 3 4", 4, 1, ""),  # version 1 may be asked for
    ("0 1 1c 2 3 3c 4", 4, 9, "0 1 1c 2"),
    ("0 1 1c 2 3 3c 4", 4, 2, "0"),
    ("0 1 1c 2 3 3c 4", 2, 9, "0"),  # what is published is read, whatever came behind it
    ("2 2c 3", 3, 9, ""), ("", 0, 9, ""),
])
def test_what_of_a_log_is_of_no_use(entries: str, published: int, until: int, gone: str) -> None:
    found = table_logs.useless(names(*entries.split()), published, until)
    assert found == sorted(names(*gone.split()))


@pytest.fixture
def lakes(files: list[Path], tmp_path: Path) -> Iterator[Out]:
    each_alone(tmp_path / "archive", tmp_path / "tables", files[:3])
    yield Out(str(tmp_path / "tables"))


def test_a_log_is_as_short_as_what_is_kept_needs(lakes: Out, monkeypatch: pytest.MonkeyPatch
                                                 ) -> None:
    """Versions of seven days stay readable; of none a checkpoint says the same in less."""
    out, log = Path(lakes.out), Path(lakes.out) / "stays" / "_delta_log"
    before, commits = told(out), sorted(log.glob("*.json"))
    oldest = DeltaTable(str(out / "stays"), version=1).to_pyarrow_table().num_rows
    compact(lakes, 7)
    assert sorted(log.glob("*.json"))[: len(commits)] == commits
    assert DeltaTable(str(out / "stays"), version=1).to_pyarrow_table().num_rows == oldest
    monkeypatch.setattr(table_logs, "CHECKPOINT_BYTES", 0)
    table_logs.trim(lakes, 0)
    assert len(list(log.glob("*.json"))) < len(commits)
    (checkpoint,) = log.glob("*.checkpoint.parquet")
    assert not list(log.glob("*.tmp"))
    assert told(out) == before
    shorter, read = pq.read_metadata(checkpoint), pq.read_table(checkpoint)
    DeltaTable(str(out / "stays"), version=int(checkpoint.name[:20])).create_checkpoint()
    assert pq.read_table(checkpoint).equals(read)
    assert pq.read_metadata(checkpoint).schema.equals(shorter.schema)
    assert table_logs.trim(lakes, 0) == 0
