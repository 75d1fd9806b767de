"""The REST interface of the console: what programs do. Each order is asked for, logged and
journaled as that of a page (acting.py); puts and gets are not logged one by one.

A request is JSON, but the body of a message may be sent as it is. Errors: RFC 9457 (gate.py).
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final

from aiohttp import web

from omq.base.errors import BadArgument, BadRequest, NoAuthority, OmqError
from omq.base.names import check_queue_name
from omq.cli.operate.change import connect, report_record
from omq.cli.operate.change_plan import Change, Doing, target
from omq.cli.web import acting
from omq.cli.web.action_pages import DOABLE
from omq.cli.web.api import encoded
from omq.cli.web.console import caller_of, console_of
from omq.cli.web.holders import COUNT_MAX, WAIT_MAX_S, Holders
from omq.format.definition import Kind
from omq.format.property_values import Value
from omq.services.channel.names import RECORDS

HOLDERS: Final = web.AppKey("holders", Holders)
_PUT: Final = ("priority", "properties", "persistent", "correlation_id", "message_id", "expiry_s",
               "reply_to", "delay_s", "group_id", "unique_key")


async def asked(request: web.Request, *known: str) -> dict[str, Any]:
    """The JSON object of a request, with no other keys than these. BadRequest."""
    try:
        found = json.loads(await request.read() or b"{}")
    except (ValueError, RecursionError) as error:
        raise BadRequest(reason="the request is no JSON") from error
    if not isinstance(found, dict) or not found.keys() <= set(known):
        raise BadRequest(reason=f"the request is an object with the keys {', '.join(known)}")
    return found


def text(found: dict[str, Any], key: str, default: str = "") -> str:
    """BadRequest."""
    value = found.get(key, default)
    if not isinstance(value, str):
        raise BadRequest(reason=f"{key} is a text")
    return value


def truth(found: dict[str, Any], key: str) -> bool | None:
    """True, False, or None: nothing is said. BadRequest."""
    value = found.get(key)
    if value is not None and not isinstance(value, bool):
        raise BadRequest(reason=f"{key} is true or false")
    return value


def figure(found: dict[str, Any], key: str, default: float, most: float) -> float:
    """BadRequest."""
    value = found.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise BadRequest(reason=f"{key} is a number up to {most:g}")
    return float(value)


def texts(found: dict[str, Any], key: str) -> dict[str, str]:
    """An object of texts. BadRequest."""
    value = found.get(key, {})
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise BadRequest(reason=f"{key} is an object of texts")
    return value


def properties(found: dict[str, Any], key: str) -> dict[str, Value]:
    """An object of texts, numbers and truth. BadRequest."""
    value = found.get(key, {})
    if not isinstance(value, dict) or not all(
            isinstance(each, str | int | float) for each in value.values()):
        raise BadRequest(reason=f"{key} is an object of texts, numbers, true and false")
    return value


async def put(request: web.Request) -> web.Response:
    """POST /api/v1/queues/NAME/messages."""
    console, caller = console_of(request), caller_of(request)
    name = request.match_info["queue"]
    caller.need("put")
    if request.content_type == "application/json":
        found = await asked(request, "body", "body_base64", *_PUT)
        body = text(found, "body").encode()
        if "body_base64" in found:
            try:
                body = base64.b64decode(text(found, "body_base64"), validate=True)
            except (binascii.Error, ValueError) as error:
                raise BadRequest(reason="body_base64 is no base64") from error
        said = {key: found[key] for key in _PUT if key in found}
        properties(found, "properties")
    else:
        body, said = await request.read(), {}

    def work() -> str:
        with connect(console.location, acting.NAME) as connection:
            if RECORDS in connection.resolved(name):  # the right to be a channel, no more
                raise NoAuthority(uid=caller.uid, action="put", queue=RECORDS)
            try:
                return connection.put(acting.allowed(caller, "put", connection, name), body, **said)
            except (TypeError, ValueError) as error:
                raise BadArgument(argument="the request", value="so", rule=str(error)) from error

    return web.json_response({"message_id": await console.run(work)}, status=201)


async def get(request: web.Request) -> web.Response:
    """POST /api/v1/queues/NAME/get."""
    caller = caller_of(request)
    name = request.match_info["queue"]
    caller.need("get")
    found = await asked(request, "count", "wait_s")
    count = int(figure(found, "count", 1, COUNT_MAX)) or 1
    given = await request.app[HOLDERS].get(
        caller.name, caller.who, name, count, figure(found, "wait_s", 0.0, WAIT_MAX_S),
        lambda client: acting.allowed(caller, "get", client, name))
    return web.json_response({"deliveries": [
        {"delivery": delivery, "qpool_id": each.qpool_id, "message_id": each.message_id,
         "priority": each.priority, "attempts": each.attempts, "redelivered": each.redelivered,
         "properties": each.texts, "correlation_id": each.correlation_id.hex(),
         "reply_to": each.reply_to, **encoded(each.body)} for delivery, each in given]})


async def settle(request: web.Request) -> web.Response:
    """POST /api/v1/deliveries/NAME."""
    caller = caller_of(request)
    found = await asked(request, "end", "seconds", "reason")
    await request.app[HOLDERS].settle(
        caller.who, request.match_info["delivery"], text(found, "end", "done"),
        figure(found, "seconds", 0.0, 366 * 86400), text(found, "reason"))
    return web.Response(status=204)


async def act(request: web.Request) -> web.Response:
    """POST /api/v1/queues/NAME/act: messages of a selector; `dry_run` counts alone."""
    console, caller = console_of(request), caller_of(request)
    found = await asked(request, "do", "to", "where", "all", "reason", "dry_run", "force")
    doing, goal = DOABLE.get(text(found, "do")), text(found, "to")
    where = text(found, "where").strip()
    if doing is None:
        raise BadRequest(reason=f"do is one of {', '.join(DOABLE)}")
    if not where and not truth(found, "all"):
        raise BadRequest(reason="say where, or all = true")
    change = Change(doing, (check_queue_name(goal),) if goal and doing is Doing.MOVE else (),
                    force=bool(truth(found, "force")))
    name = request.match_info["queue"]
    rows = await console.run(acting.meant, console.location, caller, name, change, where,
                             console.settings.web_plan_messages_max)
    if truth(found, "dry_run"):
        return web.json_response({"action": doing.value, "messages": len(rows), "done": 0})
    reason = acting.reason_of(text(found, "reason"))
    words = f"{where or 'all'} on {name}"
    try:
        report = await console.run(acting.carry_out, console.location, caller, change,
                                   [target(row) for row in rows], f"({words})", reason)
    except OmqError as error:
        console.failed(caller, f"{change.text()}: {words}", reason, str(error))
        raise
    console.acted(caller, f"{change.text()}: {words}", reason, len(report.done))
    return web.json_response({"messages": len(rows), **report_record(change, report)})


async def _ordered(request: web.Request, words: str, reason: str, work: Any) -> web.Response:
    await console_of(request).carry_out(caller_of(request), words, reason, work)
    return web.Response(status=204)


async def inhibit(request: web.Request) -> web.Response:
    """POST /api/v1/queues/NAME/inhibit: `get`, `put`: true is allowed."""
    console, caller = console_of(request), caller_of(request)
    found = await asked(request, "get", "put", "reason")
    gets, puts = truth(found, "get"), truth(found, "put")
    if gets is None and puts is None:
        raise BadRequest(reason="say get or put, true or false")
    reason, name = acting.reason_of(text(found, "reason")), request.match_info["queue"]
    return await _ordered(request, f"{name}: get {gets}, put {puts}", reason, lambda: (
        acting.inhibit(console.location, caller, name, reason, get=gets, put=puts)))


async def define(request: web.Request) -> web.Response:
    """PUT /api/v1/queues/NAME: a new queue."""
    console, caller = console_of(request), caller_of(request)
    found = await asked(request, "kind", "keys", "reason")
    reason, name = acting.reason_of(text(found, "reason")), request.match_info["queue"]
    kind, keys = text(found, "kind", Kind.LOCAL.value), texts(found, "keys")
    return await _ordered(request, f"define {name}", reason, lambda: acting.define(
        console.location, caller, name, kind, keys, reason))


async def alter(request: web.Request) -> web.Response:
    """PATCH /api/v1/queues/NAME: other keys; an empty text takes one away."""
    console, caller = console_of(request), caller_of(request)
    found = await asked(request, "keys", "reason")
    reason, name = acting.reason_of(text(found, "reason")), request.match_info["queue"]
    keys: dict[str, str | None] = {key: value or None
                                   for key, value in texts(found, "keys").items()}
    return await _ordered(request, f"alter {name}", reason, lambda: acting.alter(
        console.location, caller, name, keys, reason))


async def remove(request: web.Request) -> web.Response:
    """DELETE /api/v1/queues/NAME?reason=: an empty one."""
    console, caller = console_of(request), caller_of(request)
    reason = acting.reason_of(request.query.get("reason", ""))
    name = request.match_info["queue"]
    return await _ordered(request, f"delete queue {name}", reason, lambda: acting.remove(
        console.location, caller, name, reason))


async def turn(request: web.Request) -> web.Response:
    """POST /api/v1/services/NAME."""
    console, caller = console_of(request), caller_of(request)
    found = await asked(request, "on", "reason")
    on, name = truth(found, "on"), request.match_info["service"]
    if on is None:
        raise BadRequest(reason="on is true or false")
    reason = acting.reason_of(text(found, "reason"))
    return await _ordered(request, f"turn {'on' if on else 'off'} service {name}", reason,
                          lambda: acting.turn(console.location, caller, name, reason, on=bool(on)))
