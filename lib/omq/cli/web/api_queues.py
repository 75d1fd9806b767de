"""The REST interface of the console: what programs do with queues: put, get, settle, request.

These are not logged one by one. A request is JSON, but the body of one message may be sent as it
is. Errors: RFC 9457 (gate.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web

from omq.base.errors import BadRequest, OmqError
from omq.cli.web.api_messages import listed, message_of, messages_of, order_of
from omq.cli.web.console import caller_of
from omq.cli.web.desks import COUNT_MAX, WAIT_MAX_S, Order
from omq.cli.web.exchange import Exchange
from omq.cli.web.gate import status_of
from omq.cli.web.said import asked, figure, read_json, sent

EXCHANGE: Final = web.AppKey("exchange", Exchange)


async def put(request: web.Request) -> web.Response:
    """POST /api/v1/queues/NAME/messages."""
    exchange, caller = request.app[EXCHANGE], caller_of(request)
    goal = await exchange.allowed(caller, "put", request.match_info["queue"])
    async with sent(request) as data:
        messages, several = messages_of(request, data)
        ids = await exchange.put(goal, messages)
    return web.json_response({"message_ids": ids} if several else {"message_id": ids[0]},
                             status=201)


async def request_reply(request: web.Request) -> web.Response:
    """POST /api/v1/queues/NAME/request: a message that wants an answer, and the answer."""
    exchange, caller = request.app[EXCHANGE], caller_of(request)
    name = request.match_info["queue"]
    goal = await exchange.allowed(caller, "put", name)
    async with sent(request) as data:
        found = read_json(data)
        if not isinstance(found, dict) or found.keys() & {"reply_to", "expiry_s", "delay_s"}:
            raise BadRequest(reason="a request is a message without reply_to, expiry_s and "
                             "delay_s, and with timeout_s")
        timeout_s = figure(found, "timeout_s", WAIT_MAX_S, WAIT_MAX_S)
        said = {key: value for key, value in found.items() if key != "timeout_s"}
        message_of(said)  # before anything is done for it

        async def question(reply_to: str) -> str:
            made = message_of({**said, "reply_to": reply_to, "expiry_s": timeout_s})
            return (await exchange.put(goal, [made]))[0]

        async with while_there(request):
            answer = await exchange.replies.ask(name, timeout_s, question)
    return web.json_response({key: answer[key] for key in (
        "message_id", "correlation", "priority", "properties", "body", "body_base64")
        if key in answer})


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
        raise web.HTTPRequestTimeout(reason="the client has gone") from None
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
    count = int(figure(found, "count", 1, COUNT_MAX)) or 1
    wait_s = figure(found, "wait_s", 0.0, WAIT_MAX_S)
    orders = [order_of({"delivery": each, "end": "done"}) for each in listed(found, "done")]
    failed = await _settled(exchange, caller.who, orders) if orders else []
    async with while_there(request):
        taken = await exchange.desks.get(
            caller.name, caller.who, goal if isinstance(goal, str) else goal[0], count, wait_s)
    try:
        if request.transport is None or request.transport.is_closing():
            exchange.desks.give_back(taken)
            raise web.HTTPRequestTimeout(reason="the client has gone")
        given = [{**each.record, "body": None, "body_url": f"/api/v1/deliveries/{each.name}/body"}
                 if not ("body" in each.record or "body_base64" in each.record) else each.record
                 for each in taken]
        told: dict[str, Any] = {"deliveries": given}
        if orders:
            told["failed"] = failed
        response = web.json_response(told)
        await response.prepare(request)
        await response.write_eof()  # its bytes are memory until they have left
        return response
    except (ConnectionError, asyncio.CancelledError):  # it did not leave whole
        exchange.desks.give_back(taken)
        raise
    finally:
        for each in taken:
            each.record = {}
            exchange.desks.forget(each)


async def delivery_body(request: web.Request) -> web.StreamResponse:
    """GET /api/v1/deliveries/NAME/body: its bytes, in pieces."""
    exchange, caller = request.app[EXCHANGE], caller_of(request)
    held = exchange.desks.find(caller.who, request.match_info["delivery"])
    message = held.taken.message
    pieces = message.pieces()  # begun, and gone on with, by the desk's thread
    response = web.StreamResponse(headers={"Content-Disposition": "attachment",
                                           "Content-Length": str(message.size)})
    response.content_type = "application/octet-stream"
    piece = await held.desk.say(lambda _: next(pieces, b""))
    await response.prepare(request)
    work = getattr(request.protocol, "work", None)
    try:
        while piece:
            await response.write(piece)
            if work is not None:
                work()  # each piece has its time
            piece = await held.desk.say(lambda _: next(pieces, b""))
        await held.desk.say(lambda _: message.let_go())
        await response.write_eof()
    except OmqError as error:  # too late for an answer that says so
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError(str(error)) from error
    return response


async def _settled(exchange: Exchange, owner: str, orders: list[Order]) -> list[dict[str, Any]]:
    """Those that failed."""
    told = await exchange.desks.settle(owner, orders)
    return [{"delivery": order.delivery, "status": status_of(error), "detail": str(error),
             "omq_error": type(error).__name__, "omq_status": error.status}
            for order, error in zip(orders, told, strict=True) if error is not None]


async def _may_move(request: web.Request, orders: list[Order]) -> list[Order]:
    """Moved to what the name stands for, by one who may put there."""
    found = []
    for each in orders:
        if not each.to:
            found.append(each)
            continue
        caller = caller_of(request)
        caller.need("put")
        goal = await request.app[EXCHANGE].allowed(caller, "put", each.to)
        found.append(each.moved(goal))
    return found


async def settle(request: web.Request) -> web.Response:
    """POST /api/v1/deliveries/NAME."""
    exchange, caller = request.app[EXCHANGE], caller_of(request)
    found = await asked(request, "end", "seconds", "reason", "to", "body", "body_base64",
                        "properties")
    order = order_of({**found, "delivery": request.match_info["delivery"]})
    (order,) = await _may_move(request, [order])
    (error,) = await exchange.desks.settle(caller.who, [order])
    if error is not None:
        raise error
    return web.Response(status=204)


async def settle_many(request: web.Request) -> web.Response:
    """POST /api/v1/deliveries: many, each by itself."""
    exchange, caller = request.app[EXCHANGE], caller_of(request)
    found = await asked(request, "settle")
    orders = await _may_move(request, [order_of(each) for each in listed(found, "settle")])
    failed = await _settled(exchange, caller.who, orders)
    return web.json_response({"settled": len(orders) - len(failed), "failed": failed})
