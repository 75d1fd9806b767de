"""What an alarm may look at: each measure by its name, as figures of the facts.

A measure of the instance gives one value; one of queues gives a value a queue. All of them grow
with trouble, so an alarm has one direction. What is not known (no index, no file system) gives no
value: it neither raises nor clears.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from omq.base.names import KEPT_RECORDS
from omq.cli.look.omstat import runs
from omq.cli.watch.facts import Facts, QueueFacts
from omq.core.engine.queue_rules import UNLIMITED

OfInstance = Callable[[Facts], float | None]
OfQueue = Callable[[QueueFacts, int], float]


def _percent(part: float, whole: float) -> float:
    return 100.0 * part / whole if whole else 0.0


def _counter(name: str) -> OfInstance:
    return lambda facts: float(facts.counters[name]) if facts.counters else None


def _poison(facts: Facts) -> float | None:
    if not facts.queues:
        return None
    return float(sum(each.row.messages for each in facts.queues if each.row.name == "POISON"))


def _index(facts: Facts) -> float | None:
    return _percent(facts.counters["messages"], facts.messages_max) if facts.counters else None


def _room(facts: Facts) -> float | None:
    if not facts.counters:
        return None
    return float(bool(facts.counters["space_low"] or facts.counters["index_low"]))


def _disk(facts: Facts) -> float | None:
    if facts.space.free_bytes is None or not facts.disk_bytes:
        return None
    return _percent(facts.disk_bytes - facts.space.free_bytes, facts.disk_bytes)


def _inodes(facts: Facts) -> float | None:
    """None, too, where the file system makes them as it needs them."""
    if not facts.space.inodes:
        return None
    return _percent(facts.space.inodes - facts.space.inodes_free, facts.space.inodes)


OF_INSTANCE: Final[dict[str, OfInstance]] = {
    "manager_down": lambda facts: float(not facts.alive),
    "configuration_wrong": lambda facts: float(not facts.configured),
    "services_down": lambda facts: (
        float(sum(not runs(each) for each in facts.services)) if facts.configured else None),
    "restarts": lambda facts: float(sum(each.restarts for each in facts.services)),
    "poison": _poison,
    "index_percent": _index,
    "room_refused": _room,
    "disk_used_percent": _disk,
    "inodes_used_percent": _inodes,
    "checkpoint_lag": lambda facts: float(facts.checkpoint_lag) if facts.counters else None,
    "in_doubt": _counter("units_in_doubt"),
    "archive_pending": lambda facts: (
        None if facts.archive_pending is None else float(facts.archive_pending)),
    "quarantined": _counter("quarantined"),
    "standbys_away": lambda facts: float(facts.standbys_away),
    "standbys_differ": lambda facts: float(facts.standbys_differ),
    "standby_lag_s": lambda facts: facts.standby_lag_s,
    "unprotected": lambda facts: facts.unprotected,
    "lease_trouble": lambda facts: facts.lease_trouble,
    "ship_lag_s": lambda facts: facts.ship_lag_s,
    "ship_trouble": lambda facts: facts.ship_trouble,
}
OF_QUEUE: Final[dict[str, OfQueue]] = {
    "messages": lambda each, _now: float(each.row.messages),
    "ready": lambda each, _now: float(each.row.ready),
    "deferred": lambda each, _now: float(each.row.deferred),
    "put_off": lambda each, _now: float(each.put_off),
    "held": lambda each, _now: float(each.row.held),
    "oldest_s": lambda each, now_ns: each.oldest_s(now_ns),
    "full_percent": lambda each, _now: (
        0.0 if each.row.max_depth >= UNLIMITED
        else _percent(each.row.messages, each.row.max_depth)),
    "unread": lambda each, _now: 0.0 if each.readers else float(each.row.ready),
    "stuck": lambda each, _now: float(each.row.ready + each.row.prepared) if each.stuck else 0.0,
}
EACH: Final = "*"
OF_ROOM: Final = frozenset({"room_refused", "disk_used_percent", "inodes_used_percent"})
"""Those of which what fills the spool is the cause."""


def values(measure: str, queue: str, facts: Facts) -> dict[str, float]:
    """What is measured now, by queue; by the empty name of the instance."""
    if measure in OF_INSTANCE:
        value = OF_INSTANCE[measure](facts)
        return {} if value is None else {"": value}
    return {each.row.name: OF_QUEUE[measure](each, facts.time_ns) for each in facts.queues
            if each.row.name == queue or (
                queue == EACH and not each.row.special and each.row.name not in KEPT_RECORDS)}
