"""omrc, omshut and omstat together, over fake daemons and the shipped services.conf."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from omq.base.errors import BadRequest, Exit, NeedsRepair, SpoolMissing, TimedOut
from omq.base.paths import SpoolPaths
from omq.cli.look import omstat
from omq.cli.operate import omrc, omshut
from omq.storage.spool import open_spool

SCRIPT = Path(__file__).with_name("run_omrc.py")
NONSTOP = ["qmgr start", "pool start", "idel start"]


@pytest.fixture
def start(
    tmp_path: Path, lines: Callable[[int], Any], end_process: Callable[..., None]
) -> Iterator[Callable[..., Any]]:
    """start(arguments...) runs omrc in a spool of its own and gives the lines of its stderr."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*arguments: str) -> tuple[subprocess.Popen[bytes], Any]:
        options = ["--embedded", "--spool", str(tmp_path / "spool"), *arguments]
        reading, writing = os.pipe()
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), *options], stderr=writing, stdout=subprocess.PIPE
        )
        os.close(writing)
        started.append(process)
        fds.append(reading)
        return process, lines(reading)

    fds: list[int] = []
    yield begin
    for process in started:
        end_process(process)
    for fd in fds:
        os.close(fd)


def test_makes_the_spool_starts_shows_and_stops(
    start: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spool = str(tmp_path / "spool")
    process, said = start()
    said.until(lambda line: line.startswith("omrc: smtp.server: is ready in "))
    assert open_spool(tmp_path / "spool", writer=True)

    assert omstat.main(["-a", "--spool", spool]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].split("  ")[0] == "Queue Manager"
    table = table[:13]  # these daemons are not real: below it stands that there is no index
    off = [row for row in table if row.startswith(
            ("Trigger", "AMQP", "Channel", "Schedule", "Sendmail"))]
    assert {row[25:33].strip() for row in off} == {"Disabled"}
    assert all(row[25:32] == "Started" for row in table if row not in off)
    assert [row[43:51] for row in table[:3]] == ["NON-STOP"] * 3

    wrong = tmp_path / "wrong"
    wrong.mkdir()
    (wrong / "omq.conf").write_text("[nonsense]\n")
    assert omshut.main(["--spool", spool, "--conf", str(wrong)]) == Exit.OK
    assert process.wait(120) == Exit.OK
    told = capsys.readouterr().err
    assert "going by the defaults" in told
    assert "stopping: qmgr pool idel router local unix errmgr smtp" in told
    assert "pool is down; waiting for: the supervisor" in told

    assert omstat.main(["-a", "--json", "--spool", spool]) == Exit.NO
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {record["state"] for record in records} == {"Stopped", "Disabled"}
    assert omshut.main(["--spool", spool]) == Exit.NO
    assert "nothing runs" in capsys.readouterr().err


def test_only_the_nonstop_daemons(start: Callable[..., Any], tmp_path: Path) -> None:
    process, said = start("-n")
    said.until(lambda line: line.startswith("omrc: idel.server: is ready in "))
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == Exit.OK
    text = (tmp_path / "spool" / "journal.txt").read_text().splitlines()
    assert text == [*NONSTOP, "idel stop", "qmgr stop", "pool stop"]


def test_second_omrc_names_the_first(start: Callable[..., Any]) -> None:
    first, said = start("-n")
    said.until(lambda line: line.startswith("omrc: idel.server: is ready in "))
    second, told = start("-n")
    told.until(lambda line: f"locked by process {first.pid}" in line)
    assert second.wait(120) != 0
    assert first.poll() is None


def test_two_instances_side_by_side(
    start: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, said = start("-n")
    second, told = start("-n", "--spool", str(tmp_path / "other"))
    for each in (said, told):
        each.until(lambda line: line.startswith("omrc: idel.server: is ready in "))
    assert omshut.main(["--spool", str(tmp_path / "other")]) == Exit.OK
    assert second.wait(120) == Exit.OK
    assert first.poll() is None
    capsys.readouterr()
    omstat.main(["-a", "--json", "--spool", str(tmp_path / "spool")])
    assert json.loads(capsys.readouterr().out.splitlines()[0])["state"] == "Started"


def test_omshut_gives_up_in_time(
    supervise: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run = supervise({"qmgr": ["manager", "deaf"]}, stop_s=60)
    run.until("qmgr", "is ready")
    with pytest.raises(TimedOut, match=r"no answer within 0\.2 s while waiting for qmgr"):
        omshut.main(["--spool", str(run.spool), "--timeout", "0.2"])
    assert "stopping: qmgr" in capsys.readouterr().err
    os.kill(run.status()["qmgr"]["pid"], signal.SIGKILL)
    assert run.end() == Exit.OK


def test_omrc_does_not_take_a_foreign_directory(tmp_path: Path) -> None:
    (tmp_path / "home.txt").touch()
    with pytest.raises(NeedsRepair, match=r"home\.txt"):
        omrc.prepare_spool(SpoolPaths(tmp_path), init=False)
    assert [each.name for each in tmp_path.iterdir()] == ["home.txt"]
    tmp_path.chmod(0o750)
    omrc.prepare_spool(SpoolPaths(tmp_path), init=True)
    (tmp_path / "run").rmdir()
    omrc.prepare_spool(SpoolPaths(tmp_path), init=False)
    assert (tmp_path / "run").is_dir()


def test_omrc_without_embedded_says_what_to_do() -> None:
    with pytest.raises(BadRequest, match="--embedded"):
        omrc.main([])


@pytest.mark.parametrize("command", [omshut.main, omstat.main])
def test_missing_spool(command: Callable[[list[str]], int], tmp_path: Path) -> None:
    with pytest.raises(SpoolMissing):
        command(["--spool", str(tmp_path / "nothing")])
