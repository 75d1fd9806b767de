"""The fork server: a process that has imported the daemons and forks them for the embedded
supervisor.

    python -P -m omq.cli.fork_server DESCRIPTOR SUPERVISOR_PID ROOM

omq.services.supervise.fork_client starts it and has the protocol. It has one thread, two
descriptors besides the first three while it serves, no handler of a signal, and holds no message,
lock or file.

Invariants: 1. a daemon has of it what it imported, and nothing else: descriptors are closed, the
environment and the command line are its own, `random` and `uuid` are seeded anew by Python's fork;
2. what was imported is frozen (gc.freeze): a collection in a daemon does not write to shared pages;
3. it ends when the supervisor closes its end or dies.

A daemon is forked as soon as its own module is there, in the order of a start; the rest is imported
while nobody asks. So the queue manager recovers while those that wait for it are imported.

A module that cannot be imported is left out: its daemon then says itself what is wrong.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import json
import os
import select
import socket
import sys
from collections import deque
from typing import Any, Final

from omq.base import form
from omq.cli import launch
from omq.services.daemon.process import die_with_parent, set_command_line, set_name
from omq.services.supervise.daemon_plan import LAUNCH
from omq.services.supervise.fork_client import MESSAGE_BYTES_MAX

_DAEMONS: Final = "omq.services."  # where the modules of daemons are, among launch.COMMANDS
_LATE: Final = ("omq.ipc.client.connection", "email.policy", "http.client")
"""What they import only when they work."""
_NAME: Final = "omrc.fork"
_DESCRIPTORS_MAX: Final = 1 << 20
_NUMBER_BYTES_MAX: Final = 32

Stamp = tuple[int, int, int]


def main() -> int:
    """Serve until the supervisor is gone; in a forked daemon: its exit code."""
    channel, supervisor = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    channel.set_inheritable(False)
    set_name(_NAME)
    set_command_line([*LAUNCH[:3], __spec__.name])
    # A pool of threads of the linear algebra, which nothing here uses, must not be forked.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    argv = _serve(channel, supervisor, Imports())
    return 0 if argv is None else launch.main(argv[len(LAUNCH):])


class Imports:
    """What is imported so far, in the order in which daemons start. `stamps`: of its files."""

    def __init__(self) -> None:
        modules = [target.partition(":")[0] for target in launch.COMMANDS.values()]
        daemons = [name for name in modules if name.startswith(_DAEMONS)]
        self._pending = deque([*daemons[:1], *_LATE, *daemons[1:], *form.before_forks()])
        self.stamps: dict[str, Stamp | None] = {}

    @property
    def complete(self) -> bool:
        return not self._pending

    def one(self) -> None:
        """The next module."""
        with contextlib.suppress(Exception):
            importlib.import_module(self._pending.popleft())
        if self.complete:
            gc.collect()
        self.stamps |= {path: _stamp(path) for path in _loaded() - self.stamps.keys()}

    def reach(self, module: str) -> None:
        """Until this one is there; all, if it cannot be, or is none of a daemon."""
        while self._pending and module not in sys.modules:
            self.one()


def import_daemons() -> None:
    """What all daemons are made of, for those that are forked from here."""
    Imports().reach("")


def _loaded() -> set[str]:
    """The files of all that is imported."""
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return {path for path in files if path}


def _stamp(path: str) -> Stamp | None:
    """What tells a file from its successor; None when there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _serve(channel: socket.socket, supervisor: int, imports: Imports) -> list[str] | None:
    """Answer requests; None at their end, and in a forked daemon its argv."""
    while True:
        while not imports.complete and not select.select([channel], [], [], 0)[0]:
            imports.one()
        try:
            data, gates, _flags, _address = socket.recv_fds(channel, MESSAGE_BYTES_MAX, 1)
        except ConnectionError:
            return None
        if not data:
            return None
        request: dict[str, Any] = json.loads(data)
        imports.reach(_module(request["argv"]))
        if any(_stamp(path) != stamp for path, stamp in imports.stamps.items()):
            reply: dict[str, object] = {"stale": True}
        elif _threads() != 1:
            return None  # never fork while a thread runs: the supervisor executes daemons then
        else:
            gc.freeze()
            try:
                pid = _fork()
            except OSError as error:
                reply = {"errno": error.errno}
            else:
                if pid == 0:
                    channel.detach()
                    _become(request, gates[0], supervisor)
                    return list(request["argv"])
                reply = {"pid": pid}
        for gate in gates:
            os.close(gate)
        channel.send(json.dumps(reply).encode())


def _module(argv: list[str]) -> str:
    """Where the daemon is that this command line starts; "": nowhere."""
    name = argv[len(LAUNCH)] if len(argv) > len(LAUNCH) else ""
    return launch.COMMANDS.get(name, "").partition(":")[0]


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _fork() -> int:
    """Fork a process whose parent is the supervisor; its pid, 0 in it. OSError."""
    reading, writing = os.pipe()
    middle = os.fork()
    if middle == 0 and _between(writing):
        return 0
    os.close(writing)
    os.waitpid(middle, 0)  # from now on the supervisor is the parent
    text = os.read(reading, _NUMBER_BYTES_MAX)
    os.close(reading)
    number = int(text or -1)  # the middle process was killed: the gate will not open
    if number < 0:
        raise OSError(-number, os.strerror(-number))
    return number


def _between(writing: int) -> bool:
    """In the middle process, which does not return; True in the daemon."""
    pid = -1
    try:
        there, leads = os.pipe()
        pid = os.fork()
        if pid:
            os.close(leads)
            os.read(there, 1)  # its end: it leads a session, and so a group, of its own
            os.write(writing, b"%d" % pid)
        else:
            os.setsid()
            os.close(there)
            os.close(leads)
    except OSError as error:
        os.write(writing, b"%d" % -(error.errno or errno.EAGAIN))
    finally:
        if pid:
            os._exit(0)
    return True


def _become(request: dict[str, Any], gate: int, supervisor: int) -> None:
    """In the daemon: wait for the gate, and be as if it had been executed."""
    if not os.read(gate, 1):
        os._exit(0)  # nobody wants it any more
    die_with_parent(supervisor)
    os.closerange(3, _DESCRIPTORS_MAX)
    os.environ.clear()
    os.environ.update(request["environ"])
    set_command_line(request["argv"])
    set_name(request["argv"][len(LAUNCH)])


if __name__ == "__main__":
    sys.exit(main())
