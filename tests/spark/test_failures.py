"""What goes wrong around Spark is told in one line; what nobody waits for ends before a session."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

from omq.base.errors import Exit, SparkFailed
from omq.cli.launch import BROKEN_PIPE
from omqtools.omqspark import session
from omqtools.omqspark.failures import quiet, told
from omqtools.omqspark.lake import Lake
from tests import needs
from tests.waiting import until

COMMAND = [sys.executable, "-m", "omq.cli.launch", "omq-spark"]
ENDS_S = 120
PLAIN = {key: value for key, value in os.environ.items() if key != "PYSPARK_SUBMIT_ARGS"}


@pytest.mark.parametrize("arguments", [["report"], ["tables"], ["tables", "--columns", "stays"]])
def test_what_needs_no_java_runs_without(lake: Lake, tmp_path: Path, arguments: list[str]) -> None:
    """In a process of its own, where no session of another test helps out."""
    done = subprocess.run(
        [*COMMAND, *arguments, "--out", lake.out], capture_output=True, text=True, check=False,
        env=PLAIN | {"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)}, timeout=ENDS_S)
    assert (done.returncode, done.stderr) == (Exit.OK, "")
    assert done.stdout


def test_a_reader_that_goes_away_is_no_failure(lake: Lake) -> None:
    """omq-spark tables | head -1"""
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run([*COMMAND, "tables", "--out", lake.out], stdout=theirs, check=False,
                          stderr=subprocess.PIPE, text=True, timeout=ENDS_S)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (BROKEN_PIPE, "")


def java_of(parent: int) -> int:
    """The JVM below a process; 0: none yet."""
    try:
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        for child in map(int, children):
            if Path(f"/proc/{child}/comm").read_text() == "java\n":
                return child
            if below := java_of(child):
                return below
    except FileNotFoundError:
        pass  # it has ended meanwhile
    return 0


@needs.java
def test_a_jvm_that_is_killed_is_told_in_a_line(made: tuple[Path, dict[str, Any]], tmp_path: Path
                                                ) -> None:
    """As the kernel does it for want of memory; the next run makes it good."""
    lines = []
    with subprocess.Popen(
            [*COMMAND, "run", "--archive", str(made[0] / "archive"), "--spark-from", "0", "--out",
             str(tmp_path / "tables")], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True, env=PLAIN | {"SPARK_LOCAL_DIRS": str(tmp_path)}) as child:
        assert child.stderr is not None
        for line in child.stderr:
            lines.append(line)
            if "files are done" in line:
                until(lambda: any((tmp_path / "tables").rglob("*.parquet"))
                      or child.poll() is not None)
                victim = java_of(child.pid)
                assert victim > 0, "".join(lines)  # 0 would be this whole group of processes
                os.kill(victim, signal.SIGKILL)
        assert child.wait(ENDS_S) == Exit.IO, "".join(lines)
    mine = [line for line in lines if line.startswith("omq-spark: ")]
    assert "the JVM has ended in the middle of it" in mine[-1]
    assert not [line for line in lines if "Traceback" in line], "".join(lines)


@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "refused"), BrokenPipeError(32, "x"),
                                   Py4JNetworkError("Answer from Java side is empty")])
def test_a_connection_that_breaks_is_the_jvms(error: Exception) -> None:
    """Of our own output somebody reads here."""
    with pytest.raises(SparkFailed, match="the JVM has ended"), told():
        raise error


def test_what_py4j_logs_of_what_it_raises_is_not_told_twice(capfd: pytest.CaptureFixture[str]
                                                           ) -> None:
    before = list(logging.getLogger().handlers)
    with quiet():
        for path, text in (("/x/py4j/java_gateway.py", "a trace"), ("/x/y.py", "a warning")):
            logging.getLogger().handle(logging.LogRecord(
                "root", logging.WARNING, path, 1, text, None, None))
    told = capfd.readouterr().err
    assert "a warning" in told
    assert "a trace" not in told
    assert logging.getLogger().handlers == before


class Context:
    """Of Spark, as far as `session.end` asks it: a job that ends at the third look."""

    def __init__(self, *, gone: bool = False) -> None:
        self.gone, self.did, self.looks = gone, list[str](), 0
        self.sparkContext = self

    def cancelAllJobs(self) -> None:
        self.did.append("cancel")
        if self.gone:
            raise ConnectionRefusedError

    def statusTracker(self) -> Context:
        return self

    def getActiveJobsIds(self) -> list[int]:
        self.looks += 1
        return [15] if self.looks < 3 else []

    def getActiveStageIds(self) -> list[int]:
        return []

    def stop(self) -> None:
        self.did.append(f"stop after {self.looks} looks")


def test_a_session_ends_behind_what_nobody_waits_for() -> None:
    spark: Any = Context()
    session.end(spark)
    assert spark.did == ["cancel", "stop after 3 looks"]


def test_of_a_jvm_that_is_gone_nothing_is_stopped() -> None:
    spark: Any = Context(gone=True)
    session.end(spark)
    assert spark.did == ["cancel"]
