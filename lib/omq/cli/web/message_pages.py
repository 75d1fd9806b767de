"""Pages of messages: the list of a queue, one message, its biography."""

from __future__ import annotations

import asyncio

from aiohttp import web

from omq.base.errors import BadRequest, NoAuthority, OmqError
from omq.cli.look.omqlog import what
from omq.cli.web import reading
from omq.cli.web.caller import ADMIN, Caller
from omq.cli.web.console import caller_of, console_of
from omq.cli.web.exchange import EXCHANGE, SAID_S
from omq.cli.web.preview import KINDS
from omq.cli.web.reading import MessageSeen, Place
from omq.core.history.frames import Happening
from omq.format.index import EntryState


def place_of(text: str) -> Place | None:
    """`4.1234` of a link to the next page; None: the first. BadRequest."""
    if not text:
        return None
    priority, _, sequence = text.partition(".")
    if not (priority.isdecimal() and sequence.isdecimal() and len(text) < 32 and text.isascii()
            and int(priority) <= 9):
        raise BadRequest(reason="after is not a place in a queue")
    return int(priority), int(sequence)


def place_text(place: Place | None) -> str:
    """The other way round."""
    return "" if place is None else f"{place[0]}.{place[1]}"


async def messages(request: web.Request) -> web.Response:
    """GET /queues/NAME/messages."""
    console, caller = console_of(request), caller_of(request)
    name, where = request.match_info["queue"], request.query.get("where", "")[:2000]
    caller.need_on("browse", name)
    found = await console.run(reading.listed, console.location, name, where,
                              place_of(request.query.get("after", "")),
                              console.settings.web_page_messages)
    return console.pages.answer(
        request, "messages.html", name=name, where=where, found=found,
        after=place_text(found.after), first=not request.query.get("after"),
        may_change=caller.may("admin", name))


def visible(caller: Caller, seen: MessageSeen) -> list[str]:
    """The queues of a message that he may browse. NoAuthority: none of them."""
    found = [each.queue for each in seen.entries if caller.may("browse", each.queue)]
    if not found:
        raise NoAuthority(uid=caller.uid, action="browse", queue=seen.entries[0].queue)
    return found


async def message(request: web.Request) -> web.Response:
    """GET /messages/ID."""
    console, caller = console_of(request), caller_of(request)
    caller.need("browse")
    kind = request.query.get("as", "")
    if kind and kind not in KINDS:
        raise BadRequest(reason=f"as is one of {', '.join(KINDS)}")
    seen = await console.run(reading.message, console.location, request.match_info["id"], kind,
                             console.settings.web_preview_bytes)
    mine = visible(caller, seen)
    return console.pages.answer(
        request, "message.html", seen=seen, mine=mine, kinds=KINDS, said=await _said(request, seen),
        changeable=[name for name in mine if caller.may("admin", name)])


async def _said(request: web.Request, seen: MessageSeen) -> dict[str, str]:
    """What readers say of their work on a message, by queue; or why that is not known."""
    active = [each.queue for each in seen.entries if each.state is EntryState.ACTIVE]
    if not active:
        return {}
    try:
        async with asyncio.timeout(SAID_S):
            found = await request.app[EXCHANGE].said_of(seen.qpool, active)
    except (OmqError, TimeoutError) as error:
        return dict.fromkeys(active, f"how far it is is not known: {error or 'no answer'}")
    return {queue: f"{words} ({moment:%Y-%m-%d %H:%M:%S})" for queue, words, moment in found
            if moment is not None}


async def biography(request: web.Request) -> web.Response:
    """GET /messages/ID/biography: reads journal and archive, so one at a time."""
    console, caller = console_of(request), caller_of(request)
    caller.need("browse")
    async with console.history(request):
        qpool, found, damage = await console.run(reading.biography, console.location,
                                                 request.match_info["id"])
    if found and not may_know(caller, found):
        raise NoAuthority(uid=caller.uid, action="browse", queue=found[0].queue or "its queue")
    return console.pages.answer(request, "biography.html", qpool=qpool, found=found, what=what,
                                damage=damage, id=request.match_info["id"])


def may_know(caller: Caller, found: list[Happening]) -> bool:
    """Whether somebody may read what happened to a message: he may browse a queue it was on."""
    queues = {name for each in found for name in (each.queue, *each.targets) if name}
    return caller.role == ADMIN or any(caller.may("browse", name) for name in queues)
