"""The REST interface of the console: what programs do with queues: put, get, settle, request.

These are not logged one by one. A request is JSON, but the body of one message may be sent as it
is. Errors: RFC 9457 (gate.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, cast

from aiohttp import web

from omq.base.errors import BadRequest, NoAuthority, OmqError, RoleMissing
from omq.cli.web import reading
from omq.cli.web.api_messages import listed, message_of, messages_of, order_of
from omq.cli.web.console import caller_of, console_of, peer_of
from omq.cli.web.delivered_message import Taken
from omq.cli.web.deliveries import COUNT_MAX, WAIT_MAX_S
from omq.cli.web.exchange import EXCHANGE, Exchange
from omq.cli.web.gate import problem, status_of
from omq.cli.web.message_pages import visible
from omq.cli.web.request_body import asked, figure, object_of, read_json, sent
from omq.cli.web.settlements import Held, Order
from omq.ipc.client.bodies import PIECE_BYTES
from omq.ipc.client.message import Message

WAIT_SHARE: Final = 0.75
"""Of web_request_timeout_s a get or request waits so much at most: the rest is for its answer."""


async def put(request: web.Request) -> web.Response:
    """POST /api/v1/queues/NAME/messages."""
    exchange, caller = request.app[EXCHANGE], caller_of(request)
    goal = await exchange.allowed(caller, "put", request.match_info["queue"])
    async with sent(request) as data:
        messages, several = messages_of(request, data)
        ids = await exchange.put(goal, messages)
    return web.json_response({"message_ids": ids} if several else {"message_id": ids[0]},
                             status=201)


async def request_reply(request: web.Request) -> web.StreamResponse:
    """POST /api/v1/queues/NAME/request: a message that wants an answer, and the answer."""
    exchange, caller = request.app[EXCHANGE], caller_of(request)
    name = request.match_info["queue"]
    goal = await exchange.allowed(caller, "put", name)
    async with sent(request) as data:
        found = read_json(data)
        if not isinstance(found, dict) or found.keys() & {"reply_to", "expiry_s", "delay_s"}:
            raise BadRequest(reason="a request is a message without reply_to, expiry_s and "
                             "delay_s, and with timeout_s")
        timeout_s = min(figure(found, "timeout_s", WAIT_MAX_S, WAIT_MAX_S), _longest(request))
        if not timeout_s:
            raise BadRequest(reason="timeout_s is more than 0: it is how long the question lives")
        said = {key: value for key, value in found.items() if key != "timeout_s"}
        message_of(said)  # before anything is done for it

        async def question(reply_to: str) -> str:
            made = message_of({**said, "reply_to": reply_to, "expiry_s": timeout_s})
            return (await exchange.put(goal, [made]))[0]

        async with while_there(request):
            taken = await exchange.replies.ask(caller.name, caller.who, name, timeout_s, question)
    told: dict[str, Any] = {key: taken.record[key] for key in (
        "message_id", "correlation", "priority", "properties", "body", "body_base64")
        if key in taken.record}
    if not taken.whole:
        told |= {"body": None, "delivery": taken.name,
                 "body_url": console_of(request).pages.root + taken.url,
                 "size": taken.record["size"]}
    return await _leaving(request, [taken], told)


async def _leaving(request: web.Request, taken: Sequence[Taken], told: dict[str, Any]
                   ) -> web.StreamResponse:
    """An answer with messages that were taken for it: one that does not leave whole gives them
    back."""
    deliveries = request.app[EXCHANGE].deliveries
    try:
        if request.transport is None or request.transport.is_closing():
            deliveries.give_back(taken)
            raise web.HTTPRequestTimeout(reason="the client is gone")
        response = web.json_response(told)
        await response.prepare(request)
        await response.write_eof()  # its bytes are memory until they have left
        return response
    except (ConnectionError, asyncio.CancelledError):
        deliveries.give_back(taken)
        raise
    finally:
        for each in taken:
            deliveries.forget(each)


def _longest(request: web.Request) -> float:
    return WAIT_SHARE * console_of(request).settings.web_request_timeout_s


@asynccontextmanager
async def while_there(request: web.Request) -> AsyncIterator[None]:
    """What waits in there ends when the client goes: HTTPRequestTimeout, which nobody reads."""
    task = asyncio.current_task()
    assert task is not None
    gone = False

    def left() -> None:
        nonlocal gone
        gone = True
        task.cancel()

    connection: Any = request.protocol
    listens = hasattr(connection, "left")  # a test client of aiohttp has its own
    if listens:
        connection.left = left
    try:
        yield
    except asyncio.CancelledError:
        if not gone:
            raise
        task.uncancel()
        raise web.HTTPRequestTimeout(reason="the client is gone") from None
    finally:
        if listens:
            connection.left = None


async def get(request: web.Request) -> web.StreamResponse:
    """POST /api/v1/queues/NAME/get: take messages, and settle others before that (`done`)."""
    exchange, caller = request.app[EXCHANGE], caller_of(request)
    goal = await exchange.allowed(caller, "get", request.match_info["queue"])
    if isinstance(goal, tuple) and len(goal) != 1:
        raise BadRequest(reason="a name of several queues cannot be read")
    found = await asked(request, "count", "wait_s", "done")
    count = int(figure(found, "count", 1, COUNT_MAX))
    if not count:
        raise BadRequest(reason=f"count is 1 to {COUNT_MAX}; POST deliveries settles alone")
    wait_s = min(figure(found, "wait_s", 0.0, WAIT_MAX_S), _longest(request))
    orders = [order_of({"delivery": each, "end": "done"}) for each in listed(found, "done")]
    del found  # it waits for long
    failed = await _settled(exchange, caller.who, orders) if orders else []
    settled = {"failed": failed} if orders else {}
    try:
        async with while_there(request):
            taken = await exchange.deliveries.get(
                caller.name, caller.who, goal if isinstance(goal, str) else goal[0], count, wait_s)
    except OmqError as error:
        if not orders:
            raise
        return problem(request, status_of(error), str(error), code=error, more={
            "settled": len(orders) - len(failed), **settled})  # they will not be said once more
    return await _leaving(request, taken, {**settled, "deliveries": [
        each.record if each.whole else
        {**each.record, "body": None, "body_url": console_of(request).pages.root + each.url}
        for each in taken]})


async def delivery_body(request: web.Request) -> web.StreamResponse:
    """GET /api/v1/deliveries/NAME/body: its bytes, in pieces."""
    exchange, caller = request.app[EXCHANGE], caller_of(request)
    held = exchange.deliveries.find(caller.who, request.match_info["delivery"])
    message = held.taken.message
    # Each piece is in memory here until it has left, and once more on its way.
    with console_of(request).budget.room(caller.name, 2 * min(message.size, PIECE_BYTES)):
        return await _pieces(request, held, message)


async def _pieces(request: web.Request, held: Held, message: Message) -> web.StreamResponse:
    deliveries, desk = request.app[EXCHANGE].deliveries, held.desk
    # Begun, gone on with and ended by the desk's thread.
    pieces = cast(Generator[bytes, None, None], message.pieces())
    response = web.StreamResponse(headers={"Content-Disposition": "attachment",
                                           "Content-Length": str(message.size)})
    response.content_type = "application/octet-stream"
    work = getattr(request.protocol, "work", None)
    try:
        piece = await desk.say(lambda _: next(pieces, b""))
        await response.prepare(request)
        while piece:
            await response.write(piece)
            if work is not None:
                work()  # each piece has its time
            deliveries.read_on(held)
            piece = await desk.say(lambda _: next(pieces, b""))
        await response.write_eof()
    except OmqError as error:
        if not response.prepared:
            raise
        if request.transport is not None:  # too late for an answer that says so
            request.transport.abort()
        raise ConnectionResetError(str(error)) from error
    finally:
        desk.let_go(pieces.close, message)
    return response


async def _settled(exchange: Exchange, owner: str, orders: list[Order],
                   allowed: Sequence[Order | OmqError] = ()) -> list[dict[str, Any]]:
    """Those that failed."""
    told = await exchange.deliveries.settle(owner, allowed or orders)
    return [{"delivery": order.delivery, "status": status_of(error), "detail": str(error),
             "omq_error": type(error).__name__, "omq_status": error.status}
            for order, error in zip(orders, told, strict=True) if error is not None]


async def _allowed(request: web.Request, order: Order) -> Order | OmqError:
    """Moved to what the name stands for, by one who may put there; replied to by one who may put
    where the reply goes, as if he put it himself."""
    exchange, caller = request.app[EXCHANGE], caller_of(request)
    goal = order.to
    if order.replies:
        try:
            goal = exchange.deliveries.find(caller.who, order.delivery).taken.reply_to
        except OmqError:
            return order  # perhaps it was said before
    if not goal:
        return order
    try:
        found = await exchange.allowed(caller, "put", goal)
    except OmqError as error:
        return error
    return order.moved(found) if order.to else order


async def settle(request: web.Request) -> web.Response:
    """POST /api/v1/deliveries/NAME."""
    exchange, caller = request.app[EXCHANGE], caller_of(request)
    async with sent(request) as data:
        found = object_of(data, "end", "seconds", "reason", "to", "body", "body_base64",
                          "properties", "progress")
        order = order_of({**found, "delivery": request.match_info["delivery"]})
        (error,) = await exchange.deliveries.settle(caller.who, [await _allowed(request, order)])
    if error is not None:
        raise error
    return web.Response(status=204)


async def settle_many(request: web.Request) -> web.Response:
    """POST /api/v1/deliveries: many, each by itself."""
    exchange, caller = request.app[EXCHANGE], caller_of(request)
    async with sent(request) as data:
        found = object_of(data, "settle")
        orders = [order_of(each) for each in listed(found, "settle")]
        allowed = [await _allowed(request, each) for each in orders]
        for each in allowed:
            if isinstance(each, NoAuthority | RoleMissing):
                console_of(request).refused(peer_of(request), str(each))
        failed = await _settled(exchange, caller.who, orders, allowed)
    return web.json_response({"settled": len(orders) - len(failed), "failed": failed})


async def progress(request: web.Request) -> web.Response:
    """GET /api/v1/messages/ID/progress: of an active message, on the queues that he may browse."""
    exchange, caller, console = request.app[EXCHANGE], caller_of(request), console_of(request)
    seen = await console.run(reading.message, console.location, request.match_info["id"], "", 0)
    mine = visible(caller, seen)
    return web.json_response({"qpool_id": seen.qpool, "queues": [
        {"queue": name, "progress": words, "time": moment and moment.isoformat()}
        for name, words, moment in await exchange.said_of(seen.qpool, sorted(mine))]})
