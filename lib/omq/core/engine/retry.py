"""How long a message that failed waits for its next attempt, and one that cannot be deleted.

The pause of its queue (retry_delay_ms after a reader said so, death_delay_s after a death), grown
with the failed attempts so far, at most retry_max_s, less up to retry_jitter per cent. What is
taken off comes from the message's number and attempt: evenly spread, and the same whenever it is
asked.

One that cannot be deleted stays on IDEL, where it can be seen, and is tried ever more seldom: what
cannot be deleted now hardly can in an instant, and must not keep idel.server from the others. A new
manager begins anew.
"""

from __future__ import annotations

from typing import Final

from omq.base.checksum import crc32c
from omq.base.clock import NS_PER_S
from omq.core.engine.rules_of_queue import QueueRules
from omq.format.frame_rules import Reason

_DOUBLINGS_MAX: Final = 40
IDEL_PAUSE_MAX_NS: Final = 3600 * NS_PER_S
_IDEL_DOUBLINGS_MAX: Final = 16


def retry_ns(rules: QueueRules, reason: int, attempts: int, qpool: int) -> int:
    """The pause after `attempts` failed attempts, of which the last one failed for `reason`."""
    pause = rules.death_delay_ns
    if reason == Reason.FAILED and rules.retry_delay_ns >= 0:
        pause = rules.retry_delay_ns
    if rules.backoff == "linear":
        pause = min(pause * max(1, attempts), max(pause, rules.retry_max_ns))
    elif rules.backoff == "exponential":
        doublings = min(max(0, attempts - 1), _DOUBLINGS_MAX)
        pause = min(pause << doublings, max(pause, rules.retry_max_ns))
    if rules.jitter:
        chance = crc32c(qpool.to_bytes(8, "little") + attempts.to_bytes(2, "little"))
        pause -= (pause * rules.jitter // 100 * chance) >> 32
    return pause


def idel_pause_ns(first_ns: int, attempts: int) -> int:
    """After so many attempts: `first_ns`, then 1 s and twice as long each time."""
    if attempts <= 1:
        return first_ns
    return min(max(first_ns, NS_PER_S << min(attempts - 2, _IDEL_DOUBLINGS_MAX)), IDEL_PAUSE_MAX_NS)
