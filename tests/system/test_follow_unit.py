"""The unit that `omq-spark follow --unit` prints, under a real systemd: it starts, its memory stays
what it is, SIGKILL in a batch makes systemd start it again, and each file is told once."""

from __future__ import annotations

import json
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="make setup-spark installs it")

import omq
import omqtools
import omqtools.omqspark.main
from omqtools.omqspark.pipeline import run
from omqtools.omqspark.session import Later
from tests.spark.conftest import generated
from tests.spark.told import no_session, told
from tests.system.box import Box

UNIT = "omq-follow"
PYTHON, PACKAGES, OURS = "/srv/python", "/srv/packages", "/srv/omq"
ARCHIVE, OUT, MADE = "/var/spool/mq/archive", "/srv/tables", "/srv/made"
PROGRAM = "/opt/follow/omq-spark"
LAUNCHER = f"""\
#!/bin/sh
export LD_LIBRARY_PATH={PYTHON}/lib PYTHONPATH={OURS}:{PACKAGES}
exec {PYTHON}/bin/python3 -m omq.cli.launch omq-spark "$@"
"""
GROWTH_MAX = 1.5
"""Of the memory of the process, between its second batch and its last but one."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, truth = generated(tmp_path_factory, 3000, file_frames=1500)
    assert truth["files"] >= 8
    return folder / "archive"


@pytest.fixture
def box(made: Path, tmp_path: Path) -> Iterator[Box]:
    """A machine with this Python, its packages, and omq, where the unit's user may read them."""
    ours, out = tmp_path / "ours", tmp_path / "out"
    for package, name in ((omq, "omq"), (omqtools.omqspark.main, "omqtools/omqspark")):
        shutil.copytree(Path(package.__file__ or "").parent, ours / name,
                        ignore=shutil.ignore_patterns("docs", "__pycache__"))
    shutil.copy(omqtools.__file__, ours / "omqtools")
    out.mkdir()
    machine = Box(tmp_path / "state", {
        Path(sys.base_prefix): PYTHON, Path(sysconfig.get_path("purelib")): PACKAGES, ours: OURS,
        out: OUT, made: MADE})
    yield machine
    machine.stop(in_order=False)


def batches(out: Path) -> list[list[int]]:
    """The files of each batch that counts."""
    path = out / "current.json"
    return [one["files"] for one in json.loads(path.read_text())["batches"]
            ] if path.exists() else []


def told_are(out: Path, number: int) -> bool:
    return len(batches(out)) == number


def resident_kb(box: Box) -> int:
    text = box.sh(f"cat /proc/{box.pid(UNIT)}/status")
    return int(re.findall(r"^VmRSS:\s+(\d+)", text, re.MULTILINE)[0])


def test_the_unit_follows_and_is_started_again(box: Box, made: Path, tmp_path: Path) -> None:
    out, files = tmp_path / "out", sorted(path.name for path in made.glob("*.oma"))
    box.write(PROGRAM, LAUNCHER, "755")
    box.sh(f"useradd --system omq; mkdir -p {ARCHIVE}; chown -R omq {Path(ARCHIVE).parent} {OUT}")
    text = box.run(PROGRAM, "follow", "--archive", ARCHIVE, "--out", OUT, "--unit")
    text = re.sub(r"ExecStart=\S+ (.*)", rf"ExecStart={PROGRAM} \1 --interval-s 0.2", text)
    box.write(f"/etc/systemd/system/{UNIT}.service", text.replace("RestartSec=5", "RestartSec=0.2"))
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "enable", "--now", UNIT)

    def came(name: str) -> None:
        box.sh(f"cd {ARCHIVE}; cp {MADE}/{name} .coming; chown omq .coming; mv .coming {name}")

    box.sh(f"cp {MADE}/{files[0]} {ARCHIVE}/{files[0]}; chmod 600 {ARCHIVE}/{files[0]}")
    box.wait("that it may not be read is said", lambda: any(
        f"{files[0]} is passed over" in line for line in box.messages("-u", UNIT)))
    sizes = []
    for number, name in enumerate(files[:-1], 1):
        came(name)
        box.wait(f"batch {number}", partial(told_are, out, number))
        sizes.append(resident_kb(box))
    assert sizes[-1] < GROWTH_MAX * sizes[1], sizes
    assert int(box.show(UNIT, "NRestarts")) == 0
    assert int(box.show(UNIT, "MemoryMax")) == 4 << 30
    killed = box.pid(UNIT)
    came(files[-1])
    box.wait("the last batch to begin", lambda: any(
        f"batch {len(files) - 1}: files" in line for line in box.messages("-u", UNIT)))
    box.kill("KILL", killed)
    box.wait("the next one", lambda: box.pid(UNIT) not in (0, killed))
    box.wait("the last batch", partial(told_are, out, len(files)))
    assert int(box.show(UNIT, "NRestarts")) == 1
    assert batches(out) == [[number] for number in range(1, len(files) + 1)], "each once"
    box.run("systemctl", "stop", UNIT)
    assert box.show(UNIT, "Result") == "success"
    assert "the next start goes on" in "\n".join(box.messages("-u", UNIT))
    one = tmp_path / "one"
    run(Later(no_session), str(made), str(one), incremental=False)
    assert told(out) == told(one)
