"""The supervisor's side of the fork server: daemons forked from one process that has imported them.

An interpreter with a daemon's imports takes 0.2 to 0.4 s of processor time; a fork takes
milliseconds, and what is only read stays shared. The fork server (omq.cli.fork_server) is a child
of the supervisor with one thread. It forks twice and the middle process ends, so that the kernel
gives the daemon to the supervisor: exit codes, signals, process groups and the death signal are
those of a daemon that was executed (omq.services.supervise.process_group).

Request: `{"argv": [...], "environ": {...}}` with the reading end of a pipe, the gate. Replies:
`{"pid": n}`, `{"errno": n}`, or `{"stale": true}` when a file that it has loaded has changed since.

Invariants: 1. a daemon does nothing before the supervisor, who has its pid and is its parent,
writes into its gate; a supervisor or fork server that goes away before that ends it; 2. whatever
happens to the fork server, the daemon is started: from a new one after an upgrade, else by exec,
and the first time this is an event; 3. every wait has an end.

Errors: OSError as fork or exec gives it, to the caller of `launch` only.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any, Final

from omq.base import events
from omq.base.event_log import WARNING, EventLog
from omq.services.daemon.process import adopt_orphans
from omq.services.supervise import process_group
from omq.services.supervise.daemon_plan import LAUNCH

MODULE: Final = "omq.cli.fork_server"  # a name, not an import: it is above us
MESSAGE_BYTES_MAX: Final = 1 << 18
ROOM: Final = "-" * 1000
"""An argument that is only room: a daemon writes its own command line over the fork server's. A
longer one is cut, as ps does at the width of the screen."""
_IMPORTS_S: Final = 60.0
"""For its first answer, behind its imports: without it the daemons import themselves, each of them,
which makes a loaded machine no faster. One that ends is given up at once."""
_WAIT_S: Final = 10.0
"""For an answer. Later than this it is given up."""


class ForkServer:
    """Construct, `begin`, then `launch` in place of process_group.launch."""

    def __init__(self, environ: Mapping[str, str], log: EventLog) -> None:
        self._environ = dict(environ)
        self._log = log
        self._given_up = False
        self._pidfd = -1
        self._channel: socket.socket | None = None

    def begin(self) -> None:
        """Start it; it imports while the supervisor goes on."""
        adopt_orphans()  # the daemons become ours when the middle process ends
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        argv = [sys.executable, "-P", "-m", MODULE, str(its.fileno()), str(os.getpid()), ROOM]
        try:
            pid = process_group.launch(argv, self._environ, descriptors=(its.fileno(),))
            self._pidfd = os.pidfd_open(pid)
        except OSError as error:
            ours.close()
            self._give_up(str(error))
            return
        finally:
            its.close()
        ours.settimeout(_IMPORTS_S)
        self._channel = ours

    def launch(self, argv: list[str], environ: dict[str, str]) -> int:
        """Start a program as leader of a new process group; its pid. OSError."""
        if argv[: len(LAUNCH)] == LAUNCH and not self._given_up:
            reply = self._ask(argv, environ)
            if "stale" in reply:  # an upgrade: what it has imported is of yesterday
                self.close()
                reply = self._ask(argv, environ)
            if "pid" in reply:
                return int(reply["pid"])
            if "errno" in reply:
                raise OSError(reply["errno"], os.strerror(reply["errno"]))
        return process_group.launch(argv, environ)

    def forgive(self) -> None:
        """A reload: a fork server that was given up may be tried again."""
        self._given_up = False

    def close(self) -> None:
        """End it; the daemons are not touched. It has nothing to finish."""
        if self._channel is None:
            return
        self._channel.close()
        self._channel = None
        # By its pidfd: the supervisor may have reaped it long ago.
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        ended = select.poll()
        ended.register(self._pidfd, select.POLLIN)
        ended.poll(_WAIT_S * 1000)
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG)
        os.close(self._pidfd)

    def _ask(self, argv: list[str], environ: dict[str, str]) -> dict[str, Any]:
        """Its reply; {} when there is none, and then it is given up."""
        if self._channel is None:
            self.begin()
        if self._channel is None:
            return {}
        gate, opener = os.pipe2(os.O_CLOEXEC)
        try:  # it may still import: the request waits in the socket
            request = json.dumps({"argv": argv, "environ": environ}).encode()
            socket.send_fds(self._channel, [request], [gate])
            data = self._channel.recv(MESSAGE_BYTES_MAX)
            self._channel.settimeout(_WAIT_S)
            reply: dict[str, Any] = json.loads(data) if data else {}
            if "pid" in reply:
                os.write(opener, b"1")
            elif not reply:
                self._give_up("it ended")
        except OSError as error:
            self._give_up(str(error))
            return {}
        finally:
            os.close(gate)
            os.close(opener)
        return reply

    def _give_up(self, reason: str) -> None:
        self.close()
        self._given_up = True
        self._log.event(events.FORK_SERVER_GONE, WARNING, reason=reason)
