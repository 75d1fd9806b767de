"""The module under spark-submit, as a cluster runs it: with executors of one core and 1 GiB, whose
Python comes out of a packed environment.

The environment is packed as venv-pack does it, but for what other projects wrote, which would be a
gigabyte: its Python takes that from the environment of the tests, and omq from the archive alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import omq
import omqtools
import omqtools.omqspark.main

END_S = 600
MASTER = "local-cluster[2,1,1024]"
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
