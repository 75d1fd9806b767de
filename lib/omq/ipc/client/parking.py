"""A request for messages whose reply nobody waits for in semop(2): it is sent, and finished when
the manager rings (ipc.server.bell). So one thread looks after any number of readers. parked_puts
does the same for puts.

    parking.wanted(connection)                 # False: an older manager, which has no bells
    reader = connection.reader("ORDERS")
    descriptor = parking.begin(reader, 100)    # sends what is recorded, asks for up to 100
    ... the descriptor can be read ...
    messages = parking.finish(reader)          # None: not yet; wait again, for what `begin` returns
    messages = parking.finish(reader, now=True)  # what is there by now, perhaps nothing

Between `begin` and `finish` nothing else may be asked over the connection (ConnectionBusy), and
nothing settled. A manager that goes away lets the descriptor be read; `finish` then registers with
the next one, which may take as long as the connection waits for it, and sends the request again.

Errors of both: those of Reader.next; ManagerUnavailable: the manager that came back has no bells.
"""

from __future__ import annotations

from typing import Final

from omq.base.errors import BodyDamaged, ReaderClosed
from omq.fast.handed_messages import Extent
from omq.format.message import replies_of
from omq.format.wire import SETTLE, GivenFlag
from omq.ipc.client.connection import Client
from omq.ipc.client.message import Message
from omq.ipc.client.reader import Reader
from omq.ipc.wire.exchange import Answer

_CONTAINER: Final = int(GivenFlag.CONTAINER)
_CARRIED_MAX: Final = 64  # settlements; the note has room for many more


def wanted(connection: Client) -> bool:
    """Before its reader is made: requests for messages are to be parked. Whether they can be."""
    link = connection._wire.link
    link.reader.bell = link.bells
    return link.bells


def hear(reader: Reader) -> None:
    """Between two requests, now and then: bells that nobody waits for take room."""
    reader._link.hear()


def begin(reader: Reader, want: int) -> int:
    """See the module: the descriptor to wait for; -1: call `finish` at once. It does not wait
    itself, if `carries` says so."""
    if reader.closed:
        raise ReaderClosed(queue=reader.queue)
    reader._park(want)
    link = reader._link
    return link.descriptor if link.on_its_way else -1


def carries(reader: Reader, settlements: int) -> bool:
    """Whether so many more settlements without a reason travel with the next request: all that is
    recorded is little enough for it and for the note."""
    count = len(reader._records) + settlements
    return (count <= _CARRIED_MAX and count * SETTLE.size <= reader._link.room
            and not reader._text_bytes)


def at_once(reader: Reader) -> list[Message] | None:
    """As `finish`, and does not wait for anything. None: `finish` may have them, or meets what has
    happened."""
    answer = reader._link.at_once()
    if answer is None:
        return None
    reader._answered(answer, told=reader._told)
    return _found(reader, answer)


def at_hand(reader: Reader, message: Message, bytes_max: int) -> bool:
    """Whether all of the message can be had without a wait: it is no larger, its payload is in
    memory and right, and nothing of it has to be asked of the manager."""
    if message.noted or message._flags & _CONTAINER or message._length > bytes_max:
        return False
    if message._extent is None and reader._link.trusted:
        start, length = message._offset, message._length
        raw = reader._wire.bodies.files.read_now(message._word, start, length)
        if raw is not None:
            message._extent = Extent(None, 0, start, start + length, raw)
    if message._extent is None:
        return False
    try:
        return not replies_of(message._load())
    except BodyDamaged:  # whoever may wait reads it again, and says so
        message._extent = None
        return False


def descriptor(reader: Reader) -> int:
    """As `begin` has returned it; another one after `finish` has registered anew."""
    return reader._link.descriptor


def rings_within(reader: Reader, wait_ms: int) -> bool:
    """Whether `finish` has something to do within so many milliseconds, for which this waits."""
    return reader._link.rings_within(wait_ms)


def finish(reader: Reader, *, now: bool = False) -> list[Message] | None:
    """See the module. What was to wake it is met with that."""
    answer = reader._collected(now=now)
    return None if answer is None else _found(reader, answer)


def _found(reader: Reader, answer: Answer) -> list[Message]:
    link = reader._link
    found = ([] if answer.recovered  # then settlements were carried out, what was given is free
             else reader._listed(reader._rows.take(link.reply, answer.count, link.trusted)))
    reader._waited()
    return found
