"""What was defined at run time, as one file: queues and schedules, for another instance or this one
later. What stands in queues.conf and schedules.conf is not in it: those are files already.

Taken in it makes an instance have all that the file names, each by itself: defined, altered, the
same already, or refused with the reason; nothing is removed. So it may be taken in twice.
Errors: RoleMissing, BadRequest; those of the connection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from aiohttp import web

from omq.base.errors import BadRequest, OmqError
from omq.cli.operate.change import connect
from omq.cli.web import actions
from omq.cli.web.caller import Caller
from omq.cli.web.console import caller_of, console_of
from omq.cli.web.request_body import object_of, sent, text
from omq.ipc.client.connection import Client
from omq.ipc.client.queues import QueueInfo
from omq.services.daemon.options import Location
from omq.tasks.schedule import FILE
from omq.tasks.schedules import Schedules

VERSION: Final = 1
RUN_TIME: Final = "run time"
DEFINITIONS_MAX: Final = 10_000
_KINDS: Final = ("local", "alias", "model", "remote", "transmission")
"""In this order they are defined: what is named is there before what names it, as far as kinds say
it; the rest is tried once more behind the others."""
_MANAGERS: Final = ("model", "owner", "born", "drains")
_SCHEDULE: Final = ("zone", "body", "properties", "priority", "expiry_s", "jitter_s", "catch_up",
                    "overlap")


def exported(location: Location) -> dict[str, Any]:
    """In a worker thread."""
    with connect(location, actions.NAME) as connection:
        queues = [{"name": each.name, "kind": each.kind, "keys": _said(each)}
                  for each in connection.queues.list()
                  if each.by == RUN_TIME and each.kind in _KINDS
                  and not each.name.startswith("SYSTEM.")]
        schedules = [{"name": each.name, "queue": each.queue, "when": each.when,
                      **{key: getattr(each, key) for key in _SCHEDULE}, "paused": each.paused}
                     for each in Schedules(connection).list() if each.by != FILE]
    return {"version": VERSION, "queues": queues,
            "schedules": [{**each, "properties": dict(each["properties"])} for each in schedules]}


def imported(location: Location, caller: Caller, found: Mapping[str, Sequence[Any]], reason: str
             ) -> list[dict[str, str]]:
    """In a worker thread: what became of each."""
    said = actions.signed(caller, reason)
    order = {kind: at for at, kind in enumerate(_KINDS)}
    queues = sorted(found["queues"], key=lambda each: (
        order.get(_text(each, "kind"), len(order)), _text(each, "name")))
    with connect(location, actions.NAME) as connection:
        there = {each.name: each for each in connection.queues.list()}
        told = [_one("queue", each, lambda each=each: _queue(connection, there, each, said))
                for each in queues]
        for at, each in enumerate(queues):  # what named one that came later
            if told[at]["outcome"] == "refused":
                told[at] = _one("queue", each, lambda each=each: _queue(
                    connection, there, each, said))
        schedules = Schedules(connection)
        told += [_one("schedule", each, lambda each=each: _schedule(schedules, each))
                 for each in found["schedules"]]
    return told


def _said(info: QueueInfo) -> dict[str, str]:
    """Its keys without those that the queue manager says by itself."""
    return {key: value for key, value in info.keys.items() if key not in _MANAGERS}


def _text(found: Any, key: str) -> str:
    return str(found.get(key, "")) if isinstance(found, dict) else ""


def _one(kind: str, found: Any, work: Any) -> dict[str, str]:
    told = {"kind": kind, "name": _text(found, "name")[:64]}
    try:
        return {**told, "outcome": work()}
    except (OmqError, TypeError, ValueError) as error:  # of this one, whatever it says
        return {**told, "outcome": "refused", "reason": str(error)}


def _queue(connection: Client, there: dict[str, QueueInfo], found: Any, reason: str) -> str:
    if not isinstance(found, dict) or not found.keys() <= {"name", "kind", "keys"}:
        raise BadRequest(reason="a queue is an object with name, kind and keys")
    name, kind, keys = text(found, "name"), text(found, "kind", "local"), found.get("keys", {})
    if not isinstance(keys, dict) or not all(isinstance(each, str) for each in keys.values()):
        raise BadRequest(reason="keys is an object of texts")
    old = there.get(name)
    if old is None:
        connection.queues.define(name, kind, reason=reason, **keys)
        return "defined"
    if old.by != RUN_TIME or old.kind != kind:
        raise BadRequest(reason=f"{name} is there, {old.kind}, by {old.by}")
    had = _said(old)
    changed: dict[str, str | None] = {
        key: keys.get(key) for key in {*keys, *had} if keys.get(key) != had.get(key)}
    if not changed:
        return "the same"
    connection.queues.alter(name, reason=reason, **changed)
    return "altered"


def _schedule(schedules: Schedules, found: Any) -> str:
    known = {"name", "queue", "when", "paused", *_SCHEDULE}
    if not isinstance(found, dict) or not found.keys() <= known:
        raise BadRequest(reason=f"a schedule is an object with the keys {', '.join(sorted(known))}")
    name = text(found, "name")
    given = {key: found[key] for key in _SCHEDULE if key in found}
    old = next((each for each in schedules.list() if each.name == name), None)
    if old is not None and old.by == FILE:
        raise BadRequest(reason=f"{name} stands in schedules.conf")
    said = {"queue": found.get("queue"), "when": found.get("when"), **given}
    same = old is not None and all(getattr(old, key) == value for key, value in said.items())
    if not same:
        schedules.define(name, text(found, "queue"), text(found, "when"), **given)
    if bool(found.get("paused")) != (old is not None and same and old.paused):
        (schedules.pause if found.get("paused") else schedules.resume)(name)
    return "the same" if same else "defined" if old is None else "altered"


async def export(request: web.Request) -> web.Response:
    """GET /api/v1/definitions."""
    console = console_of(request)
    return web.json_response(await console.run(exported, console.location))


async def take_in(request: web.Request) -> web.Response:
    """POST /api/v1/definitions."""
    console, caller = console_of(request), caller_of(request)
    async with sent(request) as data:
        found = object_of(data, "version", "queues", "schedules", "reason")
        reason = actions.reason_of(text(found, "reason"))
        if found.get("version") != VERSION:
            raise BadRequest(reason=f"version is {VERSION}")
        listed = {key: found.get(key, []) for key in ("queues", "schedules")}
        if not all(isinstance(each, list) for each in listed.values()) or sum(
                map(len, listed.values())) > DEFINITIONS_MAX:
            raise BadRequest(reason="queues and schedules are lists, of "
                             f"{DEFINITIONS_MAX} together at most")
        words = "take in definitions"
        try:
            told = await console.run(imported, console.location, caller, listed, reason)
        except OmqError as error:
            console.failed(caller, words, reason, str(error))
            raise
    done = sum(each["outcome"] in ("defined", "altered") for each in told)
    console.acted(caller, words, reason, done)
    return web.json_response({"changed": done, "definitions": told})
