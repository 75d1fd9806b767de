"""The gate of omq-web: every request passes here, before anything is looked at for it.

In order: headers that every answer has; errors as answers; the name that the browser calls us by;
who asks (token, session, or what the proxy says); whether a form is one of ours; whether the route
is his. A route says what it needs (routes.Route): a page that was forgotten has no route, and is
404.

A form is ours when it carries the session's token, and its Origin, or Sec-Fetch-Site, if the
browser sends one, is this host. A token of the API is sent by no browser of itself, so it needs
neither.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from aiohttp import web

from omq.base import events
from omq.base.errors import (
    Exit,
    MessageCancelled,
    NoAuthority,
    NoReply,
    NotLoggedIn,
    OmqError,
    RoleMissing,
)
from omq.base.event_log import ERROR
from omq.cli.web.caller import Caller
from omq.cli.web.console import (
    CALLER,
    NEW_KEY,
    PEER,
    PROXIED,
    SESSION,
    Console,
    console_of,
    peer_of,
)
from omq.cli.web.sessions import Session
from omq.cli.web.tokens import Token
from omq.cli.web.user_turns import USER

if TYPE_CHECKING:
    from omq.cli.web.routes import Route

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
HEADERS: Final = {
    "Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY", "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()", "Server": "omq-web"}
SAFE: Final = ("GET", "HEAD", "OPTIONS")
API: Final = "/api/"
FORM_BYTES_MAX: Final = 1 << 20
_STATUS: Final = {
    Exit.NO: 404, Exit.USAGE: 400, Exit.DATA: 422, Exit.NO_INPUT: 404, Exit.UNAVAILABLE: 503,
    Exit.TEMPORARY: 503, Exit.NO_PERMISSION: 403, Exit.IO: 507, Exit.CANT_CREATE: 409}


def status_of(error: OmqError) -> int:
    """The HTTP status of an error of ours."""
    if isinstance(error, NotLoggedIn):
        return 401
    if isinstance(error, NoReply):
        return 504
    if isinstance(error, MessageCancelled):
        return 410
    return _STATUS.get(error.exit_code, 500)


def cookie_name(request: web.Request) -> str:
    """A cookie that only https carries cannot be set by a page of http next to it. Below a path
    there may be another console of the same host: each has its own."""
    secured = "__Secure-omq" if console_of(request).pages.root else "__Host-omq"
    return secured if is_secure(request) else "omq"


def cookie_path(request: web.Request) -> str:
    """Where the browser sends it."""
    return console_of(request).pages.root or "/"


def is_secure(request: web.Request) -> bool:
    """Whether the browser speaks TLS, with us or with our proxy."""
    return request.secure or (request[PROXIED]
                              and request.headers.get("X-Forwarded-Proto") == "https")


@web.middleware
async def outermost(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The address, the time, and an answer to each error."""
    console = console_of(request)
    USER.set("")  # the task of a connection serves one request after the other
    connection = request.protocol
    work = getattr(connection, "work", None)
    if work is not None:  # a test client of aiohttp has its own
        work()
    request[PROXIED] = console.policy.from_proxy(request.headers.get("Omq-Proxy-Secret", ""))
    told = request.headers.get("X-Forwarded-For", "") if request[PROXIED] else ""
    request[PEER] = told.rpartition(",")[2].strip()[:64] or getattr(connection, "peer", "") or "?"
    try:
        response = await handler(request)
        _below(request, response)
        if NEW_KEY in request and not response.prepared:  # what the proxy said began a session
            set_cookie(request, response, request[NEW_KEY])
        return response
    except web.HTTPException as error:
        return problem(request, error.status, _plainer(request, error), error.headers)
    except OmqError as error:
        if isinstance(error, NotLoggedIn) and not request.path.startswith(API):
            return web.Response(status=303,
                                headers={"Location": f"{console.pages.root}/login?next="
                                         f"{_quoted(request)}"})
        if isinstance(error, NoAuthority | RoleMissing):
            console.refused(request[PEER], str(error))
        return problem(request, status_of(error), str(error), code=error)
    except (ConnectionError, TimeoutError):
        raise
    except Exception as error:
        console.log.event(events.BUG, ERROR, "web", problem=repr(error)[:300],
                          path=request.path[:100])
        return problem(request, 500, "an unexpected error, which is in the event log (OM 1007)")


