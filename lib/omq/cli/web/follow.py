"""What pages follow: live figures and new events, as server-sent events.

A follower gets what has changed since it was told last, once in web_period_ms at most; one that
does not take it in web_idle_timeout_s is cut off. Its end comes after web_follow_s: the browser
connects anew then, and passes the gate again. Invariants: 1. at most web_follow_max followers,
web_user_follow_max of one user; 2. what is sent is JSON on one line, so no text of anybody's can
end an event and begin another.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from aiohttp import web

from omq.base.errors import ConsoleBusy, OmqError
from omq.cli.web import page_head
from omq.cli.web.console import Console, caller_of, console_of
from omq.cli.web.event_tail import EventTail
from omq.cli.web.figures import live

_BEAT_S = 10.0  # a line for whoever counts the silence: proxies, and our own check for the end


async def figures(request: web.Request) -> web.StreamResponse:
    """GET /live: the figures of the instance, of the queues named by `queue`, and the histogram of
    the one named by `ages`."""
    console = console_of(request)
    queues = request.query.getall("queue", []) or (
        None if request.query.get("all") else [])
    return await _follow(request, _figures(console, queues, request.query.get("ages", "")))


async def _figures(console: Console, queues: list[str] | None, ages: str
                   ) -> AsyncIterator[Any]:
    beats, told = console.follow(), dict[str, Any]()
    try:
        while True:
            try:
                moment = await asyncio.wait_for(beats.get(), _BEAT_S)
            except TimeoutError:
                yield None
                continue
            now: dict[str, Any] = live(moment, queues) | page_head.live(moment, queues)
            if ages:
                with suppress(OmqError):  # without an index there is none; the figures say why
                    now |= await console.run(console.ages.live, ages)
            changed = {key: text for key, text in now.items() if told.get(key) != text}
            told = now
            yield changed or None
    finally:
        console.unfollow(beats)


async def events(request: web.Request) -> web.StreamResponse:
    """GET /events/live: what is logged from now on."""
    console = console_of(request)
    return await _follow(request, _events(console))


async def _events(console: Console) -> AsyncIterator[Any]:
    tail = EventTail(console.location.paths.event_log)
    while True:
        found = await console.run(tail.new)
        yield {"events": found} if found else None
        await asyncio.sleep(console.settings.web_period_ms / 1000)


async def _follow(request: web.Request, source: AsyncIterator[Any]) -> web.StreamResponse:
    console = console_of(request)
    settings, user = console.settings, caller_of(request).name
    for most, key, follow in ((settings.web_follow_max, "web_follow_max",
                               console.followed.total()),
                              (settings.web_user_follow_max, "web_user_follow_max",
                               console.followed[user])):
        if follow >= most:
            raise ConsoleBusy(what=f"{most} pages follow already ({key})", seconds=30)
    response = web.StreamResponse(headers={"Cache-Control": "no-store",
                                           "X-Accel-Buffering": "no"})
    response.content_type = "text/event-stream"
    console.followed[user] += 1
    try:
        await response.prepare(request)
        follows = getattr(request.protocol, "follow", None)
        if follows is not None:
            follows()
        ends = time.monotonic() + settings.web_follow_s
        async for found in source:
            if console.stopping.is_set() or time.monotonic() >= ends:
                break
            line = ": beat\n\n" if found is None else f"data: {json.dumps(found)}\n\n"
            async with asyncio.timeout(settings.web_idle_timeout_s):
                await response.write(line.encode())
    except (ConnectionError, TimeoutError, ConsoleBusy):
        if request.transport is not None:
            request.transport.abort()  # it takes nothing, has gone, or its user asks too much
    finally:
        console.followed[user] -= 1
        console.followed += Counter()  # drops the zeros
        await source.aclose()  # type: ignore[attr-defined]  # an async generator
    return response
