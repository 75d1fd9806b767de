"""What the queues of a running manager are: those of queues.conf under their numbers."""

from __future__ import annotations

from omq.base import clock
from omq.base.config import QueueConf
from omq.base.settings import Settings
from omq.core.engine.state import FIRST_QUEUE, POISON, SPECIAL_QUEUES, QueueRules

UNLIMITED = 0xFFFFFFFF


def rules_from(queues: dict[str, QueueConf], known: dict[str, int], settings: Settings
               ) -> list[QueueRules]:
    """Numbered rules: known queues keep their number, new ones get the next free one, known ones
    that the configuration no longer has take no more messages."""
    numbers = {name: number for number, name in SPECIAL_QUEUES.items()} | known
    following = max([FIRST_QUEUE - 1, *numbers.values()]) + 1
    out = []
    for name in (*SPECIAL_QUEUES.values(), *sorted(queues)):
        if name not in numbers:
            numbers[name] = following
            following += 1
    keeping = {kept for conf in queues.values() for kept in (conf.expired_to, conf.dead_letter)}
    keeping |= set(SPECIAL_QUEUES.values())
    for name, number in numbers.items():
        conf = queues.get(name) or QueueConf(name, put_allowed=name in SPECIAL_QUEUES.values())
        out.append(QueueRules(
            number, name, conf.max_depth or UNLIMITED, conf.max_length or settings.body_bytes_max,
            conf.put_allowed, conf.get_allowed, conf.attempts_max,
            conf.death_delay_s * clock.NS_PER_S, conf.lease_s * clock.NS_PER_S,
            conf.priority_default, conf.persistent_default, conf.expiry_max_s * clock.NS_PER_S,
            numbers[conf.expired_to] if conf.expired_to else 0, name not in keeping,
            conf.retry_delay_ms * 1_000_000 if conf.retry_delay_ms >= 0 else -1,
            conf.retry_backoff, conf.retry_max_s * clock.NS_PER_S, conf.retry_jitter,
            numbers[conf.dead_letter] if conf.dead_letter else POISON))
    return out
