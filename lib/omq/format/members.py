"""The members of a barrier as its message carries them: the property MEMBERS, text.

    members := "none" | item ("," item)*
    item    := number | number "-" number     QPoolIds, ascending, none of them twice
             | "*" count                      alone: so many that the same request put before it

Errors: BadRequest, TooManyMembers. Nothing is believed: numbers are bounded before they are used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from omq.base.errors import BadRequest, TooManyMembers
from omq.base.limits import BARRIER_MEMBERS_MAX

MEMBERS: Final = "omq.members"
_ITEM: Final = re.compile(r"([1-9][0-9]{0,19})(?:-([1-9][0-9]{0,19}))?")
_BEFORE: Final = re.compile(r"\*([1-9][0-9]{0,9})")
_NONE: Final = "none"
_QPOOL_MAX: Final = (1 << 64) - 1


def members_text(qpools: Iterable[int]) -> str:
    """These QPoolIds. TooManyMembers."""
    numbers = sorted(set(qpools))
    _bounded(len(numbers))
    out: list[str] = []
    at = 0
    while at < len(numbers):
        first = last = at
        while last + 1 < len(numbers) and numbers[last + 1] == numbers[last] + 1:
            last += 1
        out.append(str(numbers[first]) if first == last else f"{numbers[first]}-{numbers[last]}")
        at = last + 1
    return ",".join(out) or _NONE


def before_text(count: int) -> str:
    """So many that the same request put before the barrier. TooManyMembers."""
    _bounded(count)
    return f"*{count}"


def members_in(text: str, own: int) -> list[int]:
    """The QPoolIds that a barrier names whose own is `own`, ascending."""
    if before := _BEFORE.fullmatch(text):
        count = int(before[1])
        _bounded(count)
        if count >= own:
            raise _wrong(text)
        return list(range(own - count, own))
    found: list[int] = []
    if text == _NONE:
        return found
    for first, last in _ranges(text):
        _bounded(len(found) + last - first + 1)
        found += range(first, last + 1)
    return found


def counts_before(text: str) -> int:
    """How many of its own request it waits for; 0: it names its members."""
    before = _BEFORE.fullmatch(text)
    return int(before[1]) if before else 0


def _ranges(text: str) -> Iterator[tuple[int, int]]:
    past = 0
    for item in text.split(","):
        said = _ITEM.fullmatch(item)
        if said is None:
            raise _wrong(text)
        first, last = int(said[1]), int(said[2] or said[1])
        if not past < first <= last <= _QPOOL_MAX:
            raise _wrong(text)
        past = last
        yield first, last


def _bounded(count: int) -> None:
    if count > BARRIER_MEMBERS_MAX:
        raise TooManyMembers(count=count, what="members of a barrier", limit=BARRIER_MEMBERS_MAX)


def _wrong(text: str) -> BadRequest:
    return BadRequest(reason=f"{text[:40]!r} does not name the members of a barrier")
