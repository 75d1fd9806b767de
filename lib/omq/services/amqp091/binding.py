"""What a client asks of exchanges: declare, delete, bind, unbind. The right is `admin` on
SYSTEM.EXCHANGES, for who binds a queue reads what others publish; and `put` on a queue. From
exchange to exchange no other right is asked for: who publishes needs `put` on each queue, however
a message gets there.

Errors: Refused, OmqError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pamqp import commands

from omq.services.amqp091 import declaring
from omq.services.amqp091.binding_index import Binding
from omq.services.amqp091.exchange_changes import Change, bound, declared, removed
from omq.services.amqp091.exchanges import (
    BINDINGS_MAX,
    EXCHANGES_MAX,
    KINDS,
    QUEUE,
    Exchange,
    Exchanges,
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
    from omq.services.amqp091.session import Session

_GIVEN, _HEADERS = "amq.", "headers"


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
            # One that the standard has, and one that nobody has: RabbitMQ's code for that.
            raise Refused(NOT_IMPLEMENTED if what.exchange_type == _HEADERS else
                          PRECONDITION_FAILED, f"exchanges of the type "
                          f"{what.exchange_type[:64]!r} are not there: {', '.join(KINDS)} are")
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
    return [declared(table, name, wanted)]


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
    return removed(table, names=[name])


async def bind(channel: Channel, what: Any) -> None:
    """queue.bind."""
    session = channel.session
    _plain(what, what.exchange)
    declaring.may(session, "admin", QUEUE)
    queue = await declaring.own(session, what.queue or channel.queue, "put")
    await session.host.ask(
        session, lambda native: native.queue_number(queue))  # UnknownQueue
    await _bound(session, what.exchange, Binding(what.routing_key, queue=queue))
    if not what.nowait:
        channel.send(commands.Queue.BindOk())


async def unbind(channel: Channel, what: Any) -> None:
    """queue.unbind. A binding that is not there is none."""
    session = channel.session
    _plain(what, what.exchange)
    declaring.may(session, "admin", QUEUE)
    queue = await declaring.own(session, what.queue or channel.queue, "put")
    await _unbound(session, what.exchange, Binding(what.routing_key, queue=queue))
    channel.send(commands.Queue.UnbindOk())


async def bind_exchange(channel: Channel, what: Any) -> None:
    """exchange.bind, RabbitMQ's: what comes to `source` goes on to `destination`."""
    await _bound(channel.session, what.source, _between(channel.session, what))
    if not what.nowait:
        channel.send(commands.Exchange.BindOk())


async def unbind_exchange(channel: Channel, what: Any) -> None:
    """exchange.unbind. A binding that is not there is none."""
    await _unbound(channel.session, what.source, _between(channel.session, what))
    if not what.nowait:
        channel.send(commands.Exchange.UnbindOk())


def _between(session: Session, what: Any) -> Binding:
    """The binding of two exchanges that it names. Refused, OmqError."""
    _plain(what, what.source, what.destination)
    declaring.may(session, "admin", QUEUE)
    return Binding(what.routing_key, to=what.destination)


async def _bound(session: Session, exchange: str, binding: Binding) -> None:
    """Refused, OmqError."""
    directory = session.directory

    def change(table: Exchanges) -> list[Change]:
        for name in (exchange, binding.to):
            if name and name not in table.known:
                raise Refused(NOT_FOUND, f"the exchange {name[:64]} is not there")
        found = table.known[exchange]
        if binding in found.bound:
            return []
        if table.bindings >= BINDINGS_MAX:
            raise Refused(PRECONDITION_FAILED, f"there are {BINDINGS_MAX} bindings")
        durable = found.durable and (
            table.known[binding.to].durable if binding.to
            else directory.by_queue(binding.queue) is None)
        return [bound(table, exchange, binding, durable=durable)]

    await directory.change(change)


async def _unbound(session: Session, exchange: str, binding: Binding) -> None:

    def change(table: Exchanges) -> list[Change]:
        found = table.known.get(exchange)
        return [] if found is None or binding not in found.bound else removed(
            table, [(exchange, binding)])

    await session.directory.change(change)


def _plain(what: Any, *names: str) -> None:
    if not all(names):
        raise Refused(ACCESS_REFUSED, "every queue is bound to the default exchange by its name, "
                      "and nothing else is bound to it")
    for each in what.arguments or {}:
        raise Refused(NOT_IMPLEMENTED, f"the argument {each[:64]} is not there")
