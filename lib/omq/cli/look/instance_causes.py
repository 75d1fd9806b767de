"""What keeps a whole instance, or one of its services, from working."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from omq.base import clock
from omq.base.amounts import counted, duration
from omq.base.config import load_authority, load_queues, load_settings
from omq.base.errors import ConfigError
from omq.base.names import escape
from omq.base.services_conf import ServiceKind, load_services
from omq.cli import role
from omq.cli.look.cause import Cause, Severity
from omq.cli.look.gateways import Gateway
from omq.cli.look.service_status import Status, Word, should_run
from omq.core.look.look import Look, Origin
from omq.core.look.space import UNKNOWN
from omq.services.daemon.options import Location
from omq.services.ship import shown
from omq.storage.instance_file import Role

MANAGER: Final = frozenset(("no_manager", "not_primary", "manager_stopped", "hung"))
"""Codes of causes by which nothing moves at all."""
INODES_PERCENT: Final = 2
"""Fewer free than this share is few: each message of some size needs one, and its removal none."""
_WHAT_TAKES_INODES: Final = "df -i {root}; du --inodes -s {root}/* shows what takes them"
_TOMBSTONE_BYTES: Final = 4096
_REPAIR: Final = "omqrecover plan"
"""In the last word of a manager that refused its spool (NeedsRepair)."""


def of_instance(location: Location, seen: Look | None, services: Sequence[Status],
                gateways: Sequence[Gateway], wrong: str, absent: str) -> Iterator[Cause]:
    """See the module; the arguments are those of finding_causes.find."""
    yield from of_manager(location, seen, services, absent)
    yield from _configuration(wrong)
    if _not_primary(location) is not None:  # its services are not to run either
        return
    yield from _room(location, seen)
    if seen is not None and (count := seen.view.counters()["units_in_doubt"]):
        yield Cause("units_in_doubt", f"{counted(count, 'unit')} of work "
                    f"{'is' if count == 1 else 'are'} in doubt: prepared, and not decided "
                    f"{'it ends' if count == 1 else 'they end'}",
                    ("omq units lists them; --commit UNIT or --backout UNIT",))
    yield from _of_shipping(location)
    yield from _of_services(_queues(location, seen), services, gateways)


def _not_primary(location: Location) -> Cause | None:
    member = role.member(location.paths)
    if member is None or member.role is Role.PRIMARY:
        return None
    return Cause("not_primary", f"this is a {member.role.words} of its instance, where no queue "
                 "manager starts: nothing moves here",
                 (f"look at the primary: {escape(member.primary, 200) or 'not known here'}",
                  "omq standby status shows how far this one is"), Severity.NOTE)


def of_services(location: Location, services: Sequence[Status], gateways: Sequence[Gateway],
                wrong: str) -> Iterator[Cause]:
    """What those see who may not look at the index."""
    yield from _configuration(wrong)
    yield from _of_services(_queues(location, None), services, gateways)


def _configuration(wrong: str) -> Iterator[Cause]:
    if wrong:
        yield Cause("configuration", f"the configuration cannot be read: {wrong}",
                    ("omq conf names file and line; a daemon goes on with what it has read, and "
                     "the next start refuses it",), Severity.CRITICAL)


def _of_shipping(location: Location) -> Iterator[Cause]:
    state = shown.watched(location.paths, location.conf_dir)
    if state is not None and state.trouble:
        yield Cause("not_shipped", f"the journal is not shipped as it should be: "
                    f"{escape(state.trouble)}", ("omq ship status shows how far it is",))


def _of_services(queues: frozenset[str], services: Sequence[Status],
                 gateways: Sequence[Gateway]) -> Iterator[Cause]:
    for status in services:
        yield from _of_service(status, queues)
    for gateway in gateways:
        yield from _of_gateway(gateway)


def of_manager(location: Location, seen: Look | None, services: Sequence[Status], absent: str
               ) -> Iterator[Cause]:
    """It is dead, or does not move."""
    if (other := _not_primary(location)) is not None:
        yield other
        return
    if seen is None or seen.origin in (Origin.LEFT_OVER, Origin.FILES):
        why = "" if seen is not None else f" ({absent})" if absent else ""
        told = _last_words(location, seen)
        status = next((each for each in services if each.conf.kind is ServiceKind.MANAGER), None)
        if status is not None and status.text and status.state is not Word.STARTED:
            told += f"; its last word: {escape(status.text)}"
        if seen is None and status is not None and status.state is Word.STARTED:
            yield Cause("no_manager", f"the queue manager (process {status.pid}) runs, and its "
                        f"index cannot be read{why}", ("omshowlog -l 5; omshut and omrc start "
                                                            "it anew",), Severity.CRITICAL)
            return
        start = "omrc starts it (systemctl start omq.target where systemd runs the instance)"
        if status is not None and _REPAIR in status.text:
            start = f"{_REPAIR} {location.paths.root} says what the start refuses, and what to do"
        yield Cause("no_manager", f"the queue manager does not run: nothing moves{why}{told}",
                    (start, "omshowlog -l 5 shows why it ended"), Severity.CRITICAL)
    elif seen.origin is Origin.HUNG and seen.view.header is not None:
        pid = seen.view.header.pid
        if clock.process_state(pid) in clock.STOPPED:
            yield Cause("manager_stopped", f"the queue manager (pid {pid}) is stopped by a signal: "
                        "nothing moves", (f"kill -CONT {pid} lets it go on",), Severity.CRITICAL)
        else:
            yield Cause("hung", f"{seen.note.partition(';')[0]}: nothing moves",
                        (f"kill -ABRT {pid} ends it with its stack and a tombstone in logs/; its "
                         "supervisor starts the next one",), Severity.CRITICAL)


def _last_words(location: Location, seen: Look | None) -> str:
    """The cause that the tombstone has, if it is this manager's."""
    header = None if seen is None else seen.view.header
    with suppress(OSError), location.paths.tombstone.open("rb") as file:
        lines = file.read(_TOMBSTONE_BYTES).decode("utf-8", "replace").splitlines()
        if len(lines) > 1 and lines[1].startswith("Cause: ") and (
                header is None or lines[0].endswith(f", pid {header.pid}")):
            return f"; its tombstone: {escape(lines[1])}"
    return ""


