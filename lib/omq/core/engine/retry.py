"""How long a message that failed waits for its next attempt.

The pause of its queue (retry_delay_ms after a reader said so, death_delay_s after a death), grown
with the failed attempts so far, at most retry_max_s, less up to retry_jitter per cent. What is
taken off comes from the message's number and attempt: evenly spread, and the same whenever it is
asked.
"""

from __future__ import annotations

from omq.base.checksum import crc32c
from omq.core.engine.rules_of_queue import QueueRules
from omq.format.frame_rules import Reason

_DOUBLINGS_MAX = 40


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
