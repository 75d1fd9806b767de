"""How many reports error.manager may send: a flood of undeliverable mail with forged senders must
not become a flood of reports to strangers.

A limit for all in a minute and one for each sender in an hour, both counted in windows that begin
with the first report. What is beyond a limit waits until its window is over; nothing is dropped.
Counts are of this process: auxiliary readers have their own. At most SENDERS_MAX senders are
remembered; the oldest is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from omq.base.clock import NS_PER_S

SENDERS_MAX: Final = 10_000
MINUTE_S: Final = 60
HOUR_S: Final = 3600


@dataclass(slots=True)
class _Window:
    began_ns: int
    count: int = 0


class ReportRate:
    """The counts; times are monotonic ns."""

    def __init__(self, per_minute: int, per_sender: int) -> None:
        self._per_minute = per_minute
        self._per_sender = per_sender
        self._all = _Window(-MINUTE_S * NS_PER_S)
        self._senders: OrderedDict[str, _Window] = OrderedDict()

    def wait_s(self, sender: str, now_ns: int) -> float:
        """Seconds until a report to this sender may be sent; 0: now, and it is counted."""
        if now_ns - self._all.began_ns >= MINUTE_S * NS_PER_S:
            self._all = _Window(now_ns)
        key = sender.casefold()
        window = self._senders.get(key)
        if window is None or now_ns - window.began_ns >= HOUR_S * NS_PER_S:
            self._senders.pop(key, None)
            while len(self._senders) >= SENDERS_MAX:
                self._senders.popitem(last=False)
            window = self._senders[key] = _Window(now_ns)
        waits = [_left_s(self._all, self._per_minute, MINUTE_S, now_ns),
                 _left_s(window, self._per_sender, HOUR_S, now_ns)]
        if not any(waits):
            self._all.count += 1
            window.count += 1
        return max(waits)


def _left_s(window: _Window, limit: int, period_s: int, now_ns: int) -> float:
    if window.count < limit:
        return 0.0
    return max(1.0, period_s - (now_ns - window.began_ns) / NS_PER_S)
