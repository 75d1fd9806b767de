"""What a failure leaves: one line that replays it, and the image as a tar file."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Final

from tests.crash.sim.explore import Violation

FOLDER: Final = Path("build/crash")


def replay_line(violation: Violation, mutant: str = "") -> str:
    """The command that judges just this state again."""
    words = [violation.workload, str(violation.seed), str(violation.cut), violation.label]
    extra = f" --mutant {mutant}" if mutant else ""
    return f".venv/bin/python -m tests.crash.sim.run{extra} --replay {' '.join(words)}"


def save(violation: Violation, folder: Path = FOLDER) -> Path | None:
    """The image as files of a tar."""
    if violation.image is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{violation.workload}-{violation.seed}-{violation.cut}.tar"
    with tarfile.open(folder / name, "w") as tar:
        for path, data in sorted(violation.image.content().items()):
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return folder / name


def describe(violation: Violation, mutant: str = "", folder: Path = FOLDER) -> str:
    """What an engineer needs to go on."""
    saved = save(violation, folder)
    return f"{violation}\n  replay: {replay_line(violation, mutant)}\n  image:  {saved}"
