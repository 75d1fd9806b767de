"""Durations, counts and sizes as people read them: the one place that writes them in messages.

    duration(0.0213)  21 ms        duration(90)    90 s         duration(-1)  0 s
    duration(4.25)    4.2 s        duration(7260)  2.0 h        duration(3e7) 347 days
    counted(1, "message")  1 message            counted(2500, "message")  2,500 messages
    size(1536)        1.5 KiB      number(0.25)    0.25

Invariants: 1. no duration is negative: what is over is over by 0 s, for a clock that was set back
must not show; 2. nothing has more digits than somebody reads; 3. what
is not a finite number is "an unknown time". Programs get numbers (`--json`), never these texts.
"""

from __future__ import annotations

import math
from typing import Final

from omq.base.limits import GIB, KIB, MIB

_UNITS: Final = (
    (10.0, 1.0, "s", 1), (120.0, 1.0, "s", 0), (7200.0, 60.0, "min", 0),
    (172_800.0, 3600.0, "h", 1), (math.inf, 86400.0, "days", 0))


def duration(seconds: float) -> str:
    """`4.2 s`, `12 min`, `5.1 h`, `3 days`; 0 s for what is less than nothing."""
    if not math.isfinite(seconds):
        return "an unknown time"
    if seconds < 0.0005:
        return "0 s"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for limit, unit_s, unit, digits in _UNITS:
        if seconds < limit:
            text = f"{seconds / unit_s:.{digits}f}"
            return f"{text.removesuffix('.0') if digits and unit == 's' else text} {unit}"
    raise AssertionError("the last unit takes all")


def counted(count: int, thing: str, things: str = "") -> str:
    """`1 message`, `2,500 messages`."""
    return f"{count:,} {thing if count == 1 else things or thing + 's'}"


def number(value: float) -> str:
    """`3`, `1,234`, `0.25`: what is whole has no point, nothing has more than two digits
    after it."""
    if not math.isfinite(value):
        return "unknown"
    return f"{value:,.2f}".rstrip("0").rstrip(".")


def size(count: float) -> str:
    """`1.2 GiB`, `512 bytes`."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if count >= unit:
            return f"{count / unit:,.1f} {name}"
    return counted(max(0, round(count)), "byte")
