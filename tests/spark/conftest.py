"""One Spark session for all tests here, and one generated archive with its tables."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omq.storage import durable
from omq.storage.disk import Disk

pytest.importorskip("pyspark", reason="make setup-spark installs it")

from omqtools.omqspark import parquet
from omqtools.omqspark import session as sessions
from omqtools.omqspark.lake import Lake
from omqtools.omqspark.manifest import Manifest
from omqtools.omqspark.pipeline import run
from tests.made.generate import generate
from tests.made.generator import Load
from tests.needs import need_java

FAST = {
    "spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false",
    "spark.driver.memory": "1g", "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",  # compiling costs more than the small tables
}
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+IgnoreUnrecognizedVMOptions"
MESSAGES = 3000
STORIES = 2  # of each kind
Made = tuple[Path, dict[str, Any]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """pyspark and pandas warn of their own future; that is not our mistake. These tests come last:
    the bridge to the JVM has threads as long as the session lives, and daemons of other tests are
    forked from a process with one."""
    here = f"{Path(__file__).parent}/"
    mine = [item for item in items if str(item.path).startswith(here)]
    for item in mine:
        item.add_marker(pytest.mark.filterwarnings("default"))
    items[:] = [*(item for item in items if not str(item.path).startswith(here)), *mine]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    need_java()
    scratch = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        f"--master local[1] --driver-memory 1g --driver-java-options '{JAVA}' "
        f"--conf spark.sql.warehouse.dir={scratch} --conf spark.local.dir={scratch} "
        "--conf spark.ui.showConsoleProgress=false pyspark-shell")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        made = sessions.session(FAST)
        yield made
        made.stop()


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A generated archive with one fault of each kind, and its truth table."""
    return generated(tmp_path_factory, MESSAGES, file_frames=6000, faults=1, stories=STORIES)


def generated(factory: pytest.TempPathFactory, messages: int, *, file_frames: int, faults: int = 0,
              stories: int = 0, rate: float = 200.0) -> tuple[Path, dict[str, Any]]:
    """A folder with an archive of so many messages, `rate` a second, and its truth table."""
    durable.use(Disk())
    out = factory.mktemp("generated")
    return out, generate(out, messages, faults=faults, load=Load(rate=rate),
                         file_frames=file_frames, stories=stories)


@pytest.fixture(scope="session")
def lake(spark: Any, made: tuple[Path, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
         ) -> Lake:
    """Its tables, made in two batches; beside them (`killed`) as they were before the second batch
    counted."""
    out = tmp_path_factory.mktemp("lake") / "tables"

    def watched(self: Lake, known: Manifest) -> None:
        if known.current:
            shutil.copytree(out, out.with_name("killed"))
        publish(self, known)

    publish = Lake.publish
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lake, "publish", watched)
        said = run(spark, str(made[0] / "archive"), str(out), incremental=False, files_per_batch=4)
    assert len(said["batches"]) == 2, json.dumps(said)
    return Lake(spark, str(out))


@pytest.fixture
def by_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is few: Spark reads and writes all files, as it does when a batch has many rows."""
    monkeypatch.setattr(sessions, "FEW_FRAMES", 0)
    monkeypatch.setattr(parquet, "FEW_BYTES", -1)


@pytest.fixture
def rows_max(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets how many rows a step of an audit has room for."""
    return lambda rows: monkeypatch.setattr(sessions, "AUDIT_ROW_BYTES", (1 << 30) // rows)


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> list[Made]:
    """With faults, of which some make each audit look at everything; and without."""
    return [generated(tmp_path_factory, 700, file_frames=500, faults=faults, stories=2)
            for faults in (2, 0)]
