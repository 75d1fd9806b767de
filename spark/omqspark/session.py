"""The Spark session: defaults for what nobody has set, quiet logs, the data source registered.

No master is named: `spark-submit --master`, SPARK_MASTER in the environment of spark-submit or
spark-defaults.conf decide; without any of them Spark itself takes local[*]. Everything here is a
default: what spark-submit, spark-defaults.conf or PYSPARK_SUBMIT_ARGS say wins.

Errors: SparkMissing; BadRequest for less memory than anything can be done with.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from omq.base.errors import BadRequest, SparkMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omqtools.omqspark.jvm_classes import ClassArchive

DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.ui.explainMode": "simple",  # each plan is written down for it
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",  # folders: days and batches
    "spark.sql.debug.maxToStringFields": "100",
    # What a web interface would show of the past: a session that runs for weeks keeps 1000 plans.
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "20",
    # Where in our files each column of a plan was said: three calls of the JVM and a walk over the
    # stack for each, thousands of times.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # INT96 is read by few others
    "spark.driver.memory": "2g",
}
QUICK: Final = ("-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+IgnoreUnrecognizedVMOptions "
                "-XX:MetaspaceSize=400m")
"""For a JVM that lives for seconds: most of its processor time would go into compiling, for later.
Measured: see ANALYTICS, "What a refresh costs"."""
LAUNCHER: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # of a JVM that makes one line of text
ARROW: Final = ("-Darrow.enable_unsafe_memory_access=true "
                "-Darrow.enable_null_check_for_get=false")
"""The JVM reads what comes from Python without looking at bounds, and at nulls twice: a sixth of
what the source costs. Spark asks for nulls itself, and no damage of an archive makes an array that
is none (tests/spark/test_flips.py). It holds for other sources of the session, too: whoever has one
that builds Arrow's buffers by hand sets SPARK_CONF_DIR, or options of his own."""
SMALL_FRAMES: Final = 1_000_000
"""Of a batch below this the plans are interpreted: compiling each costs more than all its rows."""
FEW_FRAMES: Final = 100_000
"""Of a batch below this the driver holds all rows, and writes the files (parquet.py): 30 MB."""
FRAME_BYTES: Final = 1024
"""Memory that DuckDB and Arrow need for each frame of a batch, at most: measured (ANALYTICS)."""
AUDIT_ROW_BYTES: Final = 512
"""The same for each message and stay that a step of an audit looks at."""
SIZES: Final = {"m": 1 << 20, "g": 1 << 30}
SPARK_LEAST: Final = 512 << 20
"""Of the JVM: it refuses to start with less than 450 MiB of heap that it can use at once."""
PARTITION_FRAMES: Final = 250_000  # of one task after a shuffle, at most
PARTITIONS_MAX: Final = 20_000
ENDS_S: Final = 30.0  # within which tasks that are cancelled end, or are left to their fate
CONF: Final = Path(__file__).with_name("conf")
NO_CONF: Final = CONF / "none"
"""A folder that is not there: Spark puts the folder of its settings among its classes, and the JVM
keeps no classes where a folder with files in it is among them."""
LOG4J: Final = "log4j2.properties"
SPARKS_OWN: Final = "!/org/apache/spark/log4j2-defaults.properties"
LOGGING: Final = f"-Dlog4j2.configurationFile={CONF / LOG4J}"


def session(extra: dict[str, str] | None = None, *, quick: bool = False,
            classes: ClassArchive | None = None, keep_classes: bool = False,
            source: bool = True) -> SparkSession:
    """The session of this process; `quick`: for little work, and with the JVM's classes as they
    were kept, if they were; `keep_classes`: else it keeps them; `source`: the data source is known
    in it, for which Spark starts Python processes that look for others. SparkMissing without
    pyspark or Java."""
    under_submit = _under_submit()
    if not under_submit and not os.environ.get("JAVA_HOME") and not shutil.which("java"):
        raise SparkMissing(what="java", reason="no java in PATH and no JAVA_HOME")
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkMissing(what="pyspark", reason=str(error)) from error
    settings = DEFAULTS | (extra or {})
    if not under_submit:
        kept = classes.java(make=keep_classes) if quick and classes else ""
        heap = f"-Xms{settings['spark.driver.memory']}"  # all of it from the beginning (ADR 0099)
        _environment(settings, f"{QUICK} {heap} {kept}" if quick else "")
    from pyspark import SparkConf, SparkContext

    from omqtools.omqspark.jvm_lookups import remember

    SparkContext._ensure_initialized()
    if under_submit:
        _quiet(SparkContext._jvm)
    known = SparkConf()
    builder = SparkSession.builder.appName("omq-spark")
    for key, value in settings.items():
        if not known.contains(key):
            builder = builder.config(key, value)
    spark = builder.getOrCreate()
    remember(spark.sparkContext._jvm)
    if source:
        from omqtools.omqspark.source import OmqjSource

        spark.dataSource.register(OmqjSource)
    return spark


