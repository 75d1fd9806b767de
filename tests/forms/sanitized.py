"""The fuzzer on a build with gcc's address and undefined-behaviour sanitizers.

    python -m tests.forms.sanitized COUNT [SEED]

Exit code 0: nothing was found; 77: there is no compiler with sanitizers.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.forms.running import ROOT

ABSENT: Final = 77


def library() -> str:
    """The sanitizer's own library; empty: there is none."""
    if shutil.which("gcc") is None:
        return ""
    found = subprocess.run(["gcc", "-print-file-name=libasan.so"], text=True, check=True,
                           stdout=subprocess.PIPE).stdout.strip()
    return found if Path(found).is_absolute() else ""


def main(arguments: list[str]) -> int:
    """Build and fuzz."""
    preload = library()
    if not preload:
        return ABSENT
    count, seed = arguments[0], arguments[1] if len(arguments) > 1 else "1"
    with tempfile.TemporaryDirectory(prefix="omq-sanitized-") as folder:
        copy = Path(folder) / "omq"
        shutil.copytree(ROOT / "lib" / "omq", copy,
                        ignore=shutil.ignore_patterns("__pycache__", "compiled"))
        subprocess.run([sys.executable, str(ROOT / "setup_compiled.py"), "--library", str(copy),
                        "--required", "--sanitize"], check=True)
        environment = os.environ | {
            "LD_PRELOAD": preload, "ASAN_OPTIONS": "detect_leaks=0", "OMQ_FAST": "compiled",
            "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "PYTHONMALLOC": "malloc",
            "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run([sys.executable, "-m", "tests.forms.fuzzing", count, seed],
                              cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
