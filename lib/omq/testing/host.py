"""The host of a test instance: a process that has imported the daemons, forks them and reaps them.

    python -P -m omq.testing.host CHANNEL CLOCK UNSYNCED [NAME...]

An interpreter with a daemon's imports takes 0.35 s, a fork a few milliseconds. It imports the
programs NAME before it hears anything, while the test itself still imports. Others are imported
when they are asked for, and nothing that a test may never want: all daemons would be half as much
again. Nothing of that is garbage, so none is looked for (gc). What it forks is the very program
that a supervisor would start, with two things in another place: its clock is that of the test
(omq.testing.shifted), and its disk can lose what was not synced (omq.testing.unsynced).

Requests are JSON, one a packet of the socket CHANNEL, one answer each:

    {"op": "start", "name": ..., "argv": [...], "output": path, "environ": {...}, "cwd": path}
                                           {"pid": n}
    {"op": "prepare", "names": [...]}      {}: it imports these now, while what runs starts
    {"op": "end", "pid": n, "number": n, "wait_s": s}   {"code": n}; {"code": null}: it still runs
    {"op": "running", "pid": n}            {"code": null} while it does

Invariants: 1. one thread; 2. what it forked dies with it (SIGTERM by the kernel), and
the children of what is killed are killed, too; 3. when the test
ends, on purpose or not, the socket does: all get SIGTERM in the order of a stop, then SIGKILL.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from omq.base import fault, form
from omq.cli import launch
from omq.services.daemon.process import adopt_orphans, die_with_parent, set_name
from omq.storage import durable
from omq.testing.shifted import ShiftedClock
from omq.testing.unsynced import UnsyncedDisk

PACKET_BYTES_MAX: Final = 1 << 16
_NAME: Final = "omq.testing"
_MANAGER: Final = "queue.manager"
_CRASHED: Final = 70
_STOP_S: Final = 10.0


def main() -> int:
    """Serve until the test is gone; in a forked program: its exit code."""
    channel, clock = socket.socket(fileno=int(sys.argv[1])), ShiftedClock(int(sys.argv[2]))
    channel.set_inheritable(False)
    gc.disable()
    set_name(_NAME)
    adopt_orphans()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    clock.install()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C is the test's
    for name in sys.argv[4:]:
        _import(name)
    return Host(channel, Path(sys.argv[3])).serve()


def _import(name: str) -> None:
    """What the program `name` needs."""
    late = form.before_forks() if name == _MANAGER else ()
    for module in (launch.COMMANDS.get(name, "").partition(":")[0], *late):
        with contextlib.suppress(Exception):  # when it is started it says itself what is wrong
            importlib.import_module(module)


class Host:
    """See the module."""

    def __init__(self, channel: socket.socket, unsynced: Path) -> None:
        self._channel = channel
        self._unsynced = unsynced
        self._running: dict[int, int] = {}  # pid: pidfd, in the order of their start
        self._codes: dict[int, int] = {}
        self._operations: dict[str, Callable[..., dict[str, Any]]] = {
            "start": self._start, "end": self._end, "running": self._look,
            "prepare": self._prepare}

    def serve(self) -> int:
        """Until the other end is closed."""
        while True:
            try:
                data = self._channel.recv(PACKET_BYTES_MAX)
            except ConnectionError:
                data = b""
            if not data:
                self._stop_all()
                return 0
            asked: dict[str, Any] = json.loads(data)
            answer = self._operations[asked.pop("op")](**asked)
            self._channel.send(json.dumps(answer).encode())

    def _start(self, name: str, argv: list[str], output: str, environ: dict[str, str], cwd: str
               ) -> dict[str, Any]:
        _import(name)
        gc.freeze()
        host = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._be(host, name, argv, output, environ, cwd)
        self._running[pid] = os.pidfd_open(pid)
        return {"pid": pid}

    def _prepare(self, names: list[str]) -> dict[str, Any]:
        for name in names:
            _import(name)
        return {}

    def _be(self, host: int, name: str, argv: list[str], output: str, environ: dict[str, str],
            cwd: str) -> None:
        """The program, in the child: does not return."""
        code = _CRASHED
        try:
            self._channel.close()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.setsid()
            die_with_parent(host)
            os.chdir(cwd)
            os.environ.clear()
            os.environ.update(environ)
            file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(file, 1)
            os.dup2(file, 2)
            gc.enable()
            set_name(name)
            durable.use(UnsyncedDisk(self._unsynced))
            fault.arm(environ.get("OMQ_FAULT", ""))
            code = launch.run(name, argv)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _end(self, pid: int, number: int, wait_s: float) -> dict[str, Any]:
        self._signal(pid, number)
        return {"code": self._code(pid, wait_s)}

    def _look(self, pid: int) -> dict[str, Any]:
        return {"code": self._code(pid, 0.0)}

    def _signal(self, pid: int, number: int) -> None:
        if not number or pid not in self._running:
            return
        if number == signal.SIGKILL:
            with contextlib.suppress(ProcessLookupError):  # it leads no group yet: no children
                os.killpg(pid, number)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._running[pid], number)

    def _code(self, pid: int, wait_s: float) -> int | None:
        pidfd = self._running.get(pid)
        if pidfd is not None:
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            if not poll.poll(wait_s * 1000):
                return None
            self._codes[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            os.close(self._running.pop(pid))
            if self._codes[pid] == -signal.SIGKILL:
                with contextlib.suppress(ChildProcessError):
                    while True:  # its children, which are ours now and get the same
                        os.waitpid(-pid, 0)
        return self._codes.get(pid)

    def _stop_all(self) -> None:
        """The last ones first: readers before pool.writer, this before the manager that waits for
        none of them."""
        for pid in reversed(list(self._running)):
            self._signal(pid, signal.SIGCONT)
            self._signal(pid, signal.SIGTERM)
            if self._code(pid, _STOP_S) is None:
                self._signal(pid, signal.SIGKILL)
                self._code(pid, _STOP_S)


if __name__ == "__main__":
    sys.exit(main())
