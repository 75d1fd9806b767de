"""First use: what `omq init` makes runs, and what omq says of itself where it cannot run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from omq.base.errors import BadName, FileNotWritten
from omq.cli.setup import omq_init
from tests.process.ipc_space import ipc_space
from tests.process.processes import WAIT_S, start_program
from tests.tidy.tree import ROOT
from tests.waiting import until

ELSEWHERE = """\
import ctypes, datetime, email, json, logging, os, select, signal, socket, subprocess, sys
import sysconfig, time
sysconfig.get_config_vars()  # of this interpreter, not of another platform's
for name in ("fcntl", "pwd", "grp", "resource", "termios", "sysv_ipc"):
    sys.modules[name] = None
for module, names in ((os, ("O_NOFOLLOW", "O_CLOEXEC", "O_PATH", "eventfd", "fork", "memfd_create",
                            "geteuid", "register_at_fork")),
                      (time, ("CLOCK_BOOTTIME",)), (select, ("poll", "epoll"))):
    for name in names:
        delattr(module, name)
sys.platform = PLATFORM
CODE
"""
"""Python as it is on another system, as far as omq can see."""


@pytest.fixture
def project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    folder = tmp_path / "a %h shop"
    assert omq_init.main([str(folder), "--queue", "INVOICES"]) == 0
    assert "pytest" in capsys.readouterr().out
    return folder


def test_what_it_makes_is_tested(project: Path) -> None:
    with ipc_space():
        done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
                              cwd=project, capture_output=True, text=True, timeout=300,
                              check=False)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr


def _health(place: list[str]) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-P", "-m", "omq.cli.launch", "omq", "health", *place],
                          capture_output=True, text=True, timeout=WAIT_S, check=False)
    return done.returncode, done.stdout + done.stderr


def test_what_it_makes_runs(project: Path, tmp_path: Path) -> None:
    place = ["--spool", str(project / "spool"), "--conf", str(project / "conf")]
    output = tmp_path / "output"
    (tmp_path / "body").write_text('{"id": 7}')
    with ipc_space():
        instance = start_program("omrc", ["--embedded", "-n", *place], output=output)
        worker = start_program("omq", ["worker", "tasks:work", "--queue", "INVOICES", "--path",
                                       str(project), *place], output=output)
        try:
            sent = start_program("omsend", ["INVOICES", str(tmp_path / "body"), *place[:2]],
                                 output=output)
            assert sent.wait() == 0, output.read_text()
            until(lambda: "worked on 7" in output.read_text(), output.read_text)
            # -n: nobody wants the mail services to run, whose queues are not defined.
            until(lambda: _health(place) == (0, "nothing is wrong\n"), lambda: str(_health(place)))
        finally:
            for child in (worker, instance):
                child.signal(15)
            assert (worker.wait(), instance.wait()) == (0, 0), output.read_text()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="install systemd")
def test_its_unit_is_one(project: Path) -> None:
    done = subprocess.run(["systemd-analyze", "verify", "--user", project / "tasks-worker.service"],
                          capture_output=True, text=True, timeout=WAIT_S, check=False,
                          env={**os.environ, "XDG_RUNTIME_DIR": str(project)})
    assert "tasks-worker.service" not in done.stderr, done.stderr
    text = (project / "tasks-worker.service").read_text()
    assert f'"OMQ_SPOOL={str(project).replace("%", "%%")}/spool"' in text


def test_nothing_is_overwritten(project: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    with pytest.raises(FileNotWritten, match="exists already"):
        omq_init.main([str(project)])
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before
    (tmp_path / "file").touch()
    with pytest.raises(FileNotWritten):
        omq_init.main([str(tmp_path / "file")])
    with pytest.raises(BadName):
        omq_init.main([str(tmp_path / "new"), "--queue", "orders; rm"])
    assert not (tmp_path / "new").exists()


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          timeout=WAIT_S, check=False, env={**os.environ, "PYTHONPATH":
                                                            str(ROOT / "lib")})


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_elsewhere_the_pure_parts_work_and_the_rest_says_so(platform: str) -> None:
    def run(code: str) -> subprocess.CompletedProcess[str]:
        return python(ELSEWHERE.replace("PLATFORM", repr(platform)).replace("CODE", code))

    done = run("import omq, omq.base.errors; from omq import codec\n"
               "from omq.tasks.schedule_times import rule\n"
               "assert codec.read(codec.encode({'id': 7}), codec.JSON) == {'id': 7}\n"
               "assert rule('X', 'every 15 min', 'UTC', 0).after(0) == 900 * 10**9\n"
               "try: omq.connect\n"
               "except omq.OmqError as error: print(error)")
    assert done.stdout.startswith(f"omq.connect needs Linux, but this is {platform}; "), done
    assert done.stdout.count("\n") == 1
    done = run("import omq.cli.launch")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1) and platform in done.stderr
    done = run("import omq.__main__; sys.exit(omq.__main__.main(['worker']))")
    assert done.returncode == 0 and "queues need Linux" in done.stdout, done


def test_what_it_says_of_itself() -> None:
    done = subprocess.run([sys.executable, "-m", "omq"], capture_output=True, text=True,
                          timeout=WAIT_S, check=True)
    assert "omq init DIR" in done.stdout
    done = subprocess.run([sys.executable, "-m", "omq", "--version"], capture_output=True,
                          text=True, timeout=WAIT_S, check=True)
    assert done.stdout.startswith("omq ")
