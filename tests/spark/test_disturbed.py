"""A run that something disturbs: SIGKILL in the middle of a batch that DuckDB tells, another locale
of its process, a clock that was set between files. The tables are those of an undisturbed run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from omq.base.errors import Exit
from omqtools.omqspark import views
from omqtools.omqspark.out_directory import VERSIONS, Out
from omqtools.omqspark.pipeline import run
from omqtools.omqspark.session import Later
from tests import needs
from tests.made.story import SIDE, Book, Story
from tests.spark.conftest import generated
from tests.spark.packed import MADE_HERE
from tests.spark.test_believed import HOUR, World, half, served, stuck
from tests.spark.told import no_session, told

COMMAND = [sys.executable, "-m", "omq.cli.launch", "omq-spark", "run", "--incremental"]
ENDS_S = 240
PLAIN = {key: value for key, value in os.environ.items() if key not in MADE_HERE}
NO_JAVA = PLAIN | {"JAVA_HOME": "/nowhere"}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of each kind of message, the second with what ends in it."""
    made, truth = generated(tmp_path_factory, 900, file_frames=2700, stories=1)
    assert truth["files"] >= 2
    return made / "archive"


def tables_of(archive: Path, out: Path, files: int, per_batch: int = 1) -> dict[str, Any]:
    here = out.with_name(f"{out.name}-archive")
    here.mkdir()
    for path in sorted(archive.glob("*.oma"))[:files]:
        shutil.copy2(path, here)
    run(Later(no_session), str(here), str(out), incremental=False, files_per_batch=per_batch)
    return told(out)


@pytest.mark.cases
@pytest.mark.parametrize("step", ["files 2 to 2", "the events are read",
                                  "messages and stays are written", "the next batch"])
def test_a_process_that_is_killed_in_a_batch_leaves_true_tables(archive: Path, step: str,
                                                               tmp_path: Path) -> None:
    """In the second batch, or when it has just been told; the next run goes on."""
    out = tmp_path / "tables"
    words = ["--archive", str(archive), "--out", str(out), "--files-per-batch", "1"]
    seen = []
    with subprocess.Popen([*COMMAND, *words], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                          text=True, env=NO_JAVA) as child:
        assert child.stderr is not None
        for line in child.stderr:
            seen.append(line)
            if f"batch 1: {step}" in line or (step == "the next batch" and "2 of " in line):
                child.kill()
        assert child.wait(ENDS_S) == -signal.SIGKILL, "".join(seen)
    known = Out(str(out)).known()
    assert len(known.batches) == (2 if step == "the next batch" else 1)
    assert (out / VERSIONS).exists()
    assert told(out) == tables_of(archive, tmp_path / "some", len(known.batches))
    done = subprocess.run([*COMMAND, *words], env=NO_JAVA, timeout=ENDS_S, check=False,
                          capture_output=True, text=True)
    assert done.returncode == Exit.OK, done.stderr
    assert told(out) == tables_of(archive, tmp_path / "all", 99, per_batch=99)


@pytest.fixture(scope="module")
def plain(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return tables_of(archive, tmp_path_factory.mktemp("plain") / "tables", 99)


@pytest.fixture(scope="module")
def locales(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which tr_TR and de_DE are there, if they can be made."""
    where = tmp_path_factory.mktemp("locales")
    if shutil.which("localedef"):
        for name in ("tr_TR", "de_DE"):
            subprocess.run(["localedef", "-i", name, "-f", "UTF-8", str(where / f"{name}.UTF-8")],
                           check=False, capture_output=True)
    return {"LOCPATH": str(where)} if list(where.iterdir()) else {}


@pytest.mark.cases
@pytest.mark.parametrize("engine", ["duckdb", pytest.param("spark", marks=needs.java)])
@pytest.mark.parametrize("name", ["tr_TR", "de_DE"])
def test_a_locale_changes_nothing(name: str, engine: str, archive: Path, plain: dict[str, Any],
                                  locales: dict[str, str], tmp_path: Path) -> None:
    """Where I is not the capital of i, and where a comma stands before decimals. The JVM is told
    the same by its own options, as the C library may not have the locale."""
    language, country = name.split("_")
    env = PLAIN | locales | {
        "LC_ALL": f"{name}.UTF-8", "LANG": f"{name}.UTF-8", "LANGUAGE": language,
        "JAVA_TOOL_OPTIONS": f"-Duser.language={language} -Duser.country={country}"}
    done = subprocess.run(
        [*COMMAND, "--archive", str(archive), "--out", str(tmp_path / "tables"), "--spark-from",
         "0" if engine == "spark" else "1000000"], env=env, timeout=ENDS_S, check=False,
        capture_output=True, text=True)
    assert done.returncode == Exit.OK, done.stderr
    assert ("JAVA_TOOL_OPTIONS" in done.stderr) == (engine == "spark"), done.stderr
    assert told(tmp_path / "tables") == plain


def ends(number: int) -> Any:
    def tell(book: Book, start_ns: int) -> None:
        Story(book, number, start_ns).served(SIDE)

    return tell


def test_a_clock_that_was_set_changes_nothing(tmp_path: Path) -> None:
    """Three hours back, then a year forward, then right again, a file each: the order is that of
    the LSNs, whatever batches tell it, and for each queue what came less what left is there."""
    world = World(tmp_path)
    world.add(stuck, half, served(20, every_s=60.0))
    world.add(served(20, every_s=60.0, first=2000), after_h=-3)
    world.add(served(5, every_s=60.0, first=3000), after_h=24 * 365)
    world.add(ends(7), served(20, every_s=60.0, first=4000), after_h=1)
    world.add(served(5, every_s=60.0, first=5000), after_h=2)
    one = world.out.with_name("one")
    run(Later(no_session), str(world.archive), str(one), incremental=False)
    run(Later(no_session), str(world.archive), str(world.out), incremental=False,
        files_per_batch=1)
    assert told(world.out) == told(one)
    assert world.command("audit") == Exit.OK
    with views.database(str(one)) as database:
        rows = database.sql("SELECT qpool, life_ns, end_how FROM messages WHERE qpool IN (7, 8) "
                            "ORDER BY 1").fetchall()
        left = dict(database.sql("SELECT queue_name, count(*) FILTER (left_lsn IS NULL) FROM stays "
                                 "GROUP BY 1").fetchall())
        last = dict(database.sql("SELECT queue_name, arg_max(depth, minute_ns) FROM queue_minute "
                                 "GROUP BY 1").fetchall())
    assert rows[0][1] > HOUR // 2 and rows[0][2] and rows[1][1:] == (None, None)
    assert left == last == {"SIDE": 0, "WORK": 1}
