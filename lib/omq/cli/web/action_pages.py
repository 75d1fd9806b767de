"""Pages that do something: a plan first, with its count, then the order with its reason, then
undo."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from aiohttp import web

from omq.base.config import client_settings
from omq.base.errors import BadRequest, NothingMeant, OmqError
from omq.base.names import IDEL_NAME, check_queue_name, escape
from omq.cli.operate.change_plan import Change, Doing, counted, target
from omq.cli.web import actions
from omq.cli.web.action_plans import Plan, Plans
from omq.cli.web.console import caller_of, console_of
from omq.ipc.client.operator import Report
from omq.ipc.wire.outgoing import Outgoing

PLANS: Final = web.AppKey("plans", Plans)
_IDS_MAX: Final = 10_000
_SHOWN: Final = 20
_SHOWN_LETTERS: Final = 100
DOABLE: Final = {each.value: each for each in Doing if each is not Doing.COPY}


def change_of(form: dict[str, str]) -> Change:
    """What a form asks for. BadRequest."""
    doing = DOABLE.get(form.get("doing", ""))
    if doing is None:
        raise BadRequest(reason=f"what is to be done is one of {', '.join(DOABLE)}")
    goal = form.get("to", "").strip().upper()
    targets = (check_queue_name(goal),) if goal and doing is Doing.MOVE else ()
    return Change(doing, targets, force=form.get("force") == "yes")


async def make_plan(request: web.Request) -> web.Response:
    """POST /plan: which messages are meant, and what would be done to them. Nothing is done."""
    console, caller = console_of(request), caller_of(request)
    form = await request.post()
    fields = {name: value for name, value in form.items() if isinstance(value, str)}
    queue, change = fields.get("queue", ""), change_of(fields)
    ids = [text for text in form.getall("id", []) if isinstance(text, str)]
    where, words = fields.get("where", "").strip(), ""
    if ids:
        if len(ids) > _IDS_MAX or not all(each.isdecimal() for each in ids):
            raise BadRequest(reason="the messages chosen are no QPoolIds")
        where = f"id={','.join(ids)}"
        words = f"{counted(len(ids))} chosen by hand on {queue}"
    elif where:
        words = f"{where} on {queue}"
    elif fields.get("all") == "yes":
        words = f"all on {queue}"
    else:
        raise NothingMeant(action=change.text())
    rows = await console.run(actions.meant, console.location, caller, queue, change, where,
                             console.settings.web_plan_messages_max)
    name = request.app[PLANS].add(caller.name, change, queue, words, [target(row) for row in rows])
    undo_s = client_settings(console.location.conf_dir).operator_undo_s
    return console.pages.answer(
        request, "plan.html", plan=name, change=change, queue=queue, words=words, undo_s=undo_s,
        count=len(rows), rows=rows[:_SHOWN],
        states=Counter(row.state.name.lower() for row in rows).most_common())


async def carry_out(request: web.Request) -> web.Response:
    """POST /plan/NAME: do it, and say what came of it."""
    console, caller = console_of(request), caller_of(request)
    form = await request.post()
    reason = actions.reason_of(str(form.get("reason", "")))
    plan = request.app[PLANS].take(request.match_info["plan"], caller.name)
    if plan is None:
        raise BadRequest(reason="there is no such plan (any more): choose the messages again")
    for queue in {queue for _, queue, _ in plan.items}:
        actions.may_change(caller, queue, plan.change)  # the right may have gone meanwhile
    report = await ordered(request, plan, reason)
    undo = ""
    if plan.change.doing is Doing.DELETE and report.done:
        undo = request.app[PLANS].add(caller.name, Change(Doing.RESTORE), IDEL_NAME,
                                      f"what was deleted from {plan.queue}",
                                      [(qpool, plan.queue, 0) for qpool in report.done])
    return console.pages.answer(
        request, "done.html", plan=plan, report=report, undo=undo,
        refusals=report.refused[:_SHOWN], count=len(plan.items))


async def ordered(request: web.Request, plan: Plan, reason: str) -> Report:
    """The order, logged with its outcome."""
    console, caller = console_of(request), caller_of(request)
    what = f"{plan.change.text()}: {plan.words}"
    try:
        report = await console.run(actions.carry_out, console.location, caller, plan.change,
                                   plan.items, f"({plan.words})", reason)
    except OmqError as error:
        console.failed(caller, what, reason, str(error))
        raise
    console.acted(caller, what, reason, len(report.done))
    return report


async def undo(request: web.Request) -> web.Response:
    """POST /undo/NAME: what was deleted is back, while IDEL has it."""
    console, caller = console_of(request), caller_of(request)
    plan = request.app[PLANS].take(request.match_info["plan"], caller.name)
    if plan is None:
        raise BadRequest(reason=f"the page is too old: restore the messages from {IDEL_NAME}")
    items = await console.run(actions.restorable, console.location,
                              [qpool for qpool, _, _ in plan.items])
    for queue in {queue for _, queue, _ in items}:
        caller.need_on("admin", queue)
    if not items:
        raise BadRequest(reason=f"none of them is on {IDEL_NAME} any more: idel.server has deleted "
                         "them, for their time was over, or somebody has restored them")
    new = Plan(caller.name, plan.change, IDEL_NAME, plan.words, tuple(items), plan.made_s)
    report = await ordered(request, new, "undo in the console")
    return console.pages.answer(request, "done.html", plan=new, report=report, undo="",
                                refusals=report.refused[:_SHOWN], count=len(new.items))


def written(form: Mapping[str, object]) -> Outgoing:
    """A message as the form of a queue says it. BadRequest, BadPriority, BadProperty."""
    said = {name: str(form.get(name, "")) for name in ("body", "priority", "properties")}
    properties: dict[str, str] = {}
    for line in said["properties"].splitlines():
        name, equals, value = line.partition("=")
        name = name.strip()
        if not line.strip():
            continue
        if not equals or not name or name in properties:
            raise BadRequest(reason="the properties are lines NAME=VALUE, each name once; this is "
                             f"none: {escape(line, _SHOWN_LETTERS)}")
        properties[name] = value
    priority = said["priority"].strip()
    if priority and not (priority.isascii() and priority.isdecimal() and len(priority) == 1):
        raise BadRequest(reason="the priority is 0 to 9, or empty")
    body = said["body"].replace("\r\n", "\n").encode()  # a browser sends lines as mail has them
    return Outgoing(body, properties=properties, priority=int(priority) if priority else None)


async def put(request: web.Request) -> web.StreamResponse:
    """POST /queues/NAME/put: a message, written by hand. The answer leads away from the form, so
    that loading the page once more puts no second one."""
    console, caller = console_of(request), caller_of(request)
    name, form = request.match_info["queue"], await request.post()
    reason = actions.reason_of(str(form.get("reason", "")))
    message, what = written(form), f"put on {name}"
    try:
        number = await console.run(actions.put, console.location, caller, name, message, reason)
    except OmqError as error:
        console.failed(caller, what, reason, str(error))
        raise
    console.acted(caller, what, reason, 1)
    goes_to = f"/messages/{number}" if caller.may("browse", name) else f"/queues/{name}"
    return web.Response(status=303, headers={"Location": goes_to})


async def inhibit(request: web.Request) -> web.StreamResponse:
    """POST /queues/NAME/inhibit: hold or release a queue, for getters or putters."""
    console, caller = console_of(request), caller_of(request)
    name, form = request.match_info["queue"], await request.post()
    reason = actions.reason_of(str(form.get("reason", "")))
    wanted = str(form.get("what", ""))
    choices = {"hold": {"get": False}, "release": {"get": True}, "close": {"put": False},
               "open": {"put": True}}
    if wanted not in choices:
        raise BadRequest(reason=f"what is one of {', '.join(choices)}")
    try:
        await console.run(actions.inhibit, console.location, caller, name, reason,
                          get=choices[wanted].get("get"), put=choices[wanted].get("put"))
    except OmqError as error:
        console.failed(caller, f"{wanted} {name}", reason, str(error))
        raise
    console.acted(caller, f"{wanted} {name}", reason, 1)
    return web.Response(status=303, headers={"Location": f"/queues/{name}"})
