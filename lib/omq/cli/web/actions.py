"""What the console does: the orders of the tools, by the same path, in the name of its user.

omq-web runs as the owner of the spool, so the queue manager lets it do everything; whether its user
may, is asked here, before anything is sent, by the rules that the manager has for local users
(caller.py). What is journaled is the command, which begins `omq-web USER:`, and the reason; the
event log has it too (OM 1578, 1579).

Invariants: 1. nothing is ordered before it was asked whether the caller may; 2. an order is logged
with its outcome, done or not; 3. there is none without a reason. For worker threads.

Errors: RoleMissing, NoAuthority, BadRequest, NothingMeant, those of cli.operate.change.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Final

from omq.base.config import load_queues
from omq.base.errors import BadRequest, NothingMeant
from omq.base.names import IDEL_NAME, POISON_NAME, check_queue_name, escape
from omq.cli.operate import change as changes
from omq.cli.operate.change_plan import Change, Doing, Target, counted, target
from omq.cli.operate.command_notes import note_command
from omq.cli.operate.deleted_messages import deleted
from omq.cli.operate.omoff import mark_off
from omq.cli.operate.order_command import MAY
from omq.cli.operate.queue_hold import alter_file, set_queue
from omq.cli.operate.service_control import check_queue, control, starting, stopping
from omq.cli.operate.service_control import chosen as known
from omq.cli.web.caller import Caller
from omq.cli.web.reading import chosen
from omq.core.index.rows import EntryRow
from omq.core.look.look import Source, look
from omq.format.definition import Kind
from omq.ipc.client.connection import Client
from omq.ipc.client.operator import Operator, Report
from omq.ipc.wire.outgoing import Outgoing
from omq.services.daemon.options import Location

NAME: Final = "omq-web"
REASON_MAX: Final = 400
_COMMAND_MAX: Final = 300
_pause: Final = threading.Event().wait
"""A signal comes to the main thread; it ends the whole."""


def command(caller: Caller, words: str) -> str:
    """What the journal keeps: who, and what."""
    return escape(f"{NAME} {caller.who}: {words}", _COMMAND_MAX)


def reason_of(text: str) -> str:
    """A reason, which there must be. BadRequest."""
    found = " ".join(text.split())
    if not found:
        raise BadRequest(reason="say why: the reason is kept in the journal")
    return escape(found, REASON_MAX)


def may_change(caller: Caller, queue: str, change: Change) -> None:
    """NoAuthority, RoleMissing, BadRequest."""
    for each in (queue, *change.targets):
        check_queue_name(each)
    caller.need_on("admin", queue)
    caller.need_on("put", *change.targets)
    if change.doing is Doing.MOVE and not change.targets and queue != POISON_NAME:
        raise BadRequest(reason="only from POISON a message goes back to where it failed: say a "
                         "queue")


def stands_for(connection: Client, name: str) -> tuple[tuple[str, ...], str | tuple[str, ...]]:
    """What a name stands for: (the queues on which rights are asked, what is put to). Rights are
    those on the queues that hold it, not on the name, which may be an alias; of a temporary queue
    those on its model (ADR 0050). UnknownQueue."""
    connection.forget()
    found = connection.resolved(check_queue_name(name))
    rights = []
    for each in found:
        info = connection.queues.show(each)
        temporary = info.kind == Kind.TEMPORARY.value
        rights.append(info.keys["model"] if temporary else info.name)
    return tuple(rights), name if connection.is_remote(name) else found


def meant(location: Location, caller: Caller, queue: str, change: Change, where: str,
          limit: int) -> list[EntryRow]:
    """The messages that a change would be done to. NothingMeant."""
    may_change(caller, queue, change)
    rows = chosen(location, queue, where, limit).rows
    if change.doing is Doing.RESTORE:
        with look(location.paths, Source.SEGMENT) as seen:
            rows = list(deleted(rows, seen.view.queue_names()))
    elif queue == IDEL_NAME:
        raise BadRequest(reason=f"what is on {IDEL_NAME} can be restored alone")
    may = MAY.get(change.doing)
    found = [row for row in rows if may is None or may(row)]
    for each in {row.queue for row in found}:  # of deleted ones: where they were
        caller.need_on("admin", each)
    if not found:
        raise NothingMeant(action=change.text())
    return found


def carry_out(location: Location, caller: Caller, change: Change, items: Sequence[Target],
              words: str, reason: str) -> Report:
    """Order it; the report says what was done and what the queue manager left."""
    return changes.carry_out(location, command(caller, f"{change.text()} {words}".strip()), change,
                             items, reason)


def restorable(location: Location, qpools: Sequence[int]) -> list[Target]:
    """Of messages that were deleted those that can be brought back."""
    wanted = set(qpools)
    with look(location.paths, Source.SEGMENT) as seen:
        rows = (row for row in seen.view.entries(IDEL_NAME) if row.message.qpool in wanted)
        return [target(row) for row in deleted(rows, seen.view.queue_names())]


def put(location: Location, caller: Caller, queue: str, message: Outgoing, reason: str) -> str:
    """One message, by hand; its id. The note in the journal comes first, so a kill between the two
    leaves an order of which nothing came, and never a message of nobody."""
    caller.need("operate")
    check_queue_name(queue)
    with changes.connect(location, NAME) as connection:
        rights, goal = stands_for(connection, queue)
        caller.need_on("put", *rights)
        Operator(connection, command(caller, f"put {counted(1)} on {queue}")).note(
            (queue,), 1, reason=reason)
        return str(connection.put(goal, outgoing=message))


def inhibit(location: Location, caller: Caller, queue: str, reason: str, *, get: bool | None = None,
            put: bool | None = None) -> None:
    """Hold or release a queue, for getters, putters or both; True: allowed, None: as it is."""
    caller.need_on("admin", check_queue_name(queue))
    words = " ".join(f"{key} {'allowed' if value else 'inhibited'}"
                     for key, value in (("get", get), ("put", put)) if value is not None)
    set_queue(NAME, location, queue, reason, get=get, put=put, words=command(
        caller, f"{queue}: {words}"), pause=_pause)


def define(location: Location, caller: Caller, queue: str, kind: str, keys: Mapping[str, str],
           reason: str) -> None:
    """A new queue."""
    caller.need("define")
    with changes.connect(location, NAME) as connection:
        connection.queues.define_by(check_queue_name(queue), kind, keys,
                                    reason=signed(caller, reason))


def alter(location: Location, caller: Caller, queue: str, keys: Mapping[str, str | None],
          reason: str) -> None:
    """Other keys; of a queue of queues.conf in that file."""
    caller.need("define")
    if queue in load_queues(location.conf_dir):
        alter_file(location, queue, {key: value or "" for key, value in keys.items()},
                   signed(caller, reason), pause=_pause)
        return
    with changes.connect(location, NAME) as connection:
        connection.queues.alter_by(check_queue_name(queue), keys,
                                   reason=signed(caller, reason))


def remove(location: Location, caller: Caller, queue: str, reason: str) -> None:
    """An empty queue goes."""
    caller.need("define")
    with changes.connect(location, NAME) as connection:
        connection.queues.delete(check_queue_name(queue), reason=signed(caller, reason))


def turn(location: Location, caller: Caller, service: str, reason: str, *, on: bool) -> None:
    """A service on or off, by whoever runs the instance."""
    caller.need("define")
    instance = control(location)
    choose = starting if on else stopping
    for conf in choose(known(location, [service])):
        if not on:
            instance.off(conf)
            mark_off(location, conf.name)
        elif conf.enabled:
            check_queue(location, conf)
            instance.on(conf)
        else:
            raise BadRequest(reason=f"{conf.name} is not enabled in services.conf")
    note_command(location, command(caller, f"turn {'on' if on else 'off'} {service}"), reason, 1)


def end_unit(location: Location, caller: Caller, unit: str, reason: str, *, commit: bool
             ) -> Mapping[str, object]:
    """A unit of work in doubt; it may be on any queue, so it needs all rights."""
    caller.need("define")
    words = f"{'commit' if commit else 'back out'} unit {unit}"
    with changes.connect(location, NAME) as connection:
        return Operator(connection, command(caller, words)).end_unit(
            unit, commit=commit, reason=reason)


def signed(caller: Caller, reason: str) -> str:
    """Where the command is the queue manager's own words, the reason says whose it was."""
    return escape(f"{reason} [{NAME} {caller.who}]", REASON_MAX + 100)
