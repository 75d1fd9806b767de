"""The same module under spark-submit: what a cluster runs, here with a worker of one core and 1
GiB, a JVM of its own whose Python comes out of a packed environment (two: test_cluster.py).

The environment is packed as venv-pack does it, but for what other projects wrote, which would be a
gigabyte: its Python takes that from the environment of the tests, and omq from the archive alone.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import omq
import omqtools
import omqtools.omqspark.main
from omqtools.omqspark.pipeline import run
from omqtools.omqspark.session import Later
from tests import needs
from tests.spark.told import no_session

END_S = 600
MASTER = "local-cluster[2,1,1024]"
ONE = "local-cluster[1,1,1024]"
MADE_HERE = ("PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET",
             "SPARK_CONF_DIR")


def packed(where: Path) -> tuple[Path, Path]:
    """An archive of an environment, and a file in which its Python notes from where it ran."""
    env, notes = where / "env", where / "notes"
    for package, name in ((omq, "omq"), (omqtools.omqspark.main, "omqtools/omqspark")):
        shutil.copytree(Path(package.__file__ or "").parent, env / "lib" / name,
                        ignore=shutil.ignore_patterns("docs", "__pycache__"))
    shutil.copy(omqtools.__file__, env / "lib" / "omqtools")
    (env / "bin").mkdir()
    python = env / "bin" / "python"
    python.write_text(f"""#!/bin/sh
here=$(cd "$(dirname "$0")/.." && pwd)
echo "$here" >>{notes}
PYTHONPATH="$here/lib" exec {sys.executable} "$@"
""")
    python.chmod(0o755)
    with tarfile.open(where / "env.tgz", "w:gz", compresslevel=1) as archive:
        archive.add(env, ".")
    shutil.rmtree(env)
    return where / "env.tgz", notes


def submitted(env: Path, *arguments: str, master: str = MASTER, end_s: float = END_S,
              conf: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in MADE_HERE}
    return subprocess.run(
        [str(Path(sys.executable).with_name("spark-submit")), "--master", master,
         "--driver-java-options", "-XX:TieredStopAtLevel=1", "--archives", f"{env}#env",
         "--conf", "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
         "--conf", "spark.ui.enabled=false", *(word for one in conf for word in ("--conf", one)),
         omqtools.omqspark.main.__file__, *arguments],
        env=environment | {"PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
                           "PYSPARK_PYTHON": "./env/bin/python"},
        capture_output=True, text=True, timeout=end_s, check=False)


@needs.java
def test_the_module_runs_under_spark_submit_in_a_packed_environment(
        made: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    env, notes = packed(tmp_path)
    out = str(tmp_path / "tables")
    run(Later(no_session), str(made[0] / "archive"), out, incremental=False)
    done = submitted(env, "whatif", "--out", out, "--readers", "ROUTER=1", master=ONE)
    assert done.returncode == 0, done.stderr[-3000:]
    logged = [line for line in done.stderr.splitlines()
              if "INFO" in line or "log4j" in line or "Exception" in line]
    assert not logged, "logs are quiet, as without spark-submit"
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["kind"] for row in rows] == ["real", "replayed", "asked"]
    assert {row["queue"] for row in rows} == {"ROUTER"}
    assert rows[2]["p90_s"] > rows[0]["p90_s"]
    ran = {Path(line) for line in notes.read_text().splitlines()}
    assert ran and all(path.name == "env" for path in ran), "what executors unpacked"
    assert not any(path.is_relative_to(tmp_path) for path in ran)
