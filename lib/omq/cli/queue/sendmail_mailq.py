"""`mailq`, `sendmail -bp`: the mail of this host that is not delivered, as other sendmail programs
print it: what is in the maildrop, then what is on the queues of mail.

Reading senders and recipients takes the right to browse these queues, and the owner or root for the
maildrop.

Errors: those of the client library (ManagerUnavailable after the maildrop was printed).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import omq
from omq.base import access, names
from omq.base.clock import NS_PER_S
from omq.base.config import load_queues
from omq.base.errors import DropDamaged, OmqError
from omq.base.limits import KIB
from omq.format.index import EntryState
from omq.services.daemon.options import Location
from omq.services.mail import mail_message as mail
from omq.services.mail.drop_file import NAME as FILE_NAME
from omq.services.mail.drop_file import decode
from omq.services.mail.routes_file import load_routes
from omq.storage import durable
from omq.storage.files import read_file

_MAIL_QUEUES: Final = (names.ROUTER, names.LOCAL, names.UNIX, names.ERRMGR, names.ERROR,
                       names.DEFER)
_HEAD: Final = "-Queue ID-" + "-" * 39 + " --Size-- ----Arrival Time---- -Sender/Recipient-------"
_STATES: Final = {EntryState.ACTIVE: "*", EntryState.HELD: "!"}


@dataclass(frozen=True, slots=True)
class Row:
    """One mail on one queue; `why`: a line of its own, empty for none."""

    mail_id: str
    mark: str  # as Postfix has it: * active, ! held
    size: int
    arrival_ns: int
    sender: str
    recipients: tuple[str, ...]
    why: str


def print_queue(location: Location, body_bytes_max: int) -> int:
    """The list; the exit code."""
    count = size = 0
    failure: OmqError | None = None
    for source in (_dropped(location, body_bytes_max), _queued(location)):
        try:
            for row in source:
                if not count:
                    sys.stdout.write(_HEAD + "\n")
                sys.stdout.write(_shown(row))
                count, size = count + 1, size + row.size
        except OmqError as error:
            failure = error
    if count:
        sys.stdout.write(f"-- {-(-size // KIB)} Kbytes in {count} Request{'s' * (count != 1)}.\n")
    elif failure is None:
        sys.stdout.write("Mail queue is empty\n")
    if failure is not None:
        sys.stdout.flush()
        raise failure
    return 0


def _shown(row: Row) -> str:
    when = time.strftime("%a %b %e %H:%M:%S", time.localtime(row.arrival_ns // NS_PER_S))
    sender = row.sender or "MAILER-DAEMON"
    first = f"{row.mail_id}{row.mark or ' '}{row.size:8} {when:>19}  {sender}\n"
    why = f"{' ' * 10}({row.why})\n" if row.why else ""
    return first + why + "".join(f"{' ' * 79}{each}\n" for each in row.recipients) + "\n"


def _dropped(location: Location, body_bytes_max: int) -> Iterator[Row]:
    folder = location.paths.maildrop
    try:
        there = durable.list_directory(folder)
    except PermissionError as error:
        raise access.denied(folder, error) from error
    for name in there:
        if FILE_NAME.fullmatch(name) is None:
            continue
        try:
            found = decode(read_file(folder / name, 2 * body_bytes_max), name)
        except (FileNotFoundError, DropDamaged):
            continue  # carried meanwhile; mail.drop tells of a damaged one
        yield Row(found.mail_id, "", len(found.body), found.arrival_ns,
                  found.properties.get(mail.FROM, ""),
                  mail.lines(found.properties.get(mail.TO, "")), "in the maildrop")


def _queued(location: Location) -> Iterator[Row]:
    with omq.connect(spool=location.paths.root, name="mailq", timeout_s=5.0) as connection:
        for queue in _queues(location):
            for each in connection.browse(queue):
                properties = each.properties
                if mail.FROM not in properties:
                    continue  # no mail: a program's own message
                to = (mail.lines(properties.get(mail.original_name(queue), ""))
                      or mail.lines(properties.get(mail.to_name(queue), ""))
                      or mail.lines(properties.get(mail.TO, "")))
                arrival = properties.get(mail.ARRIVAL, "")
                yield Row(properties.get(mail.ID, each.message_id), _STATES.get(each.state, ""),
                          each.size, int(arrival) if arrival.isdigit() else each.put_time_ns,
                          properties.get(mail.FROM, ""), to, _why(queue, each.state, each.due_ns))


def _queues(location: Location) -> list[str]:
    """Where mail can be: the queues of the services, those of [queues], and POISON."""
    there = set(load_queues(location.conf_dir))
    routed = load_routes(location.conf_dir).queues.values()
    wanted = dict.fromkeys((*_MAIL_QUEUES, "XPORT", *routed))
    return [*(each for each in wanted if each in there), names.POISON_NAME]


def _why(queue: str, state: EntryState, due_ns: int) -> str:
    if state is EntryState.DEFERRED:
        when = time.strftime("%H:%M:%S", time.localtime(due_ns // NS_PER_S))
        return f"on {queue}, deferred, next try at {when}; omqwhy tells why"
    return f"on {queue}, {state.name.lower()}"
