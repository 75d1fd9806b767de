"""An audit in steps: the verdict is that of one that looks at everything at once, by Spark and by
DuckDB, of damaged archives, too; one that is killed goes on; memory bounds a step."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import random
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from omqtools.omqspark import audit_kept, audit_steps, audited, ids, intervals, session
from omqtools.omqspark.audit import audit
from omqtools.omqspark.lake import Lake
from omqtools.omqspark.out_directory import AUDITED, BESIDE, LOCK
from omqtools.omqspark.pipeline import run
from omqtools.omqspark.session import Later
from tests.spark.conftest import generated
from tests.spark.told import no_session

Made = tuple[Path, dict[str, Any]]
IN_STEPS = 1  # events that are few: none are


@pytest.fixture
def rows_max(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets how many rows a step has room for."""
    return lambda rows: monkeypatch.setattr(session, "AUDIT_ROW_BYTES", (1 << 30) // rows)


def verdict(lake: Lake, archive: object, *, anew: bool = True, **how: Any) -> dict[str, Any]:
    """Without what differs between two of the same."""
    if anew:
        (Path(lake.out) / AUDITED).unlink(missing_ok=True)
    found = audit(lake, str(archive), **({"pool": None} | how))
    found["findings"].sort(key=str)
    del found["audited"]
    return found


def steps(out: str) -> Lake:
    return Lake(Later(no_session, IN_STEPS), out)


def kept_audit(out: str, attempts_max: int = 3) -> dict[str, Any]:
    """What the next audit will know."""
    found = dict(vars(audited.earlier(steps(out), steps(out).known(), attempts_max)))
    found["findings"] = sorted(found["findings"], key=str)
    found["turns"] = sorted(found["turns"])
    return found


@pytest.mark.parametrize("rows", [1200, 1 << 20])
def test_steps_say_what_one_look_says(made: Made, lake: Lake, rows: int, rows_max: Any,
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    """All kinds of faults and of messages, with and without the pool; and once more behind it, when
    what was judged is known. Few lines are remembered from step to step."""
    rows_max(rows)
    monkeypatch.setattr(audit_steps, "TURNS_HELD", 3)
    said: list[str] = []
    for pool in (None, made[0]):
        for anew in (True, False):
            one = verdict(lake, made[0] / "archive", pool=pool, anew=anew)
            mine = verdict(steps(lake.out), made[0] / "archive", pool=pool, anew=anew,
                           say=said.append)
            assert mine == one
    assert one["counts"]["lost"] and one["counts"]["out_of_order"] and one["counts"]["duplicated"]
    assert (len(said) > 40) == (rows == 1200)
    assert not list((Path(lake.out) / BESIDE).iterdir())


DAMAGES = ("flip", "cut", "without", "empty", "twice")


def damage(pick: random.Random, files: list[Path], kind: str) -> None:
    path = pick.choice(files)
    data = bytearray(path.read_bytes())
    if kind == "flip":
        for _ in range(pick.randrange(1, 6)):
            data[pick.randrange(len(data))] ^= 1 << pick.randrange(8)
        path.write_bytes(data)
    elif kind == "cut":
        path.write_bytes(data[: pick.randrange(len(data))])
    elif kind == "without":
        path.unlink()
    elif kind == "empty":
        path.write_bytes(b"")
    else:  # a file with the content of another: a foreign head under its name
        path.write_bytes(pick.choice(files).read_bytes())


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> list[Made]:
    """With faults, of which some make each audit look at everything; and without."""
    return [generated(tmp_path_factory, 700, file_frames=500, faults=faults, stories=2)
            for faults in (2, 0)]


def damaged(whole: Made, seed: int, tmp_path: Path) -> tuple[Path, list[Path]]:
    """A copy of an archive, damaged; and its second half, which waits."""
    pick, archive = random.Random(seed), tmp_path / "archive"
    archive.mkdir()
    files = []
    for path in sorted((whole[0] / "archive").glob("*.oma")):
        files.append(archive / path.name)
        files[-1].write_bytes(path.read_bytes())
    for kind in pick.sample(DAMAGES, pick.randrange(1, 3)):
        damage(pick, [path for path in files if path.exists() and path.stat().st_size], kind)
    later = [path for path in files[len(files) // 2:] if path.exists()]
    for path in later:
        path.rename(path.with_suffix(".later"))
    return archive, later


@pytest.mark.parametrize("seed", range(6))
def test_damaged_archives_are_judged_alike(wholes: list[Made], seed: int, rows_max: Any,
                                           tmp_path: Path) -> None:
    """Some damage, some batches, some rows a step; after the first files, and after all of them."""
    whole = wholes[seed % 2]
    archive, later = damaged(whole, seed, tmp_path)
    out, pick = str(tmp_path / "tables"), random.Random(seed)
    for part in ([], later):
        for path in part:
            path.with_suffix(".later").rename(path)
        run(Later(no_session), str(archive), out, incremental=True, files_per_batch=2)
        rows_max(pick.randrange(350, 1500))
        kept = Path(out) / AUDITED
        known = kept.read_bytes() if part and kept.exists() else b"{}"
        told = []
        for lake in (steps(out), Lake(Later(no_session), out)):
            kept.write_bytes(known)
            told.append((verdict(lake, archive, pool=whole[0], anew=False, attempts_max=2),
                         kept_audit(out, 2), verdict(lake, archive), kept_audit(out)))
        assert told[0] == told[1]
        kept.unlink(missing_ok=True)
        verdict(lake, archive, attempts_max=2)  # what the next part goes on from
        assert kept_audit(out, 2)["batches"] or whole is wholes[0]
    assert sum(told[0][0]["counts"].values()) > 0


@pytest.mark.parametrize("seed", [1, 4])
def test_spark_judges_them_so_too(spark: Any, wholes: list[Made], seed: int, rows_max: Any,
                                  tmp_path: Path) -> None:
    whole = wholes[seed % 2]
    archive, later = damaged(whole, seed, tmp_path)
    for path in later:
        path.with_suffix(".later").rename(path)
    out = str(tmp_path / "tables")
    run(Later(no_session), str(archive), out, incremental=True, files_per_batch=2)
    rows_max(700)
    assert verdict(Lake(spark, out), archive, pool=whole[0]) == verdict(
        steps(out), archive, pool=whole[0])


@pytest.fixture(scope="module")
def archive_of(wholes: list[Made]) -> Path:
    return wholes[0][0] / "archive"


@pytest.fixture(scope="module")
def out(archive_of: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Tables without Spark."""
    where = str(tmp_path_factory.mktemp("out") / "tables")
    run(Later(no_session), str(archive_of), where, incremental=False, files_per_batch=2)
    return where


class Stopped(Exception):
    """In place of SIGKILL: nothing of the audit goes on."""


@pytest.mark.parametrize("word", ["step 3 of", "of the order"])
def test_an_audit_that_was_killed_goes_on(archive_of: Path, out: str, word: str, rows_max: Any
                                          ) -> None:
    rows_max(900)
    wanted, said = verdict(steps(out), archive_of), list[str]()
    beside = Path(out) / BESIDE

    def until(text: str) -> None:
        said.append(text)
        if word in text:
            raise Stopped

    with pytest.raises(Stopped):
        verdict(steps(out), archive_of, say=until)
    (left,) = beside.iterdir()
    torn = left / "given" / "messages-0.parquet"
    torn.write_bytes(torn.read_bytes()[:-20])
    again: list[str] = []
    assert verdict(steps(out), archive_of, say=again.append) == wanted
    assert again[0].startswith("audit: step 1 of"), "of which a power cut took back the rows"
    assert len(said) > 2 and again[1] == said[-1], "the others are not looked at again"
    assert not list(beside.iterdir())


def test_two_at_once_and_what_is_left(archive_of: Path, out: str, rows_max: Any) -> None:
    """The second one has a folder of its own; what nobody goes on with is gone a day later."""
    rows_max(2000)
    wanted = verdict(steps(out), archive_of)
    folders: list[Path] = []

    def held(_: str) -> None:
        """Another audit of the same, in the middle of this one."""
        if not folders:
            folders.extend((Path(out) / BESIDE).iterdir())
            assert verdict(steps(out), archive_of) == wanted
            assert list((Path(out) / BESIDE).iterdir()) == folders
            with (folders[0] / LOCK).open("w") as lock, pytest.raises(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    assert verdict(steps(out), archive_of, say=held) == wanted and folders
    left = Path(out) / BESIDE / "audit-of-another"
    left.mkdir()
    assert verdict(steps(out), archive_of) == wanted and left.exists()
    os.utime(left, (1, 1))
    assert verdict(steps(out), archive_of) == wanted and not left.exists()
    assert ids.LEFT_S == 86_400


def test_what_comes_back_makes_it_look_at_everything(archive_of: Path, out: str, rows_max: Any
                                                     ) -> None:
    """An id of the time that was judged, in a message that was born later."""
    rows_max(900)
    wanted, lake = verdict(steps(out), archive_of), steps(out)
    known = lake.known()
    old = audited.Audited(3, [known.batches[0].number], known.files[1].last_lsn, 1, 1 << 40, 7)
    lake.put(AUDITED, json.dumps(vars(old)).encode())
    assert audited.earlier(lake, known, 3) == old
    assert verdict(lake, archive_of, anew=False) == wanted


@pytest.mark.parametrize("held", [0, 100_000])
@pytest.mark.parametrize("seed", range(4))
def test_the_order_goes_on_from_step_to_step(out: str, seed: int, held: int, rows_max: Any,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    """Random hand-outs of three lines, a few a step, with what an earlier audit knew; `held`: how
    many lines are remembered whether or not anybody asks for them."""
    pick = random.Random(seed)
    rows_max(pick.randrange(1, 9))
    monkeypatch.setattr(audit_steps, "TURNS_HELD", held)
    lake = steps(out)
    before = audited.Audited(3, last_lsn=10, turns=[[3, 4, 100, 9], [4, 4, 100, 2]])
    lines = [(3, 4, 100), (3, 4, 200), (4, 4, 100)]
    arrivals = pick.sample(range(1, 400), 60)
    rows = [(qpool, *pick.choice(lines), arrived, 0) for qpool, arrived in enumerate(arrivals)]
    rows = [(*row[:5], lsn) for row, lsn in zip(sorted(
        rows, key=lambda row: row[4] + pick.randrange(60)), range(500, 1000, 5), strict=False)]
    chosen = {row[5] for row in rows if pick.random() < 0.1}
    waiting = pick.sample(lines, 2)
    latest: dict[tuple[int, ...], int] = {tuple(row[:3]): row[3] for row in before.turns}
    wanted = []
    for row in rows:
        if row[5] not in chosen:
            if row[4] < latest.get(row[1:4], 0):
                wanted.append(row[0])
            latest[row[1:4]] = max(row[4], latest.get(row[1:4], 0))
    found = audit_steps._Rows(lake, cast(Any, lake.engine), lake.known(), before)
    monkeypatch.setattr(found, "_by_bronze", lambda: {0: []})
    monkeypatch.setattr(found, "_chosen", lambda batch, files: pa.table(
        [pa.array(sorted(chosen), pa.int64())], schema=audit_steps.CHOSEN))
    with audit_kept.at_work(lake, [seed, held]) as kept:
        kept.step("messages-0", lambda: (None, {
            "given": pa.Table.from_pylist([dict(zip(audit_steps.GIVEN.names, row, strict=True))
                                           for row in rows], schema=audit_steps.GIVEN),
            "waiting": pa.Table.from_pylist([dict(zip(audit_steps.WAITS.names, row, strict=True))
                                             for row in waiting], schema=audit_steps.WAITS)}))
        told, turns = found.order(kept, lambda _: None)
    assert sorted(each["qpool"] for each in audited.merged(told).findings) == sorted(wanted)
    assert len(wanted) > 5 and sum(each.counts.get("out_of_order", 0) for each in told) == len(
        wanted)
    assert sorted(turns) == sorted([*line, latest[line]] for line in waiting)


def test_which_work_is_done_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not Later(no_session, memory="1g").in_steps((1 << 20) - 1)
    assert Later(no_session, memory="1g").in_steps(1 << 20)
    assert not Later(no_session, 0).in_steps(1 << 40), "Spark was asked for"
    assert Later(no_session, memory="512m").audit_rows * 2 == Later(no_session).audit_rows
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert not Later(no_session).in_steps(1 << 40), "under spark-submit"


@pytest.mark.parametrize("seed", range(8))
def test_intervals_have_each_row_once(seed: int, tmp_path: Path) -> None:
    """Of numbers that lie together, far apart, that are many times the same, and null."""
    pick = np.random.default_rng(seed)
    values = np.concatenate([
        pick.integers(1, 5000, 3000), pick.integers(1 << 40, (1 << 40) + 90, 700 * (seed % 3)),
        np.full(200, 77), np.array([-(1 << 63), (1 << 63) - 1] if seed % 2 else [3], "<i8")])
    pick.shuffle(values)
    parts = [values[: len(values) // 2], values[len(values) // 2 :]]
    for place, part in enumerate(parts):
        pq.write_table(pa.table({"n": pa.array([*part.tolist(), None], pa.int64())}),
                       tmp_path / f"{place}.parquet", row_group_size=500)
    sources = [(ds.dataset(tmp_path / f"{place}.parquet"), "n") for place in range(2)]
    most = int(pick.integers(1, 400))
    found = intervals.intervals(sources, most)
    assert all(a[1] < b[0] for a, b in itertools.pairwise(found))
    counts = [sum(intervals.between(rows, "n", each).num_rows for rows, _ in sources)
              for each in found]
    assert sum(counts) == len(values)
    for (first, last), count in zip(found, counts, strict=True):
        mine = values[(values >= first) & (values <= last)]
        assert 0 < count == len(mine) and (count <= most or len({*mine.tolist()}) == 1)
    assert len(found) <= 2 * len(values) // most + 8, "and not more of them than needed"
    assert intervals.intervals([(ds.dataset(pa.table({"n": pa.array([], pa.int64())})), "n")],
                               9) == []
