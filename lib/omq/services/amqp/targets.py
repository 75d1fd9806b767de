"""Where a client puts: the queues that a name stands for, if its user may put there.

A link names its target when it is attached, and keeps what the name stood for then (addresses). One
that names none (Anonymous Terminus for Message Routing 1.0) has it in the `to` of each message: the
name is resolved, and the right asked for, whenever something is put.

Errors: Untranslatable, with the condition of AMQP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from omq.base.errors import OmqError
from omq.ipc.wire.outgoing import Outgoing
from omq.services.amqp.addresses import Address, condition, resolved
from omq.services.amqp.untranslatable import Untranslatable
from omq.services.channel.names import RECORDS

if TYPE_CHECKING:
    from omq.services.amqp.host import Guest

UNAUTHORIZED: Final = "amqp:unauthorized-access"
_TO: Final = "amqp.to"


async def target(session: Guest, name: str) -> Address:
    """For one that puts."""
    host = session.host
    try:
        address = await host.ask(session, lambda native: resolved(native, name))
    except (OmqError, ValueError) as error:  # an address that is not UTF-8 is among these
        raise Untranslatable(condition(error), str(error)) from error
    if not host.allows(session, "put", address):
        raise Untranslatable(UNAUTHORIZED, f"no right to put on {name}")
    if RECORDS in (*address.queues, *address.rights):  # the right to be a channel, no more
        raise Untranslatable(UNAUTHORIZED, f"{name} takes channels alone")
    return address


def destination(message: Outgoing) -> str:
    """What a message says itself; "": nothing."""
    return str(message.properties.get(_TO, ""))


async def own_target(session: Guest, name: str) -> Address:
    """Of messages that say themselves where they go."""
    if not name:
        raise Untranslatable("amqp:precondition-failed",
                             "neither its link nor the message (to) says where it goes")
    try:
        return await target(session, name)
    except Untranslatable as error:
        if error.condition == UNAUTHORIZED:
            session.unauthorized(error.reason)
        raise
