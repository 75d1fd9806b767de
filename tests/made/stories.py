"""Messages of every kind there is, a story each, with what the tables must say of it in the end:
what `generate` adds to its plain traffic.

A story is a function in STORIES that tells a message's frames one after the other; its row says how
the message ends and which stays it has. A new kind of frame, flag or reason is one more row.
Stories happen on queues of their own, each with a producer of its own, and leave nothing for the
audit to find.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from omq.base.clock import NS_PER_S as NS
from omq.format.frame_rules import Reason
from omq.format.journal import FrameFlag, FrameType
from tests.made.story import DEAD, LATE, POISON, SIDE, WORK, Book, Story

QUEUES: Final = {SIDE: "SIDE", WORK: "WORK", LATE: "LATE", DEAD: "DEAD"}


def _plain(s: Story) -> None:
    s.put()
    s.served()


def _wide(s: Story) -> None:
    s.put((SIDE, WORK))
    s.served(last=False)
    s.served(WORK)


def _delayed(s: Story) -> None:
    s.put(delay_s=5)
    s.give(after_s=6)
    s.done()


def _moved_with_new(s: Story) -> None:
    s.put()
    s.give()
    s.move(SIDE, WORK, LATE, lease=s.gave)
    s.served(WORK, last=False)
    s.served(LATE)


def _returned(s: Story) -> None:
    s.put()
    s.give()
    s.attempts = 0
    s.frame(FrameType.RELEASE_GIVEN, SIDE, lease=s.gave, reason=int(Reason.RETURNED))
    s.served()


def _deferred(s: Story) -> None:
    s.put()
    s.give()
    s.put_off(Reason.DEFERRED)
    s.served()


def _failed(reason: Reason) -> Callable[[Story], None]:
    def tell(s: Story) -> None:
        s.put()
        s.give()
        s.put_off(reason)
        s.give()
        s.done()
    return tell


def _dead_letter(s: Story) -> None:
    s.put()
    s.give()
    s.put_off(Reason.FAILED)
    s.give()
    s.poison(DEAD, Reason.FAILED)
    s.served(DEAD)


def _replayed(s: Story) -> None:
    s.put()
    s.give()
    s.poison(POISON, Reason.DIED)
    s.order(FrameType.MOVE, POISON, parts=1)
    s.book.parts[id(s.book.rows[-1])] = [(SIDE, 0)]
    s.served()


def _unit(s: Story) -> None:
    s.put()
    s.give()
    first = s.done()
    first["unit"] = first
    new = Story(s.book, s.qpool + 1, s.time_ns)
    new.put((WORK,), after_s=0, unit=first)
    new.served(WORK)


def _backed_out(s: Story) -> None:
    s.put()
    s.give()
    s.frame(FrameType.BACKOUT, SIDE, lease=s.gave, reason=int(Reason.BACKED_OUT))
    s.give()
    s.done()


def _expired(s: Story) -> None:
    s.put(argument=s.time_ns + NS // 4)
    s.expire()


def _expired_to(s: Story) -> None:
    s.put(argument=s.time_ns + NS // 4)
    s.expire(LATE)
    s.served(LATE)


def _held(s: Story) -> None:
    s.put()
    s.order(FrameType.HOLD, SIDE)
    s.order(FrameType.RELEASE, SIDE)
    s.served()


def _deleted(s: Story) -> None:
    s.put()
    s.order(FrameType.DELETE, SIDE, FrameFlag.LAST_PART)


def _request(s: Story) -> None:
    s.put()
    s.give()
    first = s.done()
    first["unit"] = first
    reply = Story(s.book, s.qpool + 1, s.time_ns)
    reply.put((WORK,), after_s=0, unit=first, correlation=s.qpool)
    reply.served(WORK)


def _left(s: Story) -> None:
    s.put((SIDE, WORK))
    s.served(last=False)


Stays = tuple[tuple[str, str, str], ...]
_DONE: Final[Stays] = (("SIDE", "put", "done"),)


@dataclass(frozen=True)
class Kind:
    """A story, and what is told of it: stays as (queue, how it came, how it left). `more`: QPoolIds
    besides its first."""

    tell: Callable[[Story], None]
    ends: str
    stays: Stays = _DONE
    persistent: bool = True
    gives: int = 1
    failed: int = 0
    deaths: int = 0
    more: int = 0


_WIDE: Final[Stays] = (("SIDE", "put", "done"), ("WORK", "put", "done"))
STORIES: Final[dict[str, Kind]] = {
    "plain": Kind(_plain, "done"),
    "soft": Kind(_plain, "done", persistent=False),
    "wide": Kind(_wide, "done", _WIDE, gives=2),
    "soft_wide": Kind(_wide, "done", _WIDE, persistent=False, gives=2),
    "delayed": Kind(_delayed, "done"),
    "soft_delayed": Kind(_delayed, "done", persistent=False),
    "moved": Kind(_moved_with_new, "done", (
        ("SIDE", "put", "move"), ("WORK", "move", "done"), ("LATE", "move", "done")), gives=3),
    "returned": Kind(_returned, "done", gives=2),
    "deferred": Kind(_deferred, "done", gives=2),
    "failed": Kind(_failed(Reason.FAILED), "done", gives=2, failed=1),
    "reader_died": Kind(_failed(Reason.DIED), "done", gives=2, failed=1, deaths=1),
    "lease_over": Kind(_failed(Reason.LEASE), "done", gives=2, failed=1),
    "dead_letter": Kind(_dead_letter, "done", (
        ("SIDE", "put", "poison"), ("DEAD", "poison", "done")), gives=3, failed=2),
    "replayed": Kind(_replayed, "done", (
        ("SIDE", "put", "poison"), ("POISON", "poison", "move"), ("SIDE", "move", "done")),
        gives=2, failed=1, deaths=1),
    "unit": Kind(_unit, "done", more=1),
    "backed_out": Kind(_backed_out, "done", gives=2),
    "request": Kind(_request, "done", more=1),
    "expired": Kind(_expired, "expire", (("SIDE", "put", "expire"),), gives=0),
    "expired_to": Kind(_expired_to, "done", (
        ("SIDE", "put", "expire"), ("LATE", "expire", "done"))),
    "held": Kind(_held, "done"),
    "deleted": Kind(_deleted, "deleted", (("SIDE", "put", "deleted"),), gives=0),
    "manager_died": Kind(_left, "died", (("SIDE", "put", "done"), ("WORK", "put", "died")),
                         persistent=False),
}
"""Prepared units, groups and what else comes: one more row here."""


def told(first_qpool: int, time_ns: int, times: int) -> tuple[Book, dict[int, str], int]:
    """Each story so many times, one a second; which QPoolId is which; the next free QPoolId."""
    book, which, qpool = Book(), {}, first_qpool
    for _ in range(times):
        for name, kind in STORIES.items():
            kind.tell(Story(book, qpool, time_ns, persistent=kind.persistent))
            which[qpool] = name
            qpool += 1 + kind.more
            time_ns += NS
    return book, which, qpool
