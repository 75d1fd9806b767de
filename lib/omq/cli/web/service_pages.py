"""Pages of the instance itself: services, readers, peers, units in doubt, events, audit."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from omq.base.errors import BadRequest
from omq.cli.look.gateways import Gateway
from omq.cli.look.omqlog import what
from omq.cli.look.omstat import advice, runs
from omq.cli.look.service_status import is_service
from omq.cli.operate.change import connect
from omq.cli.operate.channel_look import running_channels
from omq.cli.operate.peers import PeerRow, peer_rows
from omq.cli.web import actions, page_head, reading
from omq.cli.web.caller import ADMIN
from omq.cli.web.console import caller_of, console_of
from omq.cli.web.event_tail import EventTail
from omq.ipc.client.in_doubt import UnitInDoubt
from omq.services.daemon.options import Location

_PEERS_MAX: Final = 500


async def services(request: web.Request) -> web.Response:
    """GET /services."""
    console = console_of(request)
    moment = await console.moment()
    return console.pages.answer(
        request, "services.html", note=page_head.note(moment),
        services=moment.facts.services if moment.facts else (), runs=runs, advice=advice,
        is_service=is_service, may_turn=caller_of(request).has(ADMIN))


async def turn_service(request: web.Request) -> web.StreamResponse:
    """POST /services/NAME: on or off."""
    console, caller = console_of(request), caller_of(request)
    form, name = await request.post(), request.match_info["service"]
    reason, turn = actions.reason_of(str(form.get("reason", ""))), str(form.get("turn", ""))
    if turn not in ("on", "off"):
        raise BadRequest(reason="a service is turned on or off")
    await console.carry_out(
        caller, f"turn {turn} service {name}", reason,
        lambda: actions.turn(console.location, caller, name, reason, on=turn == "on"))
    return web.Response(status=303, headers={"Location": "/services"})


async def readers(request: web.Request) -> web.Response:
    """GET /readers."""
    console = console_of(request)
    return console.pages.answer(request, "readers.html",
                                readers=await console.run(reading.readers, console.location))


async def peers(request: web.Request) -> web.Response:
    """GET /peers: channels to other instances, as channel.sender says, and those of the mail
    gateways with their peers."""
    console = console_of(request)
    moment = await console.moment()
    gateways = moment.facts.gateways if moment.facts else ()
    found = await console.run(_peers, console.location, gateways)
    running = await console.run(running_channels, console.location)
    return console.pages.answer(request, "peers.html", gateways=gateways, peers=found,
                                most=_PEERS_MAX, running=running.values())


def _peers(location: Location, gateways: tuple[Gateway, ...]) -> list[PeerRow]:
    found: list[PeerRow] = []
    for each in gateways:
        for row in peer_rows(location, each.conf):
            if len(found) == _PEERS_MAX:
                return found
            found.append(row)
    return found


async def units(request: web.Request) -> web.Response:
    """GET /units: those in doubt. The index has their number; which they are the queue manager is
    asked, when there are some and an operator looks."""
    console = console_of(request)
    moment = await console.moment()
    count = moment.facts.counters.get("units_in_doubt", 0) if moment.facts else 0
    found = await console.run(_units, console.location) if count else []
    return console.pages.answer(request, "units.html", units=found, count=count,
                                may_end=caller_of(request).has(ADMIN))


def _units(location: Location) -> list[UnitInDoubt]:
    with connect(location, actions.NAME) as connection:
        return connection.units_in_doubt()


async def end_unit(request: web.Request) -> web.StreamResponse:
    """POST /units/UNIT: commit or backout."""
    console, caller = console_of(request), caller_of(request)
    form, unit = await request.post(), request.match_info["unit"]
    reason, end = actions.reason_of(str(form.get("reason", ""))), str(form.get("end", ""))
    if end not in ("commit", "backout"):
        raise BadRequest(reason="a unit ends with commit or backout")
    await console.carry_out(caller, f"{end} unit {unit}", reason, lambda: actions.end_unit(
        console.location, caller, unit, reason, commit=end == "commit"))
    return web.Response(status=303, headers={"Location": "/units"})


async def events(request: web.Request) -> web.Response:
    """GET /events: the last of the log; the page follows."""
    console = console_of(request)
    tail = EventTail(console.location.paths.event_log)
    return console.pages.answer(request, "events.html", events=await console.run(tail.last))


async def audit(request: web.Request) -> web.Response:
    """GET /audit: what operators ordered, from journal and archive; of one by `by`."""
    console, by = console_of(request), request.query.get("by", "")[:64]
    async with console.history(request):
        found = await console.run(reading.orders, console.location)
    if by:
        found = [each for each in found if each.command is not None and (
            by in each.command.command or by == str(each.command.uid)
            or by in each.command.reason)]
    return console.pages.answer(request, "audit.html", found=found, what=what, by=by)