def _below(request: web.Request, response: web.StreamResponse) -> None:
    """A redirection leads to what the browser calls this place."""
    goes_to, root = response.headers.get("Location", ""), console_of(request).pages.root
    if root and goes_to.startswith("/") and not response.prepared:
        response.headers["Location"] = root + goes_to


def _quoted(request: web.Request) -> str:
    from urllib.parse import quote

    return quote(request.path_qs if request.method in SAFE else "/", safe="")


async def with_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """For every answer, also those of aiohttp's own."""
    response.headers.update(HEADERS)
    response.headers.setdefault("Cache-Control", "no-store")
    if is_secure(_request):
        response.headers["Strict-Transport-Security"] = "max-age=31536000"


def _plainer(request: web.Request, error: web.HTTPException) -> str:
    """What aiohttp says in two words."""
    if isinstance(error, web.HTTPMethodNotAllowed):
        return f"{error.method} is not for this path: {', '.join(sorted(error.allowed_methods))}"
    if isinstance(error, web.HTTPNotFound) and request.path.startswith(API) and (
            error.reason == "Not Found"):
        return f"there is no such path; GET {API}v1/openapi.json lists those that are there"
    return str(error.reason)


def problem(request: web.Request, status: int, text: str, headers: Any = None, *,
            code: OmqError | None = None, more: Mapping[str, Any] | None = None) -> web.Response:
    """An error as a page, or for the API as RFC 9457 has it, with members of its own."""
    kept = {name: value for name, value in dict(headers or {}).items() if name in (
        "Allow", "Retry-After", "WWW-Authenticate")}
    if status == 401:
        kept["WWW-Authenticate"] = 'Bearer realm="omq"'
    if code is not None and "seconds" in code.fields and status == 503:
        kept["Retry-After"] = str(int(float(code.fields["seconds"])) + 1)
    if request.path.startswith(API):
        found = {"type": "about:blank", "title": web.Response(status=status).reason or "Error",
                 "status": status, "detail": text, "instance": request.path}
        if code is not None:
            found |= {"omq_error": type(code).__name__, "omq_status": code.status}
        found |= more or {}
        return web.Response(status=status, text=json.dumps(found), headers=kept,
                            content_type="application/problem+json")
    return console_of(request).pages.answer(request, "problem.html", status=status, headers=kept,
                                            code=status, text=text)


def guarded(route: Route) -> Handler:
    """The route's handler behind all that is asked before it."""

    async def handler(request: web.Request) -> web.StreamResponse:
        console = console_of(request)
        local = getattr(request.protocol, "ids", None) is not None  # no browser comes that way
        if not local and not console.policy.knows_host(request.host):
            console.refused(peer_of(request), f"called {request.host[:80]!r}: see web_hosts")
            raise web.HTTPMisdirectedRequest(
                reason="this console is not called by that name: see web_hosts of omq.conf")
        if request.method not in SAFE and not request.path.startswith(API):
            _small(request)
        if route.open:
            return await route.handler(request)
        await identify(request, console)
        session, caller = request.get(SESSION), request.get(CALLER)
        if caller is not None and (not local or caller.known):
            known = getattr(request.protocol, "known", None)
            if known is not None:  # a test client of aiohttp has its own
                known()
        if session is not None and request.method not in SAFE:
            await check_form(request, console, session)
        if caller is None:
            raise NotLoggedIn(reason="not logged in here")
        if route.scope:
            caller.need(route.scope)
        elif not caller.role and caller.scopes is None:
            raise RoleMissing(user=caller.who, role="look")
        return await route.handler(request)

    return handler


