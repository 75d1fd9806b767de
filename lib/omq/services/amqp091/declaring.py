"""What a client asks of queues: declare, delete, purge.

    durable, or shared                    a queue of omq, defined at run time (`admin` on it)
    exclusive, auto_delete, x-expires     a temporary queue: it goes with its connection, or before

A queue that is there is declared by saying nothing else of it than it is; what its definition or
queues.conf says beyond that is its operator's.

Errors: Refused, OmqError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pamqp import commands

from omq.base.errors import QueueExists, QueueNotEmpty, UnknownQueue
from omq.ipc.client.connection import Client
from omq.ipc.client.queues import QueueInfo
from omq.services.amqp.addresses import Address, resolved
from omq.services.amqp091 import queue_arguments
from omq.services.amqp091.refusals import (
    ACCESS_REFUSED,
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    Refused,
)

if TYPE_CHECKING:
    from omq.services.amqp091.channel import Channel
    from omq.services.amqp091.session import Session

_REASON: Final = "by a client of AMQP 0-9-1"
_RESERVED: Final = "amq."


async def declare(channel: Channel, what: Any) -> None:
    """queue.declare."""
    name, info = await _declared(channel, what)
    channel.queue = name
    if not what.nowait:
        facts = info.facts if info is not None else {}
        consumers = channel.session.directory.consumers(info.name) if info is not None else 0
        channel.send(commands.Queue.DeclareOk(name, int(facts.get("ready", 0)), consumers))


async def _declared(channel: Channel, what: Any) -> tuple[str, QueueInfo | None]:
    """Its name, and what it is; None: one that was made now."""
    session, directory = channel.session, channel.session.directory
    name = what.queue or (channel.queue if what.passive else "")
    if what.passive:
        return name, await shown(session, name)
    said = queue_arguments.read(what.arguments)
    if (found := directory.temporary(name)) is None and name:
        try:
            info = await _show(session, directory.name(name))
        except UnknownQueue:
            pass
        else:
            _same(info, said, what, directory.name(said.dead) if said.dead else "")
            return name, info
    if name.startswith(_RESERVED):
        raise Refused(ACCESS_REFUSED, f"names that begin with {_RESERVED} are the server's")
    if found is not None or what.exclusive or what.auto_delete or (said.expires
                                                                   and not what.durable):
        return await _temporary(channel, name, said, what)
    if said.expires:
        raise Refused(NOT_IMPLEMENTED, "x-expires of a durable queue is not there")
    if not name:
        raise Refused(NOT_IMPLEMENTED, "a queue without a name is exclusive, or auto_delete")
    await _define(session, name, said)
    return name, None


async def _temporary(channel: Channel, name: str, said: queue_arguments.Keys, what: Any
                     ) -> tuple[str, QueueInfo]:
    session = channel.session
    if more := set(said.keys) - {"expiry_max_s"} or ({"dead_letter"} if said.dead else set()):
        raise Refused(NOT_IMPLEMENTED, f"{', '.join(sorted(more))} of a queue that goes with its "
                      "connection is not there")
    made = await session.directory.made(session, name, exclusive=bool(what.exclusive),
                                        auto_delete=bool(what.auto_delete), ttl_s=said.ttl_s)
    return made.name, await _show(session, made.queue)


async def _define(session: Session, name: str, said: queue_arguments.Keys) -> None:
    queue = session.directory.name(name)
    may(session, "admin", queue)
    keys = dict(said.keys)
    if said.dead:
        keys["dead_letter"] = session.directory.name(said.dead)
        may(session, "put", keys["dead_letter"])
    note = name if name != queue and name.isascii() and name.isprintable() else ""

    def define(native: Client) -> None:
        try:
            native.queues.define(queue, reason=_REASON, **keys,
                                 **({"description": note} if note else {}))
        except QueueExists:
            native.queues.show(queue)  # another client was quicker

    await session.host.ask(session, define)


def _same(info: QueueInfo, said: queue_arguments.Keys, what: Any, dead: str) -> None:
    """Refused: it is there, and another than this."""
    if what.exclusive or what.auto_delete:
        raise Refused(PRECONDITION_FAILED, f"{info.name} is durable, not exclusive, not "
                      "auto_delete")
    wanted = said.keys | ({"dead_letter": dead} if dead else {})
    for key, value in wanted.items():
        if str(info.keys.get(key, "")) != value:
            raise Refused(PRECONDITION_FAILED, f"{info.name} has {key} "
                          f"{info.keys.get(key, 'of [*]')}, not {value}")


async def delete(channel: Channel, what: Any) -> None:
    """queue.delete: it and what is on it, and its bindings. One that is not there is deleted."""
    session = channel.session
    name = what.queue or channel.queue
    queue = await own(session, name, "admin")
    await channel.reading.carried_out()
    count = 0
    try:
        info = await _show(session, queue)
        count = info.messages
        if what.if_empty and count:
            raise Refused(PRECONDITION_FAILED, f"{name} is not empty")
        if what.if_unused and session.directory.consumers(queue):
            raise Refused(PRECONDITION_FAILED, f"{name} has consumers")
        found = session.directory.by_queue(queue)
        if found is not None:
            await session.directory.ended(found)
        else:
            await _delete(session, queue, force=not what.if_unused, clear=not what.if_empty)
            await session.directory.gone(queue)
    except UnknownQueue:
        count = 0
    if not what.nowait:
        channel.send(commands.Queue.DeleteOk(count))


async def _delete(session: Session, queue: str, *, force: bool, clear: bool) -> None:
    """Clients of this protocol lose what they hold of it, as at RabbitMQ, if nothing else is in
    the way; what others hold is. What is refused has changed nothing, if nobody else takes a
    message of it at the same time. OmqError."""

    def delete(native: Client) -> None:
        native.queues.delete(queue, force=force, reason=_REASON)

    def delete_all(native: Client) -> None:
        native.queues.clear(queue, reason=_REASON)
        delete(native)

    try:
        await session.host.ask(session, delete)
    except QueueNotEmpty:  # it is all that is in the way
        if not clear or await session.directory.others_hold(session, queue):
            raise
        await session.directory.let_go(queue)
        await session.host.ask(session, delete_all)


async def purge(channel: Channel, what: Any) -> None:
    """queue.purge: what nobody has."""
    session = channel.session
    queue = await own(session, what.queue or channel.queue, "admin")
    await channel.reading.carried_out()
    count = await session.host.ask(
        session, lambda native: native.queues.clear(queue, reason=_REASON))
    if not what.nowait:
        channel.send(commands.Queue.PurgeOk(count))


# what others need, too

def may(session: Session, action: str, queue: str) -> None:
    """Refused."""
    if session.directory.by_queue(queue) is not None and queue in session.temporary:
        return
    if session.user is None or not session.host.policy.allows(session.user, action, (queue,)):
        raise Refused(ACCESS_REFUSED, f"no right to {action} on {queue}")


async def own(session: Session, name: str, action: str) -> str:
    """The queue of omq that is meant, on which this may be done. Refused."""
    if not name:
        raise Refused(NOT_FOUND, "no queue was named")
    directory = session.directory
    if (found := directory.temporary(name)) is not None:
        directory.locked(session, found)
        if found.owner is not session:
            raise Refused(ACCESS_REFUSED, f"{name} is another connection's")
        return found.queue
    queue = directory.name(name)
    may(session, action, queue)
    return queue


async def shown(session: Session, name: str) -> QueueInfo:
    """What a queue is: for who may do something with it. Refused, OmqError."""
    if not name:
        raise Refused(NOT_FOUND, "no queue was named")
    if (found := session.directory.temporary(name)) is not None:
        session.directory.locked(session, found)
        return await _show(session, found.queue)
    queue = session.directory.name(name)
    user = session.user
    if user is None or not any(session.host.policy.allows(user, each, (queue,))
                               for each in ("put", "get", "browse", "admin")):
        raise Refused(ACCESS_REFUSED, f"no right on {name}")
    return await _show(session, queue)


async def _show(session: Session, queue: str) -> QueueInfo:
    found: QueueInfo = await session.host.ask(
        session, lambda native: native.queues.show(queue))
    return found


async def readable(session: Session, name: str) -> tuple[Address, str]:
    """A queue that is to be read, and its dead-letter queue. Refused, OmqError."""
    directory = session.directory
    if (found := directory.temporary(name)) is not None:
        directory.locked(session, found)
    queue = found.queue if found else directory.name(name)

    def look(native: Client) -> tuple[Address, str]:
        address = resolved(native, queue)
        keys = native.queues.show(address.queues[0]).keys if address.queues else {}
        return address, str(keys.get("dead_letter", ""))

    address, dead = await session.host.ask(session, look)
    if not session.host.allows(session, "get", address):
        raise Refused(ACCESS_REFUSED, f"no right to get on {name}")
    if len(address.queues) > 1 or address.remote:
        raise Refused(NOT_ALLOWED, f"{name} is not a queue that can be read")
    return address, dead
