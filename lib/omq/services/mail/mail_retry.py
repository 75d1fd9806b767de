"""How often and since when a message has been tried, carried from one queue message to the next.

A message whose recipients were all refused for now is deferred and keeps its counts by itself. When
only some were, a new message with the rest takes its place; these properties carry the counts over:

    unix.tries        tries before this queue message was made
    unix.since        wall clock of the first put, ns since 1970
    unix.not_before   wall clock before which the new message is not tried, ns since 1970

Times are wall clock because they outlive a boot. A clock set back cannot freeze a message: the wait
is never longer than the longest pause; nor can one jump forward expire it before a second try.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from omq.base.clock import NS_PER_S
from omq.services.readers.service import Message

TRIES = "unix.tries"
SINCE = "unix.since"
NOT_BEFORE = "unix.not_before"
RETRY_PROPERTIES = frozenset((TRIES, SINCE, NOT_BEFORE))


@dataclass(frozen=True, slots=True)
class Retry:
    """The state before the try that is due; times in ns."""

    tries: int
    since_ns: int
    not_before_ns: int
    waited: bool  # this queue message was deferred before
    now_ns: int

    @classmethod
    def of(cls, message: Message, now_ns: int) -> Retry:
        """What the message says of itself; nonsense in a property counts as absent."""
        carried = _number(message.properties, TRIES)
        not_before_ns = _number(message.properties, NOT_BEFORE)
        # The first deferral of a carried message only waited for its time: no try.
        own = message.defers - (1 if not_before_ns and message.defers else 0)
        since_ns = _number(message.properties, SINCE) or message.put_time_ns
        return cls(carried + own, since_ns, not_before_ns, message.defers > 0, now_ns)

    def early_s(self, pause_max_s: float) -> float:
        """Seconds until the message is due; 0 when it is. It waits once only."""
        if self.waited or not self.not_before_ns:
            return 0.0
        return min(pause_max_s, max(0.0, (self.not_before_ns - self.now_ns) / NS_PER_S))

    def pause_s(self, step_s: float, pause_max_s: float) -> float:
        """Seconds until the next try: n steps before the n-th retry."""
        return float(min(pause_max_s, step_s * (self.tries + 1)))

    def expired(self, expiry_s: float) -> bool:
        """Whether the try that is due is the last one."""
        return self.tries > 0 and self.now_ns - self.since_ns > expiry_s * NS_PER_S

    def properties(self, pause_s: float) -> dict[str, str]:
        """The counts for the message that takes this one's place, after one more try."""
        return {TRIES: str(self.tries + 1), SINCE: str(self.since_ns),
                NOT_BEFORE: str(self.now_ns + int(pause_s * NS_PER_S))}


def _number(properties: Mapping[str, str], name: str) -> int:
    text = properties.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
