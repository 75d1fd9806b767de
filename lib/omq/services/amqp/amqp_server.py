"""amqp.server: clients of AMQP 1.0 and 0-9-1; a daemon of its own, not a reader.

The protocol is omq.amqp (ADR 0132), that of 0-9-1 services.amqp091 (ADR 0134), passwords are
argon2-cffi's (the extra omq[amqp]); all are imported when the daemon runs, so that neither a parser
made for a page nor the fork server needs them. `server` has the rest.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from omq.services.daemon.daemon import run_daemon

if TYPE_CHECKING:
    from omq.services.daemon.daemon import DaemonContext


def _serve(context: DaemonContext) -> int:
    from omq.services.amqp.server import serve  # what it needs is an extra

    return serve(context)


def main(argv: list[str] | None = None) -> int:
    """The program amqp.server; returns its exit code."""
    return run_daemon("amqp.server", sys.argv[1:] if argv is None else argv, _serve, service="amqp")
