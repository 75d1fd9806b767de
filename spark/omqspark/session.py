"""The Spark session: defaults for what nobody has set, quiet logs, the data source registered.

No master is named: `spark-submit --master`, SPARK_MASTER in the environment of spark-submit or
spark-defaults.conf decide; without any of them Spark itself takes local[*]. Everything here is a
default: what spark-submit, spark-defaults.conf or PYSPARK_SUBMIT_ARGS say wins.

Errors: SparkMissing.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from omq.base.errors import SparkMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.debug.maxToStringFields": "100",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # INT96 is read by few others
    "spark.driver.memory": "2g",
}
ALONE: Final = {"spark.sql.shuffle.partitions": "8"}
"""On one machine; a cluster's own number, which adaptive execution joins, stays."""
CONF: Final = Path(__file__).with_name("conf")


def session(extra: dict[str, str] | None = None) -> SparkSession:
    """The session of this process. SparkMissing without pyspark or Java."""
    under_submit = "PYSPARK_GATEWAY_PORT" in os.environ
    if not under_submit and not os.environ.get("JAVA_HOME") and not shutil.which("java"):
        raise SparkMissing(what="java", reason="no java in PATH and no JAVA_HOME")
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkMissing(what="pyspark", reason=str(error)) from error
    settings = DEFAULTS | ({} if under_submit else ALONE) | (extra or {})
    if not under_submit:
        _environment(settings)
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    known = SparkConf()
    builder = SparkSession.builder.appName("omq-spark")
    for key, value in settings.items():
        if not known.contains(key):
            builder = builder.config(key, value)
    spark = builder.getOrCreate()
    from omqtools.omqspark.source import OmqjSource

    spark.dataSource.register(OmqjSource)
    return spark


def _environment(settings: dict[str, str]) -> None:
    """What must be known before the JVM starts."""
    os.environ.setdefault("SPARK_CONF_DIR", str(CONF))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    memory = settings["spark.driver.memory"]
    quiet = "--conf spark.ui.showConsoleProgress=false"
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f"--driver-memory {memory} {quiet} pyspark-shell")
