"""A run on clusters with executors of their own, each a JVM of one core and 1 GiB whose Python
comes out of a packed environment: the tables are those that one process makes without any JVM.

Of a million messages on local-cluster and on a standalone master with two workers, and of fewer, in
two batches, with archive and tables in a real S3 server (moto's), without a jar: there one of the
executors is killed while messages are written. A run of CI takes one of the three, by turns, with
60,000 messages, `make test-all` all of them (ADR 0226). OMQ_CLUSTER_MESSAGES is that number. Of
60,000 each batch has more than a driver writes and reads itself; its heap is 1 GiB, Spark's
default.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import pyarrow.fs as pafs
import pyspark
import pytest

from omq.base.errors import Exit
from omqtools.omqspark import plan
from omqtools.omqspark.columns import BRONZE
from omqtools.omqspark.out_directory import Out
from omqtools.omqspark.pipeline import run
from omqtools.omqspark.session import FEW_FRAMES, Later
from omqtools.omqspark.source_read import Work
from omqtools.omqspark.worker_files import HIDDEN
from tests import needs, share
from tests.process import test_ship
from tests.spark.conftest import generated
from tests.spark.packed import END_S, MADE_HERE, MASTER, packed, submitted
from tests.spark.told import no_session, told
from tests.waiting import until

STANDALONE, STORE = "standalone", "store"
MESSAGES = {MASTER: 1_000_000, STANDALONE: 1_000_000, STORE: 60_000}
FILES = 20  # so there are several tasks: a file counts for a megabyte at least
BATCHES = {MASTER: 1, STANDALONE: 1, STORE: 2}
"""Of the second, executors read what they have written in the first."""
LAST_S, LOOK_S = 10.0, 0.2
WORKERS = 2
DEPLOY = "org.apache.spark.deploy"


@contextmanager
def daemon(log: Path, *words: str) -> Iterator[None]:
    """A process of a standalone cluster, until the end."""
    environment = {k: v for k, v in os.environ.items() if k not in MADE_HERE} | {
        "SPARK_HOME": str(Path(pyspark.__file__).parent), "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m", "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false"}
    with log.open("wb") as said, subprocess.Popen(
            [str(Path(sys.executable).with_name("spark-class")), *words], stdout=said,
            stderr=subprocess.STDOUT, env=environment, start_new_session=True) as child:
        try:
            yield
        finally:
            child.terminate()
            try:
                child.wait(LAST_S)
            except subprocess.TimeoutExpired:
                child.kill()


@contextmanager
def standalone(where: Path) -> Iterator[str]:
    """A master with two workers on loopback; its address."""
    log, ports = where / "master.log", ("--port", "0", "--webui-port", "0", "--host", "127.0.0.1")
    with ExitStack() as all_of_it:
        all_of_it.enter_context(daemon(log, f"{DEPLOY}.master.Master", *ports))

        def address() -> str:
            found = re.search(r"spark://127\.0\.0\.1:\d+", log.read_text())
            return found[0] if found else ""

        until(lambda: bool(address()), "the master")
        for number in range(WORKERS):
            all_of_it.enter_context(daemon(
                where / f"worker{number}.log", f"{DEPLOY}.worker.Worker", *ports, "--cores", "1",
                "--memory", "1g", "--work-dir", str(where / f"work{number}"), address()))
        until(lambda: log.read_text().count("Registering worker") == WORKERS, "the workers")
        yield address()


def executors() -> list[int]:
    """Processes that this one has started, at whatever distance."""
    above, found = {}, []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # gone meanwhile
            pid = int(stat.parent.name)
            above[pid] = int(stat.read_text().rpartition(")")[2].split()[1])
            if b"CoarseGrainedExecutorBackend" in stat.with_name("cmdline").read_bytes():
                found.append(pid)

    def is_ours(pid: int) -> bool:
        return pid == os.getpid() or (pid in above and is_ours(above[pid]))

    return [pid for pid in found if is_ours(pid)]


@contextmanager
def one_is_killed(messages: str) -> Iterator[list[int]]:
    """An executor, as soon as a task has written some of this table under its hidden name; which.
    """
    killed, ended = list[int](), Event()
    fs, path = plan.filesystem(messages)

    def look() -> None:
        while not ended.wait(LOOK_S):
            found = fs.get_file_info(pafs.FileSelector(path, allow_not_found=True, recursive=True))
            if any(info.base_name.startswith(HIDDEN) for info in found):
                killed.extend(executors()[:1])
                for pid in killed:
                    os.kill(pid, signal.SIGKILL)
                return

    looking = Thread(target=look)
    looking.start()
    try:
        yield killed
    finally:
        ended.set()
        looking.join()


@needs.java
@pytest.mark.parametrize("case", share.of_cases([*MESSAGES]))
def test_a_cluster_makes_the_same_tables(case: str, tmp_path_factory: pytest.TempPathFactory,
                                         tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = int(os.environ.get("OMQ_CLUSTER_MESSAGES", MESSAGES[case]))
    made, truth = generated(tmp_path_factory, messages, stories=1, file_frames=messages // FILES)
    archive, one = made / "archive", tmp_path / "one"
    assert truth["frames"] > FEW_FRAMES, "the driver would do it"
    work = Work({"path": str(archive)}, list(BRONZE))
    assert len(work.tasks(work.listing())) > 1, "one task alone is the driver's"
    run(Later(no_session), str(archive), str(one), incremental=False)
    env, notes = packed(tmp_path)
    tables, conf = tmp_path / "tables", ["spark.executor.memory=1g"]
    where, out = str(archive), str(tables)
    with ExitStack() as all_of_it:
        if case == STORE:
            url = all_of_it.enter_context(test_ship.served_bucket(monkeypatch))
            where, out = f"{url}/archive", f"{url}/tables"
            fs, path = plan.filesystem(where)
            pafs.copy_files(str(archive), path, destination_filesystem=fs)
            conf += [f"spark.executorEnv.{key}={value}" for key, value in os.environ.items()
                     if key.startswith("AWS_")]
        master = all_of_it.enter_context(standalone(tmp_path)) if case == STANDALONE else MASTER
        files = -(-len([*archive.iterdir()]) // BATCHES[case])
        killed = all_of_it.enter_context(one_is_killed(f"{out}/messages")) if case == STORE else []
        done = submitted(env, "run", "--archive", where, "--out", out, "--files-per-batch",
                         str(files), master=master, conf=conf,
                         end_s=END_S + messages / (100 if case == STORE else 500))
        assert done.returncode == Exit.OK, done.stderr[-3000:]
        assert len(Out(out).known().batches) == BATCHES[case]
        if case == STORE:
            fs, path = plan.filesystem(out)
            pafs.copy_files(path, str(tables), source_filesystem=fs,
                            destination_filesystem=pafs.LocalFileSystem())
    assert len(killed) == (case == STORE)
    logged = [line for line in done.stderr.splitlines() if "INFO" in line or "log4j" in line or (
        "Exception" in line and not killed)]
    assert not logged, "logs are quiet, as without spark-submit"
    ran = {Path(line) for line in notes.read_text().splitlines()}
    assert {each.name for each in ran} == {"env"}, "executors unpacked it and have read"
    assert told(tables) == told(one)
