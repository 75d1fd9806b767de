"""A connection whose header says AMQP 0-9-1 goes to services.amqp091: the same port and counts.

Errors: NotAmqp: the codec of that protocol is not installed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from omq.services.amqp.sasl_door import SASL_HEADER, NotAmqp

if TYPE_CHECKING:
    from omq.services.amqp.session import Session


def take_over(session: Session, line: asyncio.Transport, rest: bytes) -> None:
    """`rest`: what came behind the header. NotAmqp."""
    try:
        from omq.services.amqp091.session import Session as Older  # its codec is an extra
    except ImportError as error:
        raise NotAmqp(f"AMQP 0-9-1 needs the package {error.name} (omq-suite[amqp])", SASL_HEADER
                      ) from error
    older = Older(session.host, session.peer, line)
    session.host.replaced(session, older)
    line.set_protocol(older)
    older.begin(rest)
