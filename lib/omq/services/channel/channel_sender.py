"""channel.sender: what transmission queues hold goes to other instances; a daemon of its own.

The protocol's engine is Qpid Proton (the extra omq[amqp], ADR 0074); it is imported when the daemon
runs, so that neither a parser made for a page nor the fork server needs it. `service` has the rest.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from omq.services.daemon.daemon import run_daemon

if TYPE_CHECKING:
    from omq.services.daemon.daemon import DaemonContext


def _serve(context: DaemonContext) -> int:
    from omq.services.channel.service import serve  # what it needs is an extra

    return serve(context)


def main(argv: list[str] | None = None) -> int:
    """The program channel.sender; returns its exit code."""
    return run_daemon("channel.sender", sys.argv[1:] if argv is None else argv, _serve,
                      service="channels")
