"""The first pages of the console: log in and out, overview, queues, one queue."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from omq.base import clock, events
from omq.base.amounts import duration
from omq.base.config import load_queues
from omq.base.defined_queue import keys_of
from omq.base.errors import ConfigError, RoleMissing
from omq.base.event_log import REPORT, WARNING
from omq.base.names import IDEL_NAME
from omq.cli.web import figures, page_head, reading
from omq.cli.web.caller import Caller
from omq.cli.web.console import Console, caller_of, console_of, peer_of
from omq.cli.web.gate import cookie_name, cookie_path, same_origin, set_cookie
from omq.services.daemon.options import Location

_PASSWORD_MAX: Final = 1024
PAGE_QUEUES: Final = 200
_SORTS: Final = ("name", *(key for key, _, _ in figures.COLUMNS))


def local_path(text: str) -> str:
    """A path of ours; `/` for anything that would lead elsewhere."""
    good = (text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable()
            and "\\" not in text)
    return text if good else "/"


async def login_page(request: web.Request) -> web.Response:
    """GET /login."""
    return _login(request, local_path(request.query.get("next", "/")))


def _login(request: web.Request, goes_to: str, *, status: int = 200, told: str = "",
           headers: dict[str, str] | None = None) -> web.Response:
    console = console_of(request)
    return console.pages.answer(request, "login.html", status=status, headers=headers, next=goes_to,
                                told=told, possible=console.policy.users is not None)


async def login(request: web.Request) -> web.StreamResponse:
    """POST /login: a new session, whatever key the browser had."""
    console, peer = console_of(request), peer_of(request)
    if not same_origin(request):
        console.refused(peer, "a login from a page of another site")
        raise web.HTTPForbidden(reason="log in from this console's own page")
    form = await request.post()
    name, password = str(form.get("user", ""))[:64], str(form.get("password", ""))
    goes_to = local_path(str(form.get("next", "/")))
    wait_s, limit = console.login_failures.wait_s(peer, name)
    if wait_s:
        console.log.event(events.WEB_LOGIN_FAILED, WARNING, f"{peer} {limit}", peer=peer, user=name,
                          reason=f"too many wrong passwords before {limit}: see web_logins_max")
        return _login(request, goes_to, status=429, headers={"Retry-After": str(int(wait_s) + 1)},
                      told=f"Too many wrong passwords: wait {duration(int(wait_s) + 1)}.")
    console.login_failures.count(peer, name)
    caller, reason = await _proved(console, peer, name, password)
    if caller is None:
        console.log.event(events.WEB_LOGIN_FAILED, WARNING, peer, peer=peer, user=name or "?",
                          reason=reason)
        return _login(request, goes_to, status=403, told="Wrong name or password.")
    console.login_failures.right(peer, name)
    if not caller.role:
        console.log.event(events.WEB_LOGIN_FAILED, WARNING, peer, peer=peer, user=name,
                          reason="no role in [console] of authority.conf")
        raise RoleMissing(user=name, role="look")
    console.sessions.end(request.cookies.get(cookie_name(request), ""))
    key, _ = console.sessions.begin(name)
    console.log.event(events.WEB_LOGIN, REPORT, name, peer=peer, user=name, role=caller.role)
    answer = web.Response(status=303, headers={"Location": goes_to})
    set_cookie(request, answer, key)
    return answer


async def _proved(console: Console, peer: str, name: str, password: str
                  ) -> tuple[Caller | None, str]:
    users = console.policy.users
    if users is None:
        return None, "there is no web_users in omq.conf"
    if not password or len(password) > _PASSWORD_MAX:
        return None, "no password"
    if not await console.check(users.check, name, password):
        return None, "wrong name or password"
    caller = await console.check(console.policy.caller, name, peer)
    return caller, "no account of this host, or the owner of the spool, or root"


async def logout(request: web.Request) -> web.StreamResponse:
    """POST /logout."""
    console = console_of(request)
    console.sessions.end(request.cookies.get(cookie_name(request), ""))
    answer = web.Response(status=303, headers={"Location": "/login"})
    answer.del_cookie(cookie_name(request), path=cookie_path(request))
    return answer


async def overview(request: web.Request) -> web.Response:
    """GET /."""
    console = console_of(request)
    moment = await console.moment()
    ring = console.snapshots.ring
    cards = [(each, each.value(moment), ring.series(each.series) if each.series else None)
             for each in figures.FIGURES]
    return console.pages.answer(
        request, "overview.html", moment=moment, manager=figures.manager_words(moment),
        note=page_head.note(moment), cards=cards, busiest=page_head.deepest(moment),
        cells=figures.queue_cells, words=figures.queue_words, columns=figures.COLUMNS,
        alarms=page_head.alarms(moment), no_alarm=page_head.alarms_note(moment),
        causes=page_head.causes(moment), no_cause=page_head.causes_note(moment),
        report=console.settings.web_report_link, ring=ring)


async def queues(request: web.Request) -> web.Response:
    """GET /queues: all of them, chosen and sorted by the query."""
    console = console_of(request)
    moment = await console.moment()
    sort, word = request.query.get("sort", "name"), request.query.get("filter", "")[:64]
    sort = sort if sort in _SORTS else "name"
    falling = request.query.get("order", "") != "rising"
    found = [] if moment.facts is None else [
        each for each in moment.facts.queues if word.upper() in each.row.name]
    if sort != "name":
        found.sort(key=figures.sort_key(moment, sort), reverse=falling)
    text, count = request.query.get("page", ""), max(1, -(-len(found) // PAGE_QUEUES))
    at = min(int(text), count) if text.isascii() and text.isdecimal() and len(text) < 7 else 1
    at = max(1, at)
    return console.pages.answer(
        request, "queues.html", moment=moment, note=page_head.note(moment),
        queues=found[(at - 1) * PAGE_QUEUES : at * PAGE_QUEUES], found=len(found), page=at,
        pages=count, total=len(moment.facts.queues) if moment.facts else 0, sort=sort,
        falling=falling, word=word, columns=figures.COLUMNS, cells=figures.queue_cells,
        words=figures.queue_words, ring=console.snapshots.ring)


async def queue(request: web.Request) -> web.Response:
    """GET /queues/NAME."""
    console, caller = console_of(request), caller_of(request)
    name = request.match_info["queue"]
    seen = await console.run(reading.queue, console.location, name)
    moment = await console.moment()
    facts = next((each for each in moment.facts.queues if each.row.name == name), None) if (
        moment.facts) else None
    keys, by = await console.run(definition, console.location, name)
    ring = console.snapshots.ring
    return console.pages.answer(
        request, "queue.html", note=page_head.note(moment), seen=seen,
        cells=figures.queue_cells(moment, facts) if facts else None,
        words=figures.queue_words(facts) if facts else ("", "plain"), columns=figures.COLUMNS,
        keys=keys, by=by, age_names=reading.AGE_NAMES, limit=figures.limit,
        inhibited=figures.is_inhibited(seen.row), name=name,
        may_browse=caller.may("browse", name), may_change=caller.may("admin", name),
        may_put=caller.within("operate") and caller.may("put", name) and name != IDEL_NAME,
        depth=ring.series(f"{name}:messages"), oldest=ring.series(f"{name}:oldest"),
        coming=ring.series(f"{name}:in"), going=ring.series(f"{name}:out"),
        now_ns=clock.wall_ns())


def definition(location: Location, name: str) -> tuple[dict[str, str], str]:
    """(keys of a queue, who says them): of queues.conf, which is read; what was defined at run time
    only the queue manager knows, and it is not asked for looking."""
    try:
        conf = load_queues(location.conf_dir).get(name)
    except ConfigError as error:
        return {}, f"queues.conf cannot be read: {error}"
    if conf is None:
        return {}, f"defined at run time: omq queue show {name}"
    return dict(keys_of(conf)), "queues.conf"
