"""Sockets that systemd listens on for a service, and gives it when it starts (sd_listen_fds(3)).

Invariants: 1. what was given to another process (LISTEN_PID) is not taken; 2. no child of this
process inherits them, and none reads the variables again.
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping
from typing import Final

FIRST: Final = 3
_VARIABLES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


def inherited_sockets(environ: MutableMapping[str, str] | None = None) -> list[socket.socket]:
    """Those of this process, in the order of its socket units; none without systemd."""
    environ = os.environ if environ is None else environ
    pid, count, _ = (environ.pop(name, "") for name in _VARIABLES)
    if pid != str(os.getpid()) or not count.isdigit():
        return []
    found = []
    for number in range(FIRST, FIRST + int(count)):
        os.set_inheritable(number, False)  # noqa: FBT003  (by position alone)
        found.append(socket.socket(fileno=number))
    return found