def wrong_configuration(location: Location) -> str:
    """What keeps a file from being read; empty: nothing does."""
    try:
        load_settings(location.conf_dir)
        load_queues(location.conf_dir)
        load_services(location.conf_dir)
        with suppress(OSError):
            load_authority(location.conf_dir, owner_uid=os.stat(location.paths.root).st_uid)
    except ConfigError as error:
        return str(error)
    return ""


def _room(location: Location, seen: Look | None) -> Iterator[Cause]:
    root, space = location.paths.root, UNKNOWN if seen is None else seen.space
    if space.lacks_inodes:
        yield Cause("inodes", space.disk_note, (_WHAT_TAKES_INODES.format(root=root),),
                    Severity.CRITICAL)
    elif space.low:
        yield Cause("disk", space.disk_note,
                    (f"df -h {root}; du -sh {root}/* shows what fills the spool",),
                    Severity.CRITICAL)
    if space.index_low:
        yield Cause("index", space.index_note,
                    ("omqshape shows which queue has them; messages_max of omq.conf",),
                    Severity.CRITICAL)
    if space.lacks_inodes:
        return
    with suppress(OSError):
        found = os.statvfs(root)
        if found.f_files and found.f_favail * 100 < found.f_files * INODES_PERCENT:
            yield Cause("inodes", f"{counted(found.f_favail, 'inode')} of {found.f_files:,} are "
                        "free on the file system of the spool: soon no files can be created",
                        (_WHAT_TAKES_INODES.format(root=root),),
                        Severity.CRITICAL)


def _queues(location: Location, seen: Look | None) -> frozenset[str]:
    """The queues that there are; empty: not known."""
    if seen is not None and seen.origin is Origin.LIVING:
        return frozenset(row.name for row in seen.view.queues())
    with suppress(ConfigError):
        return frozenset(load_queues(location.conf_dir))
    return frozenset()


def _of_service(status: Status, queues: frozenset[str]) -> Iterator[Cause]:
    conf = status.conf
    title = f"{conf.title} (service {conf.name})"
    if conf.enabled and not status.turned_off and conf.queue and queues and (
            conf.queue not in queues):
        yield queue_missing(conf.queue, conf.name)
        return
    if conf.kind is ServiceKind.MANAGER:
        return  # of_manager has it
    if status.state is Word.SUSPENDED or status.stopped_pids:
        for pid in status.stopped_pids or (status.pid,):
            yield Cause("service_stopped", f"process {pid} of {title} is stopped by a signal",
                        (f"kill -CONT {pid} lets it go on",), service=conf.name)
    elif should_run(status) and status.state is not Word.STARTED:
        off = status.state in (Word.STARTING, Word.STOPPING)
        said = f": {escape(status.text)}" if status.text else ""
        state = "not restarted" if status.given_up and status.text else status.state
        yield Cause("service_down", f"{title} is {state}{said}",
                    () if off else (f"omon {conf.name}",
                                    f"omshowlog -s {conf.program} shows why"),
                    Severity.NOTE if off else Severity.WARNING, service=conf.name)
    elif should_run(status) and status.auxiliaries_running < status.auxiliaries:
        yield Cause("auxiliaries_down", f"{status.auxiliaries_running} of "
                    f"{counted(status.auxiliaries, 'auxiliary reader')} of {title} run",
                    (f"omshowlog -s {conf.program} shows why",), service=conf.name)


def queue_missing(queue: str, service: str) -> Cause:
    """A service reads a queue that nobody has defined."""
    return Cause("queue_missing", f"queue {queue}, which service {service} reads, is not defined",
                 (f"[{queue}] in queues.conf and a reload of the queue manager (kill -HUP, "
                  f"systemctl reload), or omq queue define {queue}",
                  f"enabled = no in [{service}] of services.conf if it is not meant to run"),
                 service=service)


def _of_gateway(gateway: Gateway) -> Iterator[Cause]:
    name = gateway.conf.name
    if gateway.down:
        first = escape(gateway.down[0])
        more = f" and {len(gateway.down) - 1} more" if len(gateway.down) > 1 else ""
        next_s = duration(gateway.next_try_s or 0.0)
        yield Cause("peer_down", f"peer {first}{more} of {gateway.conf.title} cannot be reached; "
                    f"the next try is in {next_s}",
                    ("omq peers shows why", f"omq peers --retry {first} tries it now"),
                    Severity.NOTE, service=name)
    if gateway.held:
        first = escape(gateway.held[0])
        more = f" and {len(gateway.held) - 1} more" if len(gateway.held) > 1 else ""
        yield Cause("peer_held", f"an operator holds {first}{more} of {gateway.conf.title}",
                    (f"omq peers --release {first}",), Severity.NOTE, service=name)
    if gateway.holds_unknown:
        yield Cause("holds_unknown", f"{gateway.conf.title} sends nothing: whom an operator holds "
                    f"is not known ({gateway.holds_unknown})",
                    ("omq peers says which file it is, and what to do",),
                    service=name)
