"""What a client asks of exchanges: declare, delete, bind, unbind. The right is `admin` on
SYSTEM.EXCHANGES, for who binds a queue reads what others publish; and `put` on the queue.

Errors: Refused, OmqError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pamqp import commands

from omq.services.amqp091 import declaring
from omq.services.amqp091.directory import Change, bound, unbound
from omq.services.amqp091.exchanges import (
    BINDINGS_MAX,
    EXCHANGES_MAX,
    KINDS,
    QUEUE,
    Exchange,
    Exchanges,
    binding_record,
)
from omq.services.amqp091.refusals import (
    ACCESS_REFUSED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    Refused,
)

if TYPE_CHECKING:
    from omq.services.amqp091.channel import Channel

_GIVEN = "amq."


async def declare(channel: Channel, what: Any) -> None:
    """exchange.declare."""
    session, name = channel.session, what.exchange
    if what.passive:
        await session.directory.read()
        if name and name not in session.directory.exchanges.known:
            raise Refused(NOT_FOUND, f"the exchange {name[:64]} is not there")
    else:
        for each in what.arguments or {}:
            raise Refused(NOT_IMPLEMENTED, f"the argument {each[:64]} is not there")
        if what.exchange_type not in KINDS:
            raise Refused(NOT_IMPLEMENTED, f"exchanges of the type {what.exchange_type[:64]} are "
                          f"not there: {', '.join(KINDS)} are")
        if not name:
            raise Refused(ACCESS_REFUSED, "the default exchange is there always")
        wanted = Exchange(what.exchange_type, bool(what.durable), bool(what.auto_delete),
                          bool(what.internal))
        await session.directory.read()
        if name not in session.directory.exchanges.known:
            declaring.may(session, "admin", QUEUE)
        await session.directory.change(lambda table: _declared(table, name, wanted))
    if not what.nowait:
        channel.send(commands.Exchange.DeclareOk())


def _declared(table: Exchanges, name: str, wanted: Exchange) -> list[Change]:
    if (found := table.known.get(name)) is not None:
        if (found.kind, found.durable, found.auto_delete, found.internal) != (
                wanted.kind, wanted.durable, wanted.auto_delete, wanted.internal):
            raise Refused(PRECONDITION_FAILED, f"the exchange {name[:64]} is there, and another "
                          "than this")
        return []
    if name.startswith(_GIVEN):
        raise Refused(ACCESS_REFUSED, f"names that begin with {_GIVEN} are the server's")
    if len(table.known) >= EXCHANGES_MAX:
        raise Refused(PRECONDITION_FAILED, f"there are {EXCHANGES_MAX} exchanges")

    def apply() -> None:
        table.known[name] = wanted

    return [Change(apply, wanted.record(name) if wanted.durable else None, keeps=True)]


async def delete(channel: Channel, what: Any) -> None:
    """exchange.delete. One that is not there is deleted."""
    session, name = channel.session, what.exchange
    declaring.may(session, "admin", QUEUE)
    if not name or name.startswith(_GIVEN):
        raise Refused(ACCESS_REFUSED, f"the exchange {name!r} is there always")
    await session.directory.change(
        lambda table: _deleted(table, name, if_unused=bool(what.if_unused)))
    if not what.nowait:
        channel.send(commands.Exchange.DeleteOk())


def _deleted(table: Exchanges, name: str, *, if_unused: bool) -> list[Change]:
    if (found := table.known.get(name)) is None:
        return []
    if if_unused and found.bound:
        raise Refused(PRECONDITION_FAILED, f"the exchange {name[:64]} has bindings")
    first = Change(lambda: table.known.pop(name, None),
                   found.record(name) if found.durable else None)
    return [first, *(Change(_nothing, binding_record(name, each))
                     for each, durable in found.bound.items() if durable)]


def _nothing() -> None:
    """It went with its exchange."""


async def bind(channel: Channel, what: Any) -> None:
    """queue.bind."""
    session, directory = channel.session, channel.session.directory
    _plain(what)
    declaring.may(session, "admin", QUEUE)
    queue = await declaring.own(session, what.queue or channel.queue, "put")
    await session.host.ask(
        session, lambda native: native.queue_number(queue))  # UnknownQueue
    binding = what.routing_key, queue

    def change(table: Exchanges) -> list[Change]:
        if (found := table.known.get(what.exchange)) is None:
            raise Refused(NOT_FOUND, f"the exchange {what.exchange[:64]} is not there")
        if binding in found.bound:
            return []
        if table.bindings >= BINDINGS_MAX:
            raise Refused(PRECONDITION_FAILED, f"there are {BINDINGS_MAX} bindings")
        durable = found.durable and directory.by_queue(queue) is None
        return [bound(table, what.exchange, binding, durable=durable)]

    await directory.change(change)
    if not what.nowait:
        channel.send(commands.Queue.BindOk())


async def unbind(channel: Channel, what: Any) -> None:
    """queue.unbind. A binding that is not there is none."""
    session, directory = channel.session, channel.session.directory
    _plain(what)
    declaring.may(session, "admin", QUEUE)
    queue = await declaring.own(session, what.queue or channel.queue, "put")
    binding = what.routing_key, queue

    def change(table: Exchanges) -> list[Change]:
        found = table.known.get(what.exchange)
        if found is None or binding not in found.bound:
            return []
        if found.auto_delete and len(found.bound) == 1:
            return _deleted(table, what.exchange, if_unused=False)
        return [unbound(table, what.exchange, binding)]

    await directory.change(change)
    channel.send(commands.Queue.UnbindOk())


def _plain(what: Any) -> None:
    if not what.exchange:
        raise Refused(ACCESS_REFUSED, "every queue is bound to the default exchange by its name")
    for each in what.arguments or {}:
        raise Refused(NOT_IMPLEMENTED, f"the argument {each[:64]} is not there")