@dataclass
class Later:
    """A session that is made when somebody needs it. Below `few_frames` frames a batch needs none:
    DuckDB tells it, within `memory` ("512m", "1g"); None: as many as have room there. Who comes by
    spark-submit wants Spark, and YARN calls a driver without a session failed."""

    make: Callable[[], SparkSession]
    few_frames: int | None = None
    memory: str = "1g"
    made: bool = False

    def is_few(self, frames: int) -> bool:
        """Whether so many need no Spark."""
        few = self._bytes // FRAME_BYTES if self.few_frames is None else self.few_frames
        return frames < few and not _under_submit()

    def in_steps(self, frames: int) -> bool:
        """Whether an audit of so many is done in steps, as they are more than memory has room for,
        and nobody has asked for Spark."""
        return self.few_frames != 0 and not _under_submit() and not self.is_few(frames)

    @property
    def audit_rows(self) -> int:
        """Messages and stays that such a step has room for."""
        return self._bytes // AUDIT_ROW_BYTES

    @property
    def _bytes(self) -> int:
        return int(self.memory[:-1]) * SIZES[self.memory[-1]]

    def refuse(self, frames: int, what: str) -> None:
        """BadRequest: `what` has so many, and neither DuckDB nor Spark has room for them."""
        if self.few_frames is not None or _under_submit() or self.is_few(frames) \
                or self._bytes >= SPARK_LEAST:
            return
        least = min(frames * FRAME_BYTES // SIZES["m"] + 1, SPARK_LEAST // SIZES["m"])
        raise BadRequest(reason=f"--memory {self.memory} has room for {self._bytes // FRAME_BYTES}"
                                f" events at once; {what} has {frames}: give --memory {least}m or "
                                "more")

    @cached_property
    def spark(self) -> SparkSession:
        if self._bytes < SPARK_LEAST:
            raise BadRequest(reason=f"Spark needs more than --memory {self.memory}: give "
                                    f"--memory {SPARK_LEAST // SIZES['m']}m or more")
        self.made = True
        return self.make()


def _under_submit() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


def end(spark: SparkSession) -> None:
    """Stop the session, behind what nobody waits for any more: of a join whose one half had no rows
    adaptive execution leaves the other half at work, and its tasks would find their blocks gone and
    say so in pages of traces. A JVM that is gone is at its end; what was lost by it was told."""
    from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

    context = spark.sparkContext
    with suppress(Py4JNetworkError, ConnectionError):
        context.cancelAllJobs()
        at_work, until = context.statusTracker(), time.monotonic() + ENDS_S
        while (at_work.getActiveJobsIds() or at_work.getActiveStageIds()
               ) and time.monotonic() < until:
            time.sleep(0.01)
        spark.stop()


def sized(spark: SparkSession, frames: int) -> bool:
    """Set what depends on how many frames a batch has, where nobody has said otherwise; whether
    they are few. Adaptive execution joins partitions that turn out small."""
    small, few = frames < SMALL_FRAMES, frames < FEW_FRAMES
    tasks = 1 if few else max(spark.sparkContext.defaultParallelism,
                              -(-frames // PARTITION_FRAMES))
    told = spark.sparkContext.getConf()
    for key, value in {
            "spark.sql.codegen.wholeStage": str(not small).lower(),
            "spark.sql.codegen.factoryMode": "NO_CODEGEN" if small else "FALLBACK",
            "spark.sql.adaptive.enabled": str(not few).lower(),
            "spark.sql.shuffle.partitions": str(min(tasks, PARTITIONS_MAX))}.items():
        if not told.contains(key):
            spark.conf.set(key, value)
    return few


def _quiet(jvm: Any) -> None:
    """The logs of a JVM that spark-submit has started, as they are without it; where somebody has
    set them (a file in SPARK_CONF_DIR, or -Dlog4j2.configurationFile) they stay."""
    one_that_logs = getattr(getattr(jvm.org.apache.spark.util, "Utils$"), "MODULE$")
    one_that_logs.initializeLogIfNecessary(False, True)  # noqa: FBT003  # or the context does it anew
    log4j = jvm.org.apache.logging.log4j
    now = log4j.LogManager.getContext(False).getConfiguration()  # noqa: FBT003
    if str(now.getConfigurationSource().getLocation()).endswith(SPARKS_OWN):
        log4j.core.config.Configurator.reconfigure(jvm.java.net.URI((CONF / LOG4J).as_uri()))


def _environment(settings: dict[str, str], java: str) -> None:
    """What must be known before the JVM starts. Who has a folder of settings, or options of
    spark-submit, of his own means these: an option here would override spark-defaults.conf."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", LAUNCHER)
    options = ""
    if "SPARK_CONF_DIR" not in os.environ:
        own = "PYSPARK_SUBMIT_ARGS" in os.environ or " " in LOGGING
        os.environ["SPARK_CONF_DIR"] = str(CONF if own else NO_CONF)
        java = java if own else f"{LOGGING} {ARROW} {java}".strip()
        options = f"--driver-java-options '{java}' " if java else ""
    memory = settings["spark.driver.memory"]
    quiet = "--conf spark.ui.showConsoleProgress=false"
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS",
                          f"--driver-memory {memory} {options}{quiet} pyspark-shell")
