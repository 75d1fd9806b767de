"""What the queues of a running manager are, as the engine needs it: configuration under numbers."""

from __future__ import annotations

from collections.abc import Mapping

from omq.base import clock
from omq.base.config import ABSORBED, NONE, QueueConf
from omq.base.settings import Settings
from omq.core.engine.limit_rules import limits_of
from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.state import POISON, SPECIAL_QUEUES
from omq.format.definition import Definition, Kind

UNLIMITED = 0xFFFFFFFF
KEEPING = "keeping"
"""What `drains` says of a queue that others named until it was rolled over: what has come to it
from them does not expire, nor does it when its name is another's."""


def keepers(queues: Mapping[str, QueueConf]) -> set[str]:
    """Queues that messages come to which are over elsewhere: there they have no time."""
    named = {kept for conf in queues.values() for kept in (conf.expired_to, conf.dead_letter)}
    return named | set(SPECIAL_QUEUES.values())


def rules_of(name: str, number: int, conf: QueueConf | None, numbers: Mapping[str, int],
             keeping: set[str], settings: Settings, definition: Definition | None = None
             ) -> QueueRules:
    """One queue; without `conf` nobody defines it any more, and it takes no more messages."""
    conf = conf or QueueConf(name, put_allowed=name in SPECIAL_QUEUES.values())
    keys = definition.keys if definition is not None else {}
    temporary = definition is not None and definition.kind is Kind.TEMPORARY
    return QueueRules(
        number, name, conf.max_depth or UNLIMITED, conf.max_length or settings.body_bytes_max,
        conf.put_allowed, conf.get_allowed, conf.attempts_max,
        conf.death_delay_s * clock.NS_PER_S, conf.lease_s * clock.NS_PER_S,
        conf.priority_default, conf.persistent_default, conf.expiry_max_s * clock.NS_PER_S,
        numbers.get(conf.expired_to, 0),
        name not in keeping and keys.get("drains") != KEEPING,
        conf.retry_delay_ms * 1_000_000 if conf.retry_delay_ms >= 0 else -1,
        conf.retry_backoff, conf.retry_max_s * clock.NS_PER_S, conf.retry_jitter,
        numbers.get(conf.dead_letter, POISON) if conf.dead_letter else POISON,
        rights=keys.get("model", name), owner=int(keys.get("owner", "0")) if temporary else 0,
        born=int(keys.get("born", "0")), drains="drains" in keys,
        dedupe_ns=conf.dedupe_s * clock.NS_PER_S, absorbs=conf.duplicates == ABSORBED,
        dedupe_keys_max=conf.dedupe_keys_max,
        trigger=NONE if "drains" in keys else conf.trigger, trigger_depth=conf.trigger_depth,
        program=conf.trigger_program or name, limits=limits_of(conf))
