"""omq-spark follow: what is new becomes a batch, once; when it audits, when it ends; what it holds.
Then the command itself, with a JVM of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from omq.base.errors import Exit, OutBusy
from omq.format.archive import ArchiveHeader
from omq.storage import durable, history, holds, spool
from omq.storage.disk import Disk
from omqtools.omqspark import archive_holds, main, plan
from omqtools.omqspark.follow import STREAM, Following, Pace
from omqtools.omqspark.manifest import FileRecord
from omqtools.omqspark.out_directory import CURRENT, Out
from tests.made.writer import UUID
from tests.needs import need_java
from tests.spark.conftest import generated
from tests.waiting import until

ENDS_S = 240.0


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generated(tmp_path_factory, 60, file_frames=150)[0] / "archive"


class Rounds:
    """A follower on a clock of its own, whose batches only note what they would read."""

    def __init__(self, archive: Path, out: Path, **pace: Any) -> None:
        self.now, self.busy = 1000.0, False
        self.did: list[Any] = []
        self.archive, self.out = str(archive), Out(str(out))
        out.mkdir(exist_ok=True)
        self.following = Following(self.archive, str(out), Pace(**pace), self.batch,
                                   lambda: self.did.append("audit"), lambda: self.now)

    def batch(self) -> None:
        if self.busy:
            raise OutBusy(path=self.out.out)
        known, new = self.out.manifest(), []
        for item, head in plan.heads(self.archive, plan.listing(self.archive)):
            if isinstance(head, ArchiveHeader) and item.number not in known.files:
                known.take(FileRecord.of(head, item.size, 0, item.modified_ns))
                known.uuid = head.uuid.hex()
                new.append(item.number)
        self.out.put(CURRENT, known.encode())
        self.did.append(new)

    def go(self, seconds: float) -> bool:
        self.now += seconds
        return self.following.look()


def test_each_file_is_told_once_and_nothing_costs_nothing(
        archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = tmp_path / "archive"
    here.mkdir()
    rounds = Rounds(here, tmp_path / "out", audit_s=100.0, idle_s=1000.0)
    assert rounds.go(5000.0) and rounds.did == [], "no archive yet: it waits, and starts no JVM"
    first, *others = sorted(archive.glob("*.oma"))
    shutil.copy2(first, here)
    assert rounds.go(1.0) and rounds.did == [[1], "audit"]
    for _ in range(3):
        assert rounds.go(10.0)
    (here / "0000000099.oma").write_bytes(b"not an archive")
    assert rounds.go(100.0) and len(rounds.did) == 2, "a stray makes no batches, nor audits"
    assert rounds.go(1.0) and capsys.readouterr().err.count("0000000099.oma is passed over") == 1
    (here / "0000000099.oma").write_bytes(b"not an archive either")
    assert rounds.go(1.0) and "0000000099.oma is passed over" in capsys.readouterr().err
    shutil.copy2(others[0], here)
    rounds.busy = True
    assert rounds.go(1.0) and len(rounds.did) == 2, "another has OUT: the next round tries again"
    rounds.busy = False
    assert rounds.go(1.0) and rounds.did[2:] == [[2], "audit"]
    assert rounds.go(999.0)
    assert not rounds.go(1.0), "nothing came for so long: its memory is given back"


def test_it_ends_after_so_many_batches_and_judges_what_it_told(archive: Path, tmp_path: Path
                                                               ) -> None:
    shutil.copytree(archive, tmp_path / "archive")
    rounds = Rounds(tmp_path / "archive", tmp_path / "out", batches_max=1, audit_s=1e9)
    assert not rounds.go(1.0)
    assert rounds.did[-1] == "audit"


def test_history_may_go_behind_it_and_not_before(archive: Path, tmp_path: Path) -> None:
    before = durable.use(Disk())
    try:
        paths = spool.create_spool(tmp_path / "spool", identity=UUID).paths
        first, second, *_ = sorted(archive.glob("*.oma"))
        shutil.copy2(first, paths.archive)
        rounds = Rounds(paths.archive, tmp_path / "out")

        def needed() -> int:
            with history.changing(paths, "test"):
                return holds.needed_from(paths)

        rounds.go(1.0)
        assert needed() == 1
        rounds.go(1.0)
        assert needed() == 2, "what was read may go"
        shutil.copy2(second, paths.archive)
        rounds.go(1.0)
        rounds.go(1.0)
        assert needed() == 3
    finally:
        archive_holds._held.pop(STREAM)[1].close()
        durable.use(before)


def test_the_unit_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["follow", "--archive", str(tmp_path / "archive"), "--out",
                      str(tmp_path / "out"), "--unit"]) == Exit.OK
    text = capsys.readouterr().out
    assert f" follow --archive {tmp_path}/archive --out {tmp_path}/out\n" in text
    assert "{" not in text and "Restart=always" in text
    if shutil.which("systemd-analyze"):
        text = text.replace(f"ExecStart={Path(sys.argv[0]).absolute()}", "ExecStart=/bin/true")
        (tmp_path / "omq-follow.service").write_text(text.replace("User=omq\n", ""))
        done = subprocess.run(["systemd-analyze", "verify", str(tmp_path / "omq-follow.service")],
                              capture_output=True, text=True, check=False)
        assert "omq-follow" not in done.stderr, done.stderr


@pytest.mark.parametrize("events", [0, 100_000])
def test_the_command_follows_and_ends_when_it_is_told_to(archive: Path, tmp_path: Path, events: int
                                                         ) -> None:
    """Two files one after the other in one session; SIGTERM ends it with 0, and all is there. Few
    events need no JVM."""
    if not events:
        need_java()
    here, out = tmp_path / "archive", tmp_path / "out"
    here.mkdir()
    out.mkdir()
    files = sorted(archive.glob("*.oma"))[:2]
    shutil.copy2(files[0], here)
    child = subprocess.Popen(
        [sys.executable, "-m", "omqtools.omqspark.main", "follow", "--archive", str(here), "--out",
         str(out), "--interval-s", "0.1", "--spark-from", str(events)], stdout=subprocess.PIPE,
        text=True, env=os.environ if not events else {**os.environ, "JAVA_HOME": "/nowhere"})

    def told() -> int:
        return len(Out(str(out)).manifest().batches)

    try:
        until(lambda: told() == 1, "the first file")
        shutil.copy2(files[1], here)
        until(lambda: told() == 2, "the second file")
    finally:
        child.send_signal(signal.SIGTERM)
        said, _ = child.communicate(timeout=ENDS_S)
    assert child.returncode == Exit.OK
    assert [json.loads(line)["batches"] for line in said.splitlines()] == [[0], [1]]
    assert (out / "tables.json").exists()
