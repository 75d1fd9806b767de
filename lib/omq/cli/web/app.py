"""The application of omq-web: every route that there is, in one list."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from omq.cli.operate.change import connect
from omq.cli.web import (
    action_pages,
    connection_pages,
    definitions,
    follow,
    message_pages,
    pages,
    rights_pages,
    schedule_pages,
    service_pages,
)
from omq.cli.web.action_plans import Plans
from omq.cli.web.actions import NAME
from omq.cli.web.api_routes import API
from omq.cli.web.console import CONSOLE, Console
from omq.cli.web.exchange import EXCHANGE, Exchange
from omq.cli.web.gate import guarded, outermost, with_headers
from omq.cli.web.rendering import HERE
from omq.cli.web.routes import Route

_QUEUE: Final = "{queue:[A-Z0-9_.]{1,16}}"
_ID: Final = "{id:[!-.0-~]{1,64}}"

PAGES: Final = (
    Route("GET", "/login", pages.login_page, "log in", open=True),
    Route("POST", "/login", pages.login, "log in", open=True),
    Route("POST", "/logout", pages.logout, "log out"),
    Route("GET", "/", pages.overview, "overview", "look"),
    Route("GET", "/queues", pages.queues, "all queues", "look"),
    Route("GET", f"/queues/{_QUEUE}", pages.queue, "one queue", "look"),
    Route("POST", f"/queues/{_QUEUE}/inhibit", action_pages.inhibit, "hold, release", "operate"),
    Route("POST", f"/queues/{_QUEUE}/put", action_pages.put, "put a message", "operate"),
    Route("GET", f"/queues/{_QUEUE}/messages", message_pages.messages, "its messages", "browse"),
    Route("GET", f"/messages/{_ID}", message_pages.message, "one message", "browse"),
    Route("GET", f"/messages/{_ID}/biography", message_pages.biography, "its life", "browse"),
    Route("POST", "/plan", action_pages.make_plan, "what would be done", "operate"),
    Route("POST", "/plan/{plan}", action_pages.carry_out, "do it", "operate"),
    Route("POST", "/undo/{plan}", action_pages.undo, "undo a delete", "operate"),
    Route("GET", "/services", service_pages.services, "services", "look"),
    Route("POST", "/services/{service}", service_pages.turn_service, "on or off", "define"),
    Route("GET", "/readers", service_pages.readers, "readers", "look"),
    Route("GET", "/peers", service_pages.peers, "channels and peers", "look"),
    Route("GET", "/schedules", schedule_pages.schedules, "schedules", "browse"),
    Route("GET", "/units", service_pages.units, "units in doubt", "operate"),
    Route("POST", "/units/{unit}", service_pages.end_unit, "end one", "define"),
    Route("GET", "/events", service_pages.events, "events", "look"),
    Route("GET", "/events/live", follow.events, "new events", "look"),
    Route("GET", "/audit", service_pages.audit, "commands of operators", "operate"),
    Route("GET", "/definitions", definitions.page, "all definitions", "define"),
    Route("GET", "/definitions/export", definitions.export_file, "as one file", "define"),
    Route("POST", "/definitions", definitions.import_file, "judge or import a file", "define"),
    Route("GET", "/connections", connection_pages.page, "connections of AMQP", "look"),
    Route("POST", "/connections/{connection:[0-9]{1,12}}", connection_pages.close_page, "end one",
          "operate"),
    Route("GET", "/rights", rights_pages.page, "users and rights", "define"),
    Route("GET", "/live", follow.figures, "live figures", "look"),
)
STATIC: Final = {"console.css": "text/css", "console.js": "text/javascript",
                 "omq.svg": "image/svg+xml"}


async def static(request: web.Request) -> web.Response:
    """GET /static/NAME: one of three files, by their names alone."""
    name = request.match_info["name"]
    kind = STATIC.get(name)
    if kind is None:
        raise web.HTTPNotFound
    return web.Response(body=(HERE / "static" / name).read_bytes(), content_type=kind,
                        headers={"Cache-Control": "max-age=3600"})


ROUTES: Final = (*PAGES, *API,
                 Route("GET", "/static/{name}", static, "style and script", open=True))


def application(console: Console) -> web.Application:
    """With all routes after the gate."""
    app = web.Application(middlewares=[outermost],
                          client_max_size=console.settings.web_request_bytes_max)
    app[CONSOLE] = console
    app[EXCHANGE] = Exchange(console.settings, lambda: connect(console.location, NAME),
                             console.budget)
    app[action_pages.PLANS] = Plans(console.settings.web_plan_s)
    app.on_response_prepare.append(with_headers)
    for route in ROUTES:
        app.router.add_route(route.method, route.path, guarded(route))
    return app
