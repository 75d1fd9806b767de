"""Sources and targets of links (ISO 19464 part 3, 3.5; part 4, 4.5.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from omq.amqp.whole_values import decoded
from omq.format.amqp_performatives import COORDINATOR, SOURCE, TARGET, number
from omq.format.amqp_types import Described, Malformed, Ulong

_ADDRESS, _DYNAMIC, _MODE, _FILTER = 0, 4, 6, 7
COPY: Final = "copy"


@dataclass(slots=True)
class Terminus:
    """One end of a link; `fields` in the standard's order, as many as were said. `kind`: SOURCE,
    TARGET or COORDINATOR."""

    kind: int
    fields: list[Any]

    def _at(self, place: int) -> Any:
        return self.fields[place] if place < len(self.fields) else None

    @property
    def address(self) -> str:
        """Empty: none. Malformed: it is not text."""
        found = None if self.kind == COORDINATOR else self._at(_ADDRESS)
        if found is not None and type(found) is not str:
            raise Malformed("an address is a string")
        return found or ""

    @property
    def dynamic(self) -> bool:
        return self.kind != COORDINATOR and self._at(_DYNAMIC) is True

    @property
    def copies(self) -> bool:
        """A source whose messages stay."""
        return self.kind == SOURCE and self._at(_MODE) == COPY

    @property
    def filter(self) -> dict[Any, Any]:
        """Malformed: it is not a map."""
        found = self._at(_FILTER) if self.kind == SOURCE else None
        if found is not None and not isinstance(found, dict):
            raise Malformed("filters are a map")
        return found or {}

    def made(self, address: str) -> Terminus:
        """The same, of a node that was made for it."""
        fields = [*self.fields, *[None] * (_DYNAMIC + 1 - len(self.fields))]
        fields[_ADDRESS], fields[_DYNAMIC] = address, True
        return Terminus(self.kind, fields)

    def value(self) -> Described:
        """To be sent."""
        return Described(Ulong(self.kind), self.fields)


def terminus(raw: bytes | None, kind: int) -> Terminus | None:
    """What came in an attach; None: there is none. Malformed."""
    found = decoded(raw) if raw else None
    if found is None:
        return None
    if not isinstance(found, Described) or not isinstance(found.value, list):
        raise Malformed("neither a source nor a target")
    said = number(found.descriptor)
    if said != kind and not (kind == TARGET and said == COORDINATOR):
        raise Malformed("neither a source nor a target")
    return Terminus(said, found.value)
