"""Connections of amqp.server with their rates, and the end of one: a page, and the same for
programs.

amqp.server is asked (omq.cli.operate.connections); where it does not run, the page says so. Errors:
ServerAway, ConnectionUnknown, RoleMissing, BadRequest.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from omq.base.errors import ServerAway
from omq.cli.operate import connections
from omq.cli.web import actions
from omq.cli.web.console import caller_of, console_of
from omq.cli.web.request_body import asked, text


async def page(request: web.Request) -> web.Response:
    """GET /connections."""
    console, away = console_of(request), ""
    found: dict[str, Any] = {"connections": 0, "told": []}
    try:
        found = await console.run(connections.listed, console.location)
    except ServerAway as error:
        away = str(error)
    return console.pages.answer(
        request, "connections.html", connections=found["told"], count=found["connections"],
        away=away, may_close=caller_of(request).within("operate"))


async def connection_list(request: web.Request) -> web.Response:
    """GET /api/v1/connections."""
    console = console_of(request)
    found = await console.run(connections.listed, console.location)
    return web.json_response({"count": found["connections"], "connections": found["told"]})


async def close_page(request: web.Request) -> web.StreamResponse:
    """POST /connections/NUMBER."""
    form = await request.post()
    link = form.get("link")
    await _close(request, str(form.get("reason", "")), None if link is None else str(link))
    return web.Response(status=303, headers={"Location": "/connections"})


async def close(request: web.Request) -> web.Response:
    """POST /api/v1/connections/NUMBER/close."""
    said = await asked(request, "reason", "link")
    await _close(request, text(said, "reason"), text(said, "link") if "link" in said else None)
    return web.Response(status=204)


async def _close(request: web.Request, said: str, link: str | None) -> None:
    console, caller = console_of(request), caller_of(request)
    caller.need("operate")
    reason, number = actions.reason_of(said), int(request.match_info["connection"])
    words = f"close connection {connections.words(number, link)}"
    await console.carry_out(caller, words, reason, lambda: connections.close(
        console.location, number, actions.command(caller, words), reason, by=caller.who,
        link=link))
