"""Child processes of a test: forked from pytest, so that a daemon starts in a few milliseconds.

A daemon runs the very function that its launcher calls; what it lacks is only the time in which the
interpreter starts and imports, which is two thirds of what a manager's life in a test costs: all
that daemons import is imported here, before pytest freezes it (tests.descriptors). Pytest must have
one thread when it forks. Waiting is by pidfd, never by sleep.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from omq.base import fault
from omq.cli import fork_server, launch
from omq.services.daemon import pid_file
from omqtools.omqtest import child
from tests import threads
from tests.waiting import until

WAIT_S = 120.0
fork_server.import_daemons()
_CRASHED = 99  # exit code of a child whose function raised
_FOREIGN = ("OMQ_SPOOL", "OMQ_CONF", "OMQ_FAULT", "OMQ_FAULT_LOG", "NOTIFY_SOCKET",
            "JOURNAL_STREAM")


class Child:
    """One child process. `code` is None while it runs, else as subprocess has it (-9: SIGKILL)."""

    def __init__(self, pid: int, name: str) -> None:
        self.pid = pid
        self.name = name
        self.code: int | None = None
        self.pidfd = os.pidfd_open(pid)

    def wait(self, timeout_s: float = WAIT_S) -> int:
        """Its exit code; AssertionError when it does not end in time."""
        if self.code is None:
            poll = select.poll()
            poll.register(self.pidfd, select.POLLIN)
            assert poll.poll(timeout_s * 1000), f"{self.name} (pid {self.pid}) does not end"
            _, status = os.waitpid(self.pid, 0)
            self.code = os.waitstatus_to_exitcode(status)
            os.close(self.pidfd)
        return self.code

    @property
    def running(self) -> bool:
        """Looks, without waiting."""
        if self.code is None:
            poll = select.poll()
            poll.register(self.pidfd, select.POLLIN)
            if poll.poll(0):
                self.wait()
        return self.code is None

    def signal(self, number: int) -> None:
        if self.running:
            signal.pidfd_send_signal(self.pidfd, number)

    def kill(self) -> None:
        """SIGKILL and wait."""
        self.signal(signal.SIGKILL)
        self.wait()

    def wait_stopped(self) -> None:
        """Until SIGSTOP has taken hold of all of it."""
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)


def start(name: str, function: Callable[[], int], *, output: Path | None = None,
          environment: Mapping[str, str] | None = None) -> Child:
    """Fork; the child runs `function` and ends with its result."""
    running = threads.others()
    assert not running, f"a process with threads must not be forked: {running}"
    pid = os.fork()
    if pid:
        return Child(pid, name)
    code = _CRASHED
    try:
        code = _run(function, output, environment or {})
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _run(function: Callable[[], int], output: Path | None, environment: Mapping[str, str]) -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    if output is not None:
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, 1)
        os.dup2(file, 2)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115  (pytest's own is replaced)
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    for name in _FOREIGN:
        os.environ.pop(name, None)
    os.environ.update(environment)
    fault.arm(os.environ.get("OMQ_FAULT", ""))
    return int(function())


def start_program(program: str, arguments: list[str], *, output: Path,
                  environment: Mapping[str, str] | None = None) -> Child:
    """A command or daemon by its name, as its launcher in bin/ runs it."""
    return start(program, lambda: launch.run(program, arguments), output=output,
                 environment=environment)


def run_program(program: str, arguments: Sequence[str], *, stdin: bytes = b"",
                environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    """A command to its end, as subprocess.run has it."""
    files = [os.memfd_create(name) for name in ("stdin", "stdout", "stderr")]
    os.pwrite(files[0], stdin, 0)

    def run() -> int:
        for number, file in enumerate(files):
            os.dup2(file, number)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115  (pytest's own are replaced)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
        return launch.run(program, list(arguments))

    try:
        code = start(program, run, environment=environment).wait()
        out, err = (os.pread(file, os.fstat(file).st_size, 0) for file in files[1:])
    finally:
        for file in files:
            os.close(file)
    return subprocess.CompletedProcess([program, *arguments], code, out, err)


def claimant(path: Path) -> Child:
    """A process that has this pid file and does nothing, until it is killed."""

    def live() -> int:
        pid_file.claim(path)
        signal.pause()
        return 0

    child = start("claimant", live)
    until(lambda: pid_file.running(path) == child.pid)
    return child


def popen(program: str, arguments: list[str], *, output: Path = Path(os.devnull),
          environment: Mapping[str, str] | None = None) -> child.Child:
    """The same with the methods of subprocess.Popen."""

    def run() -> int:
        fault.arm(os.environ.get("OMQ_FAULT", ""))
        return launch.run(program, arguments)

    return child.Child(run, output, environment)
