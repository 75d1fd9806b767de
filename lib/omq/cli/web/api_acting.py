"""The REST interface of the console: what programs of operators do. Each order is asked for, logged
and journaled as that of a page (actions.py). A request is JSON. Errors: RFC 9457 (gate.py).
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from omq.base.errors import BadRequest, OmqError
from omq.base.names import check_queue_name
from omq.cli.operate.change import report_record
from omq.cli.operate.change_plan import Change, Doing, target
from omq.cli.web import actions
from omq.cli.web.action_pages import DOABLE
from omq.cli.web.console import caller_of, console_of
from omq.cli.web.request_body import asked, text, texts, truth
from omq.format.definition import Kind


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
    rows = await console.run(actions.meant, console.location, caller, name, change, where,
                             console.settings.web_plan_messages_max)
    if truth(found, "dry_run"):
        return web.json_response({"action": doing.value, "messages": len(rows), "done": 0})
    reason = actions.reason_of(text(found, "reason"))
    words = f"{where or 'all'} on {name}"
    try:
        report = await console.run(actions.carry_out, console.location, caller, change,
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
    reason, name = actions.reason_of(text(found, "reason")), request.match_info["queue"]
    return await _ordered(request, f"{name}: get {gets}, put {puts}", reason, lambda: (
        actions.inhibit(console.location, caller, name, reason, get=gets, put=puts)))


async def define(request: web.Request) -> web.Response:
    """PUT /api/v1/queues/NAME: a new queue."""
    console, caller = console_of(request), caller_of(request)
    found = await asked(request, "kind", "keys", "reason")
    reason, name = actions.reason_of(text(found, "reason")), request.match_info["queue"]
    kind, keys = text(found, "kind", Kind.LOCAL.value), texts(found, "keys")
    return await _ordered(request, f"define {name}", reason, lambda: actions.define(
        console.location, caller, name, kind, keys, reason))


async def alter(request: web.Request) -> web.Response:
    """PATCH /api/v1/queues/NAME: other keys; an empty text takes one away."""
    console, caller = console_of(request), caller_of(request)
    found = await asked(request, "keys", "reason")
    reason, name = actions.reason_of(text(found, "reason")), request.match_info["queue"]
    keys: dict[str, str | None] = {key: value or None
                                   for key, value in texts(found, "keys").items()}
    return await _ordered(request, f"alter {name}", reason, lambda: actions.alter(
        console.location, caller, name, keys, reason))


async def remove(request: web.Request) -> web.Response:
    """DELETE /api/v1/queues/NAME?reason=: an empty one."""
    console, caller = console_of(request), caller_of(request)
    reason = actions.reason_of(request.query.get("reason", ""))
    name = request.match_info["queue"]
    return await _ordered(request, f"delete queue {name}", reason, lambda: actions.remove(
        console.location, caller, name, reason))


async def turn(request: web.Request) -> web.Response:
    """POST /api/v1/services/NAME."""
    console, caller = console_of(request), caller_of(request)
    found = await asked(request, "on", "reason")
    on, name = truth(found, "on"), request.match_info["service"]
    if on is None:
        raise BadRequest(reason="on is true or false")
    reason = actions.reason_of(text(found, "reason"))
    return await _ordered(request, f"turn {'on' if on else 'off'} service {name}", reason,
                          lambda: actions.turn(console.location, caller, name, reason, on=bool(on)))
