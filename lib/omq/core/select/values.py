"""What the parts of a selector do with values: True, False, or unknown (None), as SQL has it.

A message says texts, numbers or truth; what it does not say is None. Two values are compared as
what the other one is: the properties of a message are texts, and next to a number the text counts
as the number that it writes, next to TRUE or FALSE as the word. What cannot be compared is unknown,
so that it is neither found nor found by NOT.

Cost: each function looks at its values once; a pattern of LIKE is searched piece by piece, without
going back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final

Value = str | int | float | bool | None
Truth = bool | None
Lookup = Callable[[str], Value]
Evaluate = Callable[[Lookup], Value]
Test = Callable[[Lookup], Truth]
COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": eq, "<>": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_NUMBER: Final = re.compile(
    r"[+-]?(?:\d{1,40}\.?\d{0,40}|\.\d{1,40})(?:[eE][+-]?\d{1,4})?", re.ASCII)


def number(value: Value) -> int | float | None:
    """The number that a value is or writes; None: none."""
    if isinstance(value, bool) or value is None:
        return None
    if not isinstance(value, str):
        return value
    text = value.strip()
    if not _NUMBER.fullmatch(text):
        return None
    return int(text) if text.lstrip("+-").isdigit() and len(text) < 19 else float(text)


def truth(value: Value) -> Truth:
    """The truth that a value is or writes."""
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.lower())
    return value if isinstance(value, bool) else None


def compare(operator: str, left: Value, right: Value) -> Truth:
    """Of two values."""
    if left is None or right is None:
        return None
    if isinstance(left, bool) or isinstance(right, bool):
        one, other = truth(left), truth(right)
        known = one is not None and other is not None and operator in ("=", "<>")
        return COMPARE[operator](one, other) if known else None
    if isinstance(left, str) and isinstance(right, str) and operator in ("=", "<>"):
        return COMPARE[operator](left, right)
    first, second = number(left), number(right)
    return None if first is None or second is None else COMPARE[operator](first, second)


def calculate(operator: str, left: Value, right: Value) -> Value:
    """+ - * / of two numbers; of whole ones `/` gives a whole one, towards zero. Unknown: no
    numbers, a division by zero, or too large."""
    one, other = number(left), number(right)
    if one is None or other is None:
        return None
    try:
        if operator == "+":
            return one + other
        if operator == "-":
            return one - other
        if operator == "*":
            return one * other
        if isinstance(one, int) and isinstance(other, int):
            quotient = abs(one) // abs(other)
            return quotient if (one < 0) == (other < 0) else -quotient
        return one / other
    except (ZeroDivisionError, OverflowError):
        return None


def all_of(said: Iterable[Truth]) -> Truth:
    """AND: unknown unless one is False; no more are asked then."""
    found: Truth = True
    for each in said:
        if each is False:
            return False
        if each is None:
            found = None
    return found


def any_of(said: Iterable[Truth]) -> Truth:
    """OR: unknown unless one is True; no more are asked then."""
    found: Truth = False
    for each in said:
        if each:
            return True
        if each is None:
            found = None
    return found


def not_(value: Truth) -> Truth:
    """NOT: what is unknown stays so."""
    return None if value is None else not value


def pattern(text: str, escape: str) -> Callable[[str], bool]:
    """Whether a whole text is like `text`: % any number of characters, _ one, `escape` before
    one of them or itself the character. The pieces between two % are found from the left, each
    after the one before; so no place is tried twice. ValueError: nothing after `escape`."""
    pieces, at = [""], 0
    while at < len(text):
        each = text[at]
        if each == escape:
            at += 1
            if at == len(text) or text[at] not in ("%", "_", escape):
                raise ValueError(f"{escape} must be followed by %, _ or {escape}")
            pieces[-1] += re.escape(text[at])
        elif each == "%":
            pieces.append("")
        else:
            pieces[-1] += "." if each == "_" else re.escape(each)
        at += 1
    found = [re.compile(piece, re.DOTALL) for piece in pieces]
    lengths = [len(re.sub(r"\\(.)", r"\1", piece, flags=re.DOTALL)) for piece in pieces]

    def like(value: str) -> bool:
        if len(found) == 1:
            return found[0].fullmatch(value) is not None
        end = len(value) - lengths[-1]
        if end < lengths[0] or not found[0].match(value) or not found[-1].match(value, end):
            return False
        place = lengths[0]
        for piece in found[1:-1]:
            match = piece.search(value, place, end)
            if match is None:
                return False
            place = match.end()
        return True
    return like
