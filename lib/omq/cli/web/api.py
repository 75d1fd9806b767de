"""The REST interface of the console: what programs look at (`/api/v1`); api_acting.py has the rest.

Records are those of the tools' `--json` lines (JSON.md): a contract, keys are only added. Texts of
others are in them as they are: JSON escapes what it must, and nothing here is a page.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from omq.base.clock import iso_time
from omq.base.errors import BadRequest
from omq.cli.look.index_records import entry_record, queue_record
from omq.cli.look.omqlog import record as happening_record
from omq.cli.look.omqwhy import record as why_record
from omq.cli.look.omstat import record as service_record
from omq.cli.web import reading
from omq.cli.web.console import caller_of, console_of
from omq.cli.web.message_pages import may_know, place_of, place_text, visible
from omq.core.look.stored import StoredMessages


def whole(request: web.Request, name: str, default: int, low: int, high: int) -> int:
    """A number of the query. BadRequest."""
    text = request.query.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and low <= int(text) <= high):
        raise BadRequest(reason=f"{name} is a number, {low} to {high}")
    return int(text)


async def overview(request: web.Request) -> web.Response:
    """GET /api/v1/overview."""
    console = console_of(request)
    moment = await console.moment()
    facts = moment.facts
    return web.json_response({
        "instance": console.pages.instance, "manager": moment.state,
        "note": moment.problem or (facts.note if facts else ""),
        "counters": facts.counters if facts else {}, "rates": moment.rates,
        "free_bytes": facts.space.free_bytes if facts else None,
        "inodes_free": facts.space.inodes_free if facts and facts.space.inodes else None,
        "spool_bytes": dict(facts.filled.parts) if facts else {},
        "alarms": [{"alarm": each.alarm, "queue": each.queue, "severity": each.severity,
                    "value": each.value, "since": iso_time(each.since_ns), "why": each.why,
                    "hints": list(each.hints)} for each in moment.alarms],
        "causes": [each.record() for each in facts.causes.all()] if facts else [],
        "you": {"user": caller_of(request).who, "role": caller_of(request).role}})


async def metrics(request: web.Request) -> web.Response:
    """GET /api/v1/metrics: in the text format of Prometheus; the same for metrics_age_ms.
    ExtraMissing: the client library is not there."""
    console = console_of(request)
    return web.Response(text=await console.run(console.metrics.text), content_type="text/plain",
                        charset="utf-8", headers={"X-Content-Type-Options": "nosniff"})


async def queues(request: web.Request) -> web.Response:
    """GET /api/v1/queues."""
    moment = await console_of(request).moment()
    facts = moment.facts
    found = [] if facts is None else [
        {**queue_record(each.row), "readers": each.readers, "flags": each.row.flags,
         "oldest_s": each.oldest_s(facts.time_ns)} for each in facts.queues]
    return web.json_response({"manager": moment.state, "queues": found})


async def queue(request: web.Request) -> web.Response:
    """GET /api/v1/queues/NAME."""
    console = console_of(request)
    seen = await console.run(reading.queue, console.location, request.match_info["queue"])
    return web.json_response({
        **queue_record(seen.row), "flags": seen.row.flags, "max_depth": seen.row.max_depth,
        "max_length": seen.row.max_length,
        "why": [each.record() for each in seen.reasons],
        "ages": [{"minutes": minutes, "messages": count} for minutes, count in zip(
            (*reading.AGES_MIN, None), seen.ages, strict=True)],
        "readers": [{"pid": each.pid, "name": each.name, "auxiliary": each.auxiliary,
                     "active": each.active} for each in seen.readers]})


async def messages(request: web.Request) -> web.Response:
    """GET /api/v1/queues/NAME/messages."""
    console, caller = console_of(request), caller_of(request)
    name = request.match_info["queue"]
    caller.need_on("browse", name)
    found = await console.run(
        reading.listed, console.location, name, request.query.get("where", "")[:2000],
        place_of(request.query.get("after", "")), whole(request, "limit", 100, 1, 1000),
        mails=False)
    return web.json_response({"messages": [entry_record(row) for row in found.rows],
                              "after": place_text(found.after) or None, "notes": found.notes})


async def message(request: web.Request) -> web.Response:
    """GET /api/v1/messages/ID."""
    console, caller = console_of(request), caller_of(request)
    seen = await console.run(reading.message, console.location, request.match_info["id"], "text", 1)
    mine = visible(caller, seen)
    told: dict[str, Any] = {
        "qpool_id": seen.qpool, "message_id": seen.message_id,
        "queues": [entry_record(each) for each in seen.entries if each.queue in mine],
        "why": [why_record(each) for each in seen.why if each.entry.queue in mine],
        "properties": seen.stored.properties if seen.stored else None,
        "problem": seen.problem or None}
    return web.json_response(told)


async def body(request: web.Request) -> web.Response:
    """GET /api/v1/messages/ID/body: its bytes, as a file that no browser opens."""
    console, caller = console_of(request), caller_of(request)
    seen = await console.run(reading.message, console.location, request.match_info["id"], "", 0)
    visible(caller, seen)
    if seen.stored is None or seen.problem:  # it cannot be read, or is too large
        raise BadRequest(reason=seen.problem)
    row, stored = seen.entries[0].message, seen.stored

    def read() -> bytes:
        messages = StoredMessages(console.location.paths)
        try:
            return messages.body(row, stored)
        finally:
            messages.close()

    with console.budget.room(caller.name, row.size):
        response = web.Response(
            body=await console.run(read), content_type="application/octet-stream",
            headers={"Content-Disposition": "attachment"})
        await response.prepare(request)
        await response.write_eof()  # its bytes are memory until they have left
    return response


async def biography(request: web.Request) -> web.Response:
    """GET /api/v1/messages/ID/biography."""
    console, caller = console_of(request), caller_of(request)
    async with console.history(request):
        qpool, found, damage = await console.run(reading.biography, console.location,
                                                 request.match_info["id"])
    if found and not may_know(caller, found):
        caller.need_on("browse", found[0].queue or "?")
    return web.json_response({"qpool_id": qpool, "happenings": list(map(happening_record, found)),
                              "damage": damage})


async def services(request: web.Request) -> web.Response:
    """GET /api/v1/services."""
    moment = await console_of(request).moment()
    found = moment.facts.services if moment.facts else ()
    return web.json_response({"services": [service_record(each) for each in found]})


async def audit(request: web.Request) -> web.Response:
    """GET /api/v1/audit."""
    console = console_of(request)
    async with console.history(request):
        found = await console.run(reading.orders, console.location)
    return web.json_response({"commands": list(map(happening_record, found))})
