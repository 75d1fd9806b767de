"""Rates as queues.conf has them: so many in a time, `5/min`, `100/s`, `1000/day`.

A rate is kept as the time between two: a token bucket that fills at that pace and holds `burst`
tokens (core.engine.buckets). The interval is rounded up, so a rate is never exceeded by rounding.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from omq.base.clock import NS_PER_S

UNITS: Final = {"s": 1, "min": 60, "h": 3600, "day": 86400}
"""Seconds of each unit."""
COUNT_MAX: Final = 1_000_000
BURST_MAX: Final = 1_000_000
RULE: Final = f"1 to {COUNT_MAX} in a {', '.join(UNITS)}, as 5/min"
_RATE: Final = re.compile(r"([0-9]{1,7})/(s|min|h|day)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Rate:
    """One each `interval_ns`, and up to `burst` at once."""

    interval_ns: int
    burst: int = 1


def parse_rate(text: str, burst: int = 1) -> Rate | None:
    """What a text says; None: it is not a rate. A rate of 0 is none: `get = inhibited` stops a
    queue."""
    match = _RATE.fullmatch(text)
    if match is None or not 0 < (count := int(match[1])) <= COUNT_MAX:
        return None
    return Rate(-(-UNITS[match[2]] * NS_PER_S // count), burst)
