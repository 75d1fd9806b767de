"""The definitions of the instance as one file (omq.cli.operate.definition_set): exported, judged
and imported by the API and on a page, for the role admin.

An import is judged whole before anything of it happens; the page says first what it would change,
and carries the file on to the form that does it. Errors: RoleMissing, BadRequest,
DefinitionsRefused, DefinitionsStopped; those of the connection.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from typing import Any, Final

from aiohttp import web

from omq.base.errors import BadRequest, DefinitionsRefused, OmqError
from omq.cli.operate.change import connect
from omq.cli.operate.definition_plan import Plan, carry_out, plan, reload
from omq.cli.operate.definition_set import LISTS, counted, exported
from omq.cli.web import actions
from omq.cli.web.caller import Caller
from omq.cli.web.console import Console, caller_of, console_of
from omq.cli.web.gate import problem, status_of
from omq.cli.web.request_body import object_of, read_json, sent, text, truth
from omq.services.daemon.options import Location

WORDS: Final = "import definitions"
_pause: Final = threading.Event().wait
"""A signal comes to the main thread; it ends the whole."""


def all_of(location: Location) -> dict[str, Any]:
    """In a worker thread."""
    with connect(location, actions.NAME) as connection:
        return exported(location, connection)


def taken_in(location: Location, caller: Caller, found: object, reason: str, *, dry_run: bool
             ) -> Plan:
    """In a worker thread: what an import changes, or has changed."""
    caller.need("define")
    with connect(location, actions.NAME) as connection:
        made = plan(location, connection, found, actions.signed(caller, reason), _pause)
        if not dry_run:
            carry_out(connection, made, actions.command(caller, f"{WORDS}: {len(made.changes)}"),
                      reason)
            reload(location, made)
            if made.rights:  # of this process, too
                os.kill(os.getpid(), signal.SIGHUP)
    return made


async def _import(console: Console, caller: Caller, found: object, reason: str, *, dry_run: bool
                  ) -> Plan:
    try:
        made = await console.run(taken_in, console.location, caller, found, reason,
                                 dry_run=dry_run)
    except OmqError as error:
        if not dry_run:
            console.failed(caller, WORDS, reason, str(error))
        raise
    if not dry_run:
        console.acted(caller, WORDS, reason, len(made.changes))
    return made


async def export(request: web.Request) -> web.Response:
    """GET /api/v1/definitions."""
    console = console_of(request)
    return web.json_response(await console.run(all_of, console.location))


async def take_in(request: web.Request) -> web.Response:
    """POST /api/v1/definitions."""
    console, caller = console_of(request), caller_of(request)
    async with sent(request) as data:
        found = object_of(data, "version", "reason", "dry_run", *LISTS)
        reason, dry_run = text(found, "reason"), bool(truth(found, "dry_run"))
        if not dry_run:
            reason = actions.reason_of(reason)
        file = {key: found[key] for key in ("version", *LISTS) if key in found}
        try:
            made = await _import(console, caller, file, reason, dry_run=dry_run)
        except DefinitionsRefused as error:
            return problem(request, status_of(error), str(error), code=error,
                           more={"mistakes": list(error.mistakes)})
    return web.json_response({"changed": len(made.changes),
                              "definitions": [each.record for each in made.steps]})


# the page

async def page(request: web.Request) -> web.Response:
    """GET /definitions."""
    console = console_of(request)
    found = await console.run(all_of, console.location)
    return console.pages.answer(request, "definitions.html", counted=counted(found), made=None,
                                wrong=(), file="", done=False)


async def export_file(request: web.Request) -> web.Response:
    """GET /definitions/export: to be saved by the browser."""
    console = console_of(request)
    found = await console.run(all_of, console.location)
    name = f"omq-{console.pages.instance}-definitions.json"
    return web.Response(
        text=json.dumps(found, indent=1), content_type="application/json",
        headers={"Content-Disposition": f'attachment; filename="{name}"'})


async def import_file(request: web.Request) -> web.Response:
    """POST /definitions: without a reason it is judged, with one done."""
    console, caller = console_of(request), caller_of(request)
    form = await request.post()
    sent_file = form.get("file", "")
    if isinstance(sent_file, web.FileField):
        data = await console.run(sent_file.file.read)
    else:
        data = str(sent_file).encode()
    if not data:
        raise BadRequest(reason="choose a file that was exported")
    dry_run = form.get("do") != "import"
    reason = "" if dry_run else actions.reason_of(str(form.get("reason", "")))
    wrong: tuple[str, ...] = ()
    made = None
    try:
        made = await _import(console, caller, read_json(data), reason, dry_run=dry_run)
    except DefinitionsRefused as error:
        wrong = error.mistakes
    return console.pages.answer(
        request, "definitions.html", status=200 if made else 422, counted="", made=made,
        wrong=wrong, file=data.decode("utf-8", "replace") if made and dry_run else "",
        done=made is not None and not dry_run)
