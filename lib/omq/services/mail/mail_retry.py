"""How often and since when a message has been tried, carried from one queue message to the next.

A message whose recipients were all refused for now is deferred. When only some were, a new message
with the rest takes its place, delayed; these properties carry over:

    unix.tries        tries before this queue message was made
    unix.since        wall clock of the first put, ns since 1970

A deferral is not a try where the peer was held or had enough to do. So the number of tries is known
from above only: by the deferrals, and by the time since the first put, in which no more fit at
linear pauses. The smaller one counts: the pauses are then those of the rule, also for a message
that was deferred without a try or waited long for its first one.

Times are wall clock because they outlive a boot. A clock set back cannot freeze a message, nor can
one jump forward expire it before a second try.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from omq.base.clock import NS_PER_S
from omq.services.readers.service import Message

TRIES = "unix.tries"
SINCE = "unix.since"
RETRY_PROPERTIES = frozenset((TRIES, SINCE, "unix.not_before"))  # the last: of older versions


@dataclass(frozen=True, slots=True)
class Retry:
    """The state before the try that is due; times in ns."""

    tries: int
    since_ns: int
    now_ns: int

    @classmethod
    def of(cls, message: Message, now_ns: int) -> Retry:
        """What the message says of itself; nonsense in a property counts as absent."""
        since_ns = _number(message.properties, SINCE) or message.put_time_ns
        return cls(_number(message.properties, TRIES) + message.defers, since_ns, now_ns)

    def pause_s(self, step_s: float, pause_max_s: float) -> float:
        """Seconds until the next try: n steps before the n-th retry."""
        steps = max(0.0, (self.now_ns - self.since_ns) / NS_PER_S / step_s)
        fit = int((math.sqrt(1.0 + 8.0 * steps) - 1.0) / 2.0)  # 1 + 2 + ... + n steps
        return float(min(pause_max_s, step_s * (min(self.tries, fit) + 1)))

    def expired(self, expiry_s: float) -> bool:
        """Whether the try that is due is the last one."""
        return self.tries > 0 and self.now_ns - self.since_ns > expiry_s * NS_PER_S

    def properties(self, tries: int = 1) -> dict[str, str]:
        """For the message that takes this one's place, after so many more tries."""
        return {TRIES: str(self.tries + tries), SINCE: str(self.since_ns)}


def _number(properties: Mapping[str, str], name: str) -> int:
    text = properties.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
