"""Barriers: a message that is ready when all of the messages that it names are done
(core.engine.barriers).

Errors: MemberFailed, NotMember, TooManyMembers, BadArgument; those of put.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from omq.base.limits import MESSAGE_ID_BYTES
from omq.format.members import MEMBERS, members_text
from omq.format.message import ID_PREFIX
from omq.format.property_values import Value
from omq.format.wire import PutFlag
from omq.ipc.wire import arguments
from omq.ipc.wire.outgoing import Encoded, Outgoing

if TYPE_CHECKING:
    from omq.ipc.client.connection_parts import Wire

_ASKED_AT_ONCE: Final = 500  # ids of one question
_BARRIER: Final = int(PutFlag.BARRIER)


def barrier_message(queue: str, members: str, body: bytes, within_s: float | None,
                    properties: Mapping[str, Value] | None, priority: int | str | None,
                    message_id: bytes | str) -> Outgoing:
    """The message of a barrier. BadArgument."""
    delay_s = arguments.SECONDS_MAX if within_s is None else arguments.seconds(
        within_s, "within_s")
    if not delay_s:
        raise arguments.wrong("within_s", within_s, "it is more than 0")
    return Outgoing(
        body=body, queues=(arguments.queue(queue),), persistent=True, delay_s=delay_s,
        priority=None if priority is None else arguments.priority(priority),
        message_id=message_id, properties={**(properties or {}), MEMBERS: members})


def as_barrier(encoded: Encoded) -> Encoded:
    """The same, said to be one."""
    encoded.flags |= _BARRIER
    return encoded


class PutsBarriers:
    """What a connection does with barriers."""

    _wire: Wire

    def barrier(self, queue: str, members: Iterable[bytes | str], body: bytes = b"", *,
                within_s: float | None = None, properties: Mapping[str, Value] | None = None,
                priority: int | str | None = None, message_id: bytes | str = b"") -> str:
        """Put a message that waits on its queue until all of these messages are done; its id.

        `members`: ids, as `put` returned them, of persistent messages that you have put (the owner
        of the spool: that anybody has). One is done when a reader is done with it on all of its
        queues; what has ended before counts as done. When one fails too often, expires, is deleted
        or cancelled, or when all are not done `within_s` seconds, the barrier goes where its queue
        sends what fails too often, with the reason. One record of the journal, whatever the number
        of members, and exactly once over the end of programs and of the manager; to put members and
        barrier in one step: Unit.barrier.

        MemberFailed: one is on POISON or a dead-letter queue. NotMember: one cannot be waited for.
        TooManyMembers. What `put` raises."""
        said = _members(self._wire, members)
        message = barrier_message(queue, said, body, within_s, properties, priority, message_id)
        answer = self._wire.with_bodies(
            (message,), (), lambda new: self._wire.put_one(as_barrier(new[0]), queue))
        return self._wire.id_text(answer.qpool, message)


def _members(wire: Wire, members: Iterable[bytes | str]) -> str:
    """Their QPoolIds. The manager knows those of ids that programs gave; it is asked in any case,
    so that one that knows no barriers says so."""
    if isinstance(members, bytes | str):
        raise arguments.wrong("members", members, "they are ids, in a list")
    own = bytes.fromhex(wire.link.id_prefix)
    assert own[:4] == ID_PREFIX
    found, given, count = set[int](), list[str](), 0
    for each in members:
        raw = arguments.own_message_id(each).ljust(MESSAGE_ID_BYTES, b"\0")
        if not any(raw):
            raise arguments.wrong("members", each, "it is an id, as `put` returned it")
        count += 1
        if raw[: len(own)] == own:
            found.add(int.from_bytes(raw[len(own) :], "big"))
        else:
            given.append(raw.hex())
    if not count or 0 in found:
        raise arguments.wrong("members", count, "they are ids, as `put` returned them, one at "
                              "least")
    for at in range(0, max(1, len(given)), _ASKED_AT_ONCE):
        told = wire.control({"op": "members", "ids": given[at : at + _ASKED_AT_ONCE]})
        found |= set(map(int, told["qpools"]))
    return members_text(found)
