"""The same module under spark-submit: what a cluster runs, here with two local workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import omqtools.omqspark.main
from omqtools.omqspark.lake import Lake

END_S = 240
MADE_HERE = ("PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET",
             "SPARK_CONF_DIR")


def submitted(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in MADE_HERE}
    return subprocess.run(
        [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]",
         "--driver-java-options", "-XX:TieredStopAtLevel=1",
         "--conf", "spark.ui.enabled=false", omqtools.omqspark.main.__file__, *arguments],
        env=environment | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True, text=True, timeout=END_S, check=False)


def test_the_module_runs_under_spark_submit(spark: Any, made: tuple[Path, dict[str, Any]],
                                            lake: Lake) -> None:
    done = submitted("biography", "--out", lake.out, "--qpool", "17")
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert "PUT  ROUTER" in lines[0]
    assert "DONE" in lines[-1]