def _small(request: web.Request) -> None:
    """A form is read whole, also those of strangers. HTTPRequestEntityTooLarge."""
    size = request.content_length
    if size is None and request.body_exists:
        raise web.HTTPLengthRequired
    if size is not None and size > FORM_BYTES_MAX:
        raise web.HTTPRequestEntityTooLarge(max_size=FORM_BYTES_MAX, actual_size=size)


async def identify(request: web.Request, console: Console) -> None:
    """Who asks: CALLER and SESSION of the request; without: nobody."""
    policy, peer = console.policy, peer_of(request)
    ids: tuple[int, int] | None = getattr(request.protocol, "ids", None)
    kind, _, text = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() == "bearer" and request.path.startswith(API):
        token = policy.token(text.strip())
        if token is None:  # one that is right is never kept out by those that are wrong
            wait_s = console.login_failures.wrong_token(peer)
            console.refused(peer, "a token that is not known, or over")
            if wait_s:
                raise web.HTTPTooManyRequests(headers={"Retry-After": str(int(wait_s) + 1)})
            raise NotLoggedIn(reason="the token is not known, or its time is over")
        await _known_as(request, console, token.user, token)
        return
    if ids is not None:
        if request.path.startswith(API):
            await _by_kernel(request, console, ids)
        return
    name = ""
    if request[PROXIED] and policy.settings.web_proxy_user_header:
        name = request.headers.get(policy.settings.web_proxy_user_header, "")
    key = request.cookies.get(cookie_name(request), "")
    session = console.sessions.find(key) if key else None
    if session is not None and session.by_proxy and session.user != name:
        session = None  # the proxy says it of each request
    if session is None and name:
        if await console.run(policy.caller, name, peer) is None:
            return  # the proxy knows him, this host does not
        key, session = console.sessions.begin(name, by_proxy=True)
        request[NEW_KEY] = key
    if session is not None:
        request[SESSION] = session
        await _known_as(request, console, session.user)


async def _known_as(request: web.Request, console: Console, name: str, token: Token | None = None
                    ) -> None:
    peer = peer_of(request)
    if token is None:  # a person: now
        caller = await console.run(console.policy.caller, name, peer)
    else:
        caller = await console.callers.find(
            (name, token.name, peer), lambda: console.run(console.policy.caller, name, peer, token))
    _is(request, caller)


async def _by_kernel(request: web.Request, console: Console, ids: tuple[int, int]) -> None:
    """Over the Unix socket the kernel says who asks."""
    peer = peer_of(request)
    _is(request, await console.callers.find(
        ("", "", peer), lambda: console.run(console.policy.local, *ids, peer)))


def _is(request: web.Request, caller: Caller | None) -> None:
    if caller is not None:
        request[CALLER] = caller
        USER.set(caller.name)


def same_origin(request: web.Request) -> bool:
    """What the browser says of where a form comes from; one that says nothing is no browser, or an
    old one, and goes by the token alone."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None and site not in ("same-origin", "none"):
        return False
    origin = request.headers.get("Origin")
    return origin is None or urlsplit(origin).netloc == request.host


async def check_form(request: web.Request, console: Console, session: Session) -> None:
    """HTTPForbidden for a form that is not ours."""
    given = request.headers.get("X-CSRF-Token", "")
    if not given and request.content_type in (
            "application/x-www-form-urlencoded", "multipart/form-data"):
        given = str((await request.post()).get("csrf", ""))
    if not same_origin(request) or not session.right(given):
        console.refused(peer_of(request), f"a form that is not ours: {request.path[:80]}")
        raise web.HTTPForbidden(
            reason="the form is not of this session: reload the page and submit it again")


def set_cookie(request: web.Request, response: web.StreamResponse, key: str) -> None:
    """The session's key for the browser; it is gone with it."""
    response.set_cookie(cookie_name(request), key, path=cookie_path(request), httponly=True,
                        samesite="Strict", secure=is_secure(request))


