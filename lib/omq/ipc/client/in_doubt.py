"""Units of work in doubt, as programs see them: which there are, and their end by id or name.

Errors: UnitUnknown, UnitResolved, BadArgument; those of a put for what a commit brings.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from omq.base import limits
from omq.base.clock import NS_PER_S
from omq.format.wire import Operation
from omq.ipc.wire import arguments

if TYPE_CHECKING:
    from omq.ipc.client.connection_parts import Wire


@dataclass(frozen=True, slots=True)
class UnitInDoubt:
    """A unit of work that was prepared and has not ended. `uid` is None when whose it is was lost;
    `missing`: messages that belonged to it and are not there. `queues`: how many messages it took
    from and put on each, (gets, puts)."""

    unit: str
    name: str
    since: datetime
    uid: int | None
    pid: int
    program: str
    gets: int
    puts: int
    missing: int
    queues: dict[str, tuple[int, int]]


def units_in_doubt(wire: Wire) -> list[UnitInDoubt]:
    """Those of this user; for who may `admin` POISON, all. The oldest first. Whatever was asked of
    the manager before, by a program that is dead now too, has happened or never will."""
    wire.link.request(Operation.PING, b"")  # it stands behind all of that
    found: list[UnitInDoubt] = []
    behind, more = 0, True
    while more:
        answer = wire.control({"op": "units", "behind": behind})
        for row in answer["units"]:
            behind = int(row["number"])
            found.append(_unit(row))
        more = bool(answer["more"])
    return sorted(found, key=lambda unit: unit.since)


def _unit(row: dict[str, Any]) -> UnitInDoubt:
    since = datetime.fromtimestamp(row["since_ns"] / NS_PER_S, UTC).astimezone()
    return UnitInDoubt(
        row["unit"], row["name"], since, row["uid"], row["pid"], row["program"], row["gets"],
        row["puts"], row["missing"],
        {queue: (each["gets"], each["puts"]) for queue, each in row["queues"].items()})


def resolve(wire: Wire, unit: str, *, commit: bool) -> None:
    """End it. Asked again over the end of the manager until there is an answer: a unit that ended
    by this very request is not an error."""
    raw = name_bytes(unit, "unit")
    if not raw:
        raise arguments.wrong("unit", unit, "it is the id or the name of a unit")
    wire.link.request(Operation.RESOLVE, raw, length=len(raw), want=int(commit))


class EndsUnits:
    """What a connection does with units of work in doubt."""

    _wire: Wire

    def units_in_doubt(self) -> list[UnitInDoubt]:
        """The units of work of this user that were prepared and have not ended, the oldest first;
        for who may administer POISON, those of all."""
        return units_in_doubt(self._wire)

    def commit_unit(self, unit: str) -> None:
        """Commit a unit in doubt, by its id or name. UnitUnknown, UnitResolved: it has ended."""
        resolve(self._wire, unit, commit=True)

    def back_out_unit(self, unit: str) -> None:
        """Back out a unit in doubt, by its id or name. UnitUnknown, UnitResolved."""
        resolve(self._wire, unit, commit=False)


def name_bytes(name: str, argument: str = "name") -> bytes:
    """The name of a unit on the wire; BadArgument."""
    raw = arguments.text(name, argument).encode(errors="surrogatepass")
    if len(raw) > limits.UNIT_NAME_BYTES_MAX or not (name.isprintable()):
        raise arguments.wrong(argument, name, f"up to {limits.UNIT_NAME_BYTES_MAX} bytes that can "
                              "be printed")
    return raw
