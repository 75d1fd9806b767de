"""What somebody who looks at the connections of amqp.server sees of each, and of its links.

Rates are those of the last ten to twenty seconds: counts are noted each PERIOD_S, and compared with
those noted before. Invariant: a count is of one link since its attach, or of a channel since it was
opened, so one that has gone takes nothing off another.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

from omq.services.network.accounts import Account

PUTS, TAKES = "puts", "takes"
PERIOD_S: Final = 10.0
CONNECTIONS_MAX: Final = 2000
"""Told at most; `connections` says how many there are."""
LINKS_MAX: Final = 100
TEXT_MAX: Final = 128
_Counts = dict[int, dict[tuple[str, str], int]]
"""By the number of a connection: messages, by name and way of a link."""


@dataclass(frozen=True, slots=True)
class LinkState:
    """A link of AMQP 1.0; a channel that puts, or a consumer, of 0-9-1. `messages`: since it is
    there."""

    name: str
    way: str
    queue: str
    messages: int

    @property
    def shown_name(self) -> str:
        """By which it is listed, and named."""
        return self.name[:TEXT_MAX]


class Shown(Protocol):
    """What is looked at of a connection (services.amqp.host.Guest)."""

    number: int
    since_ns: int
    peer: str
    user: Account | None

    @property
    def protocol(self) -> str: ...
    @property
    def container(self) -> str: ...
    @property
    def told(self) -> list[LinkState]: ...


class Rates:
    """See the module. For the event loop."""

    def __init__(self) -> None:
        self._noted: list[tuple[float, _Counts]] = []  # two at most, the older first

    def note(self, now_s: float, sessions: Iterable[Shown]) -> None:
        """Once in a while; counts are noted when it is time."""
        if self._noted and now_s - self._noted[-1][0] < PERIOD_S:
            return
        counts = {each.number: {(link.name, link.way): link.messages for link in each.told}
                  for each in sessions}
        self._noted = [*self._noted[-1:], (now_s, counts)]

    def told(self, now_s: float, sessions: Iterable[Shown]) -> list[dict[str, Any]]:
        """Connections by number."""
        before_s, counts = self._noted[0] if self._noted else (now_s, {})
        known = sorted(sessions, key=lambda each: each.number)[:CONNECTIONS_MAX]
        return [_told(each, now_s - before_s, counts.get(each.number)) for each in known]


def _told(session: Shown, elapsed_s: float, before: dict[tuple[str, str], int] | None
          ) -> dict[str, Any]:
    links, rates = [], {PUTS: 0.0, TAKES: 0.0}
    measured = before is not None and elapsed_s > 0
    for at, each in enumerate(session.told):
        moved = each.messages - (before or {}).get((each.name, each.way), 0)
        rate = round(max(0, moved) / elapsed_s, 1) if measured else None
        rates[each.way] += rate or 0.0
        if at < LINKS_MAX:
            links.append({**asdict(each), "name": each.shown_name,
                          "queue": each.queue[:TEXT_MAX], "rate": rate})
    return {
        "connection": session.number, "protocol": session.protocol, "peer": session.peer,
        "user": session.user.name if session.user is not None else "",
        "client": session.container[:TEXT_MAX], "since_ns": session.since_ns,
        "puts_rate": round(rates[PUTS], 1) if measured else None,
        "takes_rate": round(rates[TAKES], 1) if measured else None, "links": links}
