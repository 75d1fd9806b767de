"""Conditions that choose messages: `FIELD OPERATOR VALUE`, all of which must hold.

    queue=ORDERS  'priority>=5'  state=deferred  id=4f4d51...  qpool=17  'size>1000'
    'time<2026-11-21T08:00:00'  attempts=3  property.customer=42  'property.subject~invoice'

Operators: = != < <= > >= and ~ (contains). Numbers compare as numbers, times by the clock, all else
as text, without regard to case where it is a name of ours.

Errors: BadRequest for a condition that is none.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from omq.base.clock import NS_PER_S as NS
from omq.base.errors import BadRequest

_CONDITION: Final = re.compile(r"([a-z]+(?:\.[^=!<>~]+)?)\s*(=|!=|<=|>=|<|>|~)\s*(.*)", re.DOTALL)
_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge, "~": operator.contains,
}  # fmt: skip
NUMBERS: Final = ("qpool", "priority", "size", "attempts", "lsn")
NAMES: Final = ("queue", "state", "id", "correlation")


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition; `value` is what the field is compared with."""

    name: str
    test: str
    value: Any

    def holds(self, fields: Mapping[str, Any]) -> bool:
        """Of several values (queues, states, priorities) one is enough; != must hold for all."""
        found = fields.get(self.name)
        values = found if isinstance(found, list) else [found]
        results = [each is not None and _OPERATORS[self.test](each, self.value) for each in values]
        return all(results) if self.test == "!=" else any(results)


def parse(text: str) -> Condition:
    """One condition."""
    match = _CONDITION.fullmatch(text.strip())
    if match is None:
        raise BadRequest(reason=f"{text!r} is not a condition like queue=ORDERS or 'priority>=5'")
    name, test, value = match.groups()
    if name in NUMBERS:
        if not value.isdecimal() or test == "~":
            raise BadRequest(reason=f"{text!r}: {name} is a number")
        return Condition(name, test, int(value))
    if name == "time":
        return Condition(name, test, time_ns(value))
    if name in NAMES:
        return Condition(name, test, value.lower())
    if name.startswith("property."):
        return Condition(name, test, value)
    known = ", ".join((*NUMBERS, "time", *NAMES, "property.NAME"))
    raise BadRequest(reason=f"{text!r}: there is no field {name}; there are {known}")


def time_ns(text: str) -> int:
    """An ISO time as ns since 1970; without an offset it is the local time."""
    try:
        moment = datetime.fromisoformat(text).astimezone()
        return int(moment.timestamp()) * NS + moment.microsecond * 1000
    except ValueError as error:
        raise BadRequest(reason=f"{text!r} is not a time like 2026-11-21T08:00:00") from error
