"""What the configuration says of the limits of one queue, as the engine uses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from omq.base.config import QueueConf
from omq.base.limit_words import BY_GROUP, property_of
from omq.base.rates import Rate, parse_rate

NO_KEYS: Final = ""


@dataclass(frozen=True, slots=True)
class LimitRules:
    """`in_work_max`, `key_in_work_max`: 0 = no limit; `by`: NO_KEYS, BY_GROUP, or the name of a
    property behind its prefix."""

    in_work_max: int = 0
    rate: Rate | None = None
    by: str = NO_KEYS
    key_in_work_max: int = 0
    key_rate: Rate | None = None
    fair: bool = False
    keys_max: int = 0

    @property
    def keyed(self) -> bool:
        """Its messages stand by their keys."""
        return self.by != NO_KEYS

    @property
    def property_name(self) -> str:
        """The property whose value is the key; "": none is."""
        return property_of(self.by)

    @property
    def by_group(self) -> bool:
        """The group id is the key."""
        return self.by == BY_GROUP


def limits_of(conf: QueueConf) -> LimitRules | None:
    """None: the queue has none."""
    rules = LimitRules(
        conf.in_work_max, parse_rate(conf.rate, conf.rate_burst), conf.limit_by,
        conf.key_in_work_max, parse_rate(conf.key_rate, conf.key_rate_burst), conf.fair_turns,
        conf.limit_keys_max if conf.limit_by else 0)
    return None if rules == LimitRules() else rules
