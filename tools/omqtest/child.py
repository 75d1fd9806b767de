"""A child process by fork: a daemon or client without the time in which an interpreter starts.

The child runs one function, the very one that its launcher calls, and exits with its result; it
never comes back into the caller's stack. The caller has one thread. Methods are those of
subprocess.Popen.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import select
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

CRASHED = 70
_FOREIGN = ("OMQ_SPOOL", "OMQ_CONF", "OMQ_FAULT", "OMQ_FAULT_LOG", "NOTIFY_SOCKET",
            "JOURNAL_STREAM")


class Child:
    """One child; `returncode` is None while it runs, negative for a signal."""

    def __init__(self, target: Callable[[], int], output: Path,
                 environment: Mapping[str, str] | None = None) -> None:
        self.returncode: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _run(target, output, environment or {})
        self._pidfd = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        return self.wait(0.0)

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait for its end, at most so long; the exit code, None when it still runs."""
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._pidfd, select.POLLIN)
            if not poll.poll(None if timeout_s is None else timeout_s * 1000):
                return None
            _, status = os.waitpid(self.pid, 0)
            self.returncode = os.waitstatus_to_exitcode(status)
            os.close(self._pidfd)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Nothing when it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(target: Callable[[], int], output: Path, environment: Mapping[str, str]) -> None:
    """In the child; does not return."""
    code = CRASHED
    try:
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for which in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(which, signal.SIG_DFL)
        for name in _FOREIGN:
            os.environ.pop(name, None)
        os.environ.update(environment)
        null = os.open(os.devnull, os.O_RDONLY)
        to = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for fd, number in ((null, 0), (to, 1), (to, 2)):
            os.dup2(fd, number)
        sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
        code = target()
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
