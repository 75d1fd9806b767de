"""A connection of amqp.server whose header says AMQP 0-9-1 comes here: the same port and counts.

Errors: NotAmqp: the codec of that protocol is not installed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from omq.services.amqp.sasl_door import SASL_HEADER, NotAmqp

if TYPE_CHECKING:
    from omq.services.amqp.host import Guest, Host


def take_over(host: Host, guest: Guest, line: asyncio.Transport, rest: bytes) -> None:
    """`guest`: who looked after it so far; `rest`: what came after the header. NotAmqp."""
    try:
        from omq.services.amqp091.session import Session  # its codec is an extra
    except ImportError as error:
        raise NotAmqp(f"AMQP 0-9-1 needs the package {error.name} (omq-suite[amqp])", SASL_HEADER
                      ) from error
    session = Session(host, guest.peer, line)
    host.replaced(guest, session)
    line.set_protocol(session)
    session.begin(rest)
