"""Tables in an object store that refuses, is slow, or has two runs at once; the store is a real S3
server (moto's), with a front that refuses what it is told to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from omq.base.errors import Exit, OmqError, OutHeld, SparkFailed
from omqtools.omqspark import failures, parquet, plan, store_lock, worker_files
from omqtools.omqspark.main import main
from omqtools.omqspark.pipeline import run
from omqtools.omqspark.session import Later
from tests.process import test_ship
from tests.spark.conftest import generated
from tests.spark.refusing_store import Front, front
from tests.spark.told import no_session, told

ROWS = pa.table({"day": [1, 1, 2, 2, 2], "qpool": [5, 4, 3, 2, 1]})
SERVER_ERROR, REVOKED = 500, 403
POINTS = 4


@dataclass
class Store:
    """`url`: of tables, by the environment; `seen`: of them for Spark's workers, which have none.
    """

    front: Front
    url: str

    @property
    def seen(self) -> str:
        bucket = self.url.removeprefix("s3://")
        return (f"s3://a:b@{bucket}?scheme=http&endpoint_override={self.front.address}"
                "&region=us-east-1")

    def names(self) -> list[str]:
        fs, path = plan.filesystem(self.url)
        return [info.path for info in fs.get_file_info(pafs.FileSelector(
            path, allow_not_found=True, recursive=True)) if info.type == pafs.FileType.File]

    @property
    def lock(self) -> str:
        return f"{plan.filesystem(self.url)[1]}/{store_lock.NAME}"

    def put_lock(self, **whose: Any) -> None:
        fs, _ = plan.filesystem(self.url)
        with fs.open_output_stream(self.lock) as stream:
            stream.write(json.dumps(json.loads(store_lock._mine()) | whose).encode())


@pytest.fixture(scope="module")
def bucket() -> Iterator[Front]:
    with pytest.MonkeyPatch.context() as patch, test_ship.served_bucket(patch), front(
            os.environ["AWS_ENDPOINT_URL"]) as made:
        for key in ("AWS_ENDPOINT", "AWS_ENDPOINT_URL"):
            patch.setenv(key, f"http://{made.address}")
        yield made


@pytest.fixture
def store(bucket: Front, request: pytest.FixtureRequest) -> Store:
    bucket.order("pass")
    return Store(bucket, f"s3://archive/{abs(hash(request.node.name))}")


def test_one_of_two_runs_is_refused(store: Store, tmp_path: Path) -> None:
    """By the name of the one that is at work, before anything is looked at; then it is free."""
    with store_lock.held(store.url):
        with pytest.raises(OutHeld) as refused:
            main(["run", "--archive", str(tmp_path), "--out", store.url])
        assert f"process {os.getpid()} on" in str(refused.value)
        assert f"remove the object {store.url}/.lock" in str(refused.value)
        assert OutHeld.exit_code == Exit.TEMPORARY
    assert not store.names()
    with store_lock.held(store.url):
        pass


@pytest.mark.parametrize("whose", [{"namespace": "pid:[1]"}, {"boot": "00"}, {"pid": "?"},
                                   {"pid": None}])
def test_of_whom_nobody_here_can_know_is_left_its_lock(store: Store, whose: dict[str, Any]) -> None:
    store.put_lock(**{"pid": 1 << 30, "started": 1} | whose)
    with pytest.raises(OutHeld), store_lock.held(store.url):
        pass
    assert store.names() == [store.lock]


def test_the_lock_of_a_killed_run_is_taken_over_by_one(store: Store,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    store.put_lock(pid=ended.pid)
    with store_lock.held(store.url):
        assert store.names() == [store.lock]
    store.put_lock(pid=ended.pid)
    real = store_lock._read

    def raced(*given: Any) -> Any:
        """Between the look and the taking another one takes it."""
        found = real(*given)
        monkeypatch.setattr(store_lock, "_read", real)
        store.put_lock()
        return found

    monkeypatch.setattr(store_lock, "_read", raced)
    with pytest.raises(OutHeld, match=str(os.getpid())), store_lock.held(store.url):
        pass


def test_who_lost_its_lock_leaves_that_of_another(store: Store) -> None:
    with store_lock.held(store.url):
        store.put_lock(pid=1)
    assert store.names() == [store.lock]


def test_a_store_that_refuses_the_lock_is_told(store: Store) -> None:
    store.front.order("refuse", 1, REVOKED)
    with pytest.raises(SparkFailed, match=r"403|the keys were"), store_lock.held(store.url):
        pass


def rows_seen(store: Store) -> list[tuple[Any, ...]]:
    _, path = plan.filesystem(store.url)
    found = []
    for info in parquet.files_of(store.url):
        values = parquet._values(info.path, path)
        arrow = pa.schema([("day", pa.int64()), ("qpool", pa.int64())])
        found += [tuple(row.values()) for row in parquet._read(
            store.url, info, values, arrow).to_pylist()]
    return sorted(found)


GIVEN = sorted(tuple(row.values()) for row in ROWS.to_pylist())


@pytest.mark.parametrize("status", [REVOKED, SERVER_ERROR])
def test_what_a_store_refuses_to_executors_is_told_and_done_again(spark: Any, store: Store,
                                                                  status: int) -> None:
    """Wherever it begins: nothing is seen but what was renamed, whole files; the next try has all
    rows once."""
    frame = spark.createDataFrame(ROWS).coalesce(1)
    worker_files.write(frame, store.seen, ["day"], append=False)
    assert rows_seen(store) == GIVEN
    before = store.front.order("count")
    worker_files.write(frame, store.seen, ["day"], append=False)
    requests = store.front.order("count") - before
    for number in range(1, requests + 1, requests // POINTS):
        store.front.order("refuse", number, status)
        with pytest.raises(SparkFailed, match=r"AccessDenied|ACCESS_DENIED|HTTP status 500"
                           ), failures.told():
            worker_files.write(frame, store.seen, ["day"], append=False)
        store.front.order("pass")
        assert {*rows_seen(store)} <= {*GIVEN}
    store.front.order("renames", status)  # and nothing else
    with pytest.raises(SparkFailed, match=r"AccessDenied|ACCESS_DENIED|HTTP status 500"
                       ), failures.told():
        worker_files.write(frame, store.seen, ["day"], append=False)
    store.front.order("pass")
    worker_files.write(frame, store.seen, ["day"], append=False)
    assert rows_seen(store) == GIVEN
    assert not [name for name in store.names() if worker_files.HIDDEN in name]


def test_a_listing_that_is_slow_is_asked_again(store: Store) -> None:
    """Its first answer comes when the client has given it up and has asked a second time."""
    parquet._write(ROWS, store.url, ["day"], append=False)
    store.front.order("keep")
    assert rows_seen(store) == GIVEN
    store.front.order("pass")
    assert store.front.lists > 1


def test_a_run_that_a_store_fails_leaves_the_tables_of_before(
        store: Store, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    """Wherever it begins; the next run has those of a directory. Nobody needs the word of unsafe
    renames for delta-rs, which commits where there is nothing of that name."""
    assert "AWS_S3_ALLOW_UNSAFE_RENAME" not in os.environ
    made, _ = generated(tmp_path_factory, 60, file_frames=200)
    files = sorted((made / "archive").glob("*.oma"))
    first = tmp_path / "first"
    first.mkdir()
    (first / files[0].name).write_bytes(files[0].read_bytes())
    for archive, name in ((first, "one"), (made / "archive", "all")):
        run(Later(no_session), str(archive), str(tmp_path / name), incremental=False)
    run(Later(no_session), str(first), store.url, incremental=False)

    def there(name: str) -> Any:
        fs, path = plan.filesystem(store.url)
        pafs.copy_files(path, str(tmp_path / name), source_filesystem=fs,
                        destination_filesystem=pafs.LocalFileSystem())
        return told(tmp_path / name)

    one = told(tmp_path / "one")
    assert there("before") == one
    for turn, number in enumerate((5, 60)):
        store.front.order("refuse", number, REVOKED)
        with pytest.raises(OmqError), failures.told():
            run(Later(no_session), str(made / "archive"), store.url, incremental=True)
        store.front.order("pass")
        assert there(f"failed{turn}") == one
    run(Later(no_session), str(made / "archive"), store.url, incremental=True)
    assert there("after") == told(tmp_path / "all")
