"""The figures that pages show, each with its name and its explanation: one table for the first page
and for its live values.

A live value is a text under a key, `f:puts` or `q:ORDERS:messages`; the page's script writes it
into the element that has the key. Invariant: a page's own text and the live value are made by one
function, so they cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from omq.base.names import KEPT_RECORDS, POISON_NAME
from omq.cli.watch.facts import Facts, QueueFacts
from omq.cli.web.rendering import NONE, age, number, percent, rate, size
from omq.cli.web.snapshots import Moment
from omq.core.engine.queue_rules import UNLIMITED
from omq.core.index.rows import QueueRow
from omq.format.index import QueueFlag

Value = Callable[[Moment], str]
STATE_WORDS: Final = {
    "live": ("works", "good"), "hung": ("hangs", "bad"), "segment": ("is dead", "bad"),
    "absent": ("does not run", "bad")}
"""Word and colour for the queue manager."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One of the overview. `series`: of the ring; empty: it has no sparkline."""

    key: str
    title: str
    why: str
    value: Value
    series: str = ""


def _counter(name: str) -> Value:
    return lambda m: number(m.facts.counters.get(name) if m.facts and m.facts.counters else None)


def _rate(name: str) -> Value:
    return lambda m: f"{rate(m.rates[name])}/s" if name in m.rates else NONE


def _of(value: Callable[[Facts], str]) -> Value:
    return lambda m: NONE if m.facts is None or not m.facts.counters else value(m.facts)


def _oldest(facts: Facts) -> str:
    return age(max((each.oldest_s(facts.time_ns) for each in facts.queues), default=0.0))


def _poison(facts: Facts) -> str:
    return number(sum(each.row.messages for each in facts.queues if each.row.name == POISON_NAME))


def _index(facts: Facts) -> str:
    return percent(100 * facts.counters["messages"] / max(1, facts.messages_max))


def _standby(facts: Facts) -> str:
    return NONE if facts.standby_lag_s is None else age(facts.standby_lag_s)


def _protection(facts: Facts) -> str:
    return NONE if facts.protection is None else facts.protection.state


def _shipped(facts: Facts) -> str:
    state = facts.shipping
    if state is None or state.waits_s is None:
        return NONE
    lacks = state.waits_bytes
    return age(state.waits_s) + (f", {size(lacks)}" if lacks else "")


def _free(moment: Moment) -> str:
    return NONE if moment.facts is None else size(moment.facts.space.free_bytes)


def _filled(moment: Moment) -> str:
    found = {} if moment.facts is None else moment.facts.filled.parts
    largest = max(found, key=lambda part: found[part], default="")
    return f"{largest} {size(found[largest])}" if largest else NONE


FIGURES: Final = (
    Figure("puts", "Put", "by programs, and acknowledged to them",
           _rate("puts"), ":puts"),
    Figure("gives", "Handed out", "to readers, also a second time",
           _rate("gives"), ":gives"),
    Figure("dones", "Finished", "readers are done with them",
           _rate("dones"), ":dones"),
    Figure("messages", "Messages", "in the instance now, each counted once",
           _counter("messages"), ":messages"),
    Figure("oldest", "Oldest", "how long the oldest message has been on its queue",
           _of(_oldest), ":oldest"),
    Figure("poison", "On POISON", "failed too often; they wait for an operator",
           _of(_poison), f"{POISON_NAME}:messages"),
    Figure("in_doubt", "Units in doubt", "prepared, and not decided they end",
           _counter("units_in_doubt")),
    Figure("barriers", "Barriers", "messages that wait until others are done",
           _counter("barriers_waiting")),
    Figure("clients", "Clients", "programs that are connected", _counter("clients"), ":clients"),
    Figure("journal", "Journal", "written and synced",
           lambda m: size(m.rates["journal_bytes"]) + "/s" if m.rates else NONE, ":journal_bytes"),
    Figure("lag", "Pool lag", "frames of the journal that a restart would replay",
           _of(lambda f: number(f.checkpoint_lag)), ":lag"),
    Figure("standby", "Standby behind", "age of the oldest that a standby lacks, of the slowest",
           _of(_standby)),
    Figure("protection", "Acknowledged", "is on the disks of standbys (synced), waits for them, or "
           "is on this disk alone", _of(_protection)),
    Figure("shipped", "Store behind", "what has waited longest that the object store does not "
           "have, and its bytes", _of(_shipped)),
    Figure("free", "Disk free", "on the file system of the spool", _free, ":free"),
    Figure("filled", "Fills the disk", "the largest part of the spool", _filled),
    Figure("index", "Index used", "of the messages that shared memory has room for", _of(_index)),
    Figure("paused", "Slowed down", "of the time; the manager waits for pool.writer to catch up",
           lambda m: percent(m.rates["paused_ms"] / 10 if m.rates else None), ":paused_ms"),
)
COLUMNS: Final = (
    ("messages", "Messages", "on the queue, in every state"),
    ("ready", "Ready", "a reader gets them at once"),
    ("active", "Active", "in the hands of readers"),
    ("deferred", "Deferred", "wait for their time"),
    ("held", "Held", "wait for an operator"),
    ("in", "In/s", "put on it a second, from wherever"),
    ("out", "Out/s", "finished with a second"),
    ("oldest", "Oldest", "how long its oldest message has been there"),
    ("readers", "Readers", "programs that are registered to take from it"),
)
"""Of the table of queues: key, title, explanation."""


def manager_words(moment: Moment) -> tuple[str, str]:
    """How the queue manager is, and its colour."""
    return STATE_WORDS[moment.state]


def queue_words(each: QueueFacts) -> tuple[str, str]:
    """How a queue is, in a few words, and its colour: good, plain, warn, bad."""
    row = each.row
    if row.name == POISON_NAME:
        return ("look at it", "bad") if row.messages else ("empty", "plain")
    if row.special:
        return "kept for undo" if row.messages else "empty", "plain"
    words = []
    if row.flags & QueueFlag.SUSPENDED:
        words.append("held")
    if row.flags & QueueFlag.DRAINS:
        words.append("drains")
    elif row.flags & QueueFlag.PUT_INHIBITED:
        words.append("no puts")
    elif 0 < row.max_depth < UNLIMITED and row.messages >= row.max_depth:
        words.append("full")
    if row.ready and not each.readers and "held" not in words and row.name not in KEPT_RECORDS:
        words.append("no reader")
    if words:
        return ", ".join(words), "warn"
    return ("moves", "good") if row.messages else ("empty", "plain")


def queue_cells(moment: Moment, each: QueueFacts) -> dict[str, str]:
    """The texts of a queue, by the keys of COLUMNS; its state besides."""
    row, now_ns = each.row, moment.facts.time_ns if moment.facts else 0
    moving = moment.moving.get(row.name)
    return {
        "state": queue_words(each)[0], "messages": number(row.messages),
        "ready": number(row.ready), "active": number(row.active),
        "deferred": number(row.deferred), "held": number(row.held),
        "in": rate(moving[0] if moving else None), "out": rate(moving[1] if moving else None),
        "oldest": age(each.oldest_s(now_ns)), "readers": number(each.readers)}


def sort_key(moment: Moment, sort: str) -> Callable[[QueueFacts], float]:
    """To sort queues by a column, ascending."""
    now_ns = moment.facts.time_ns if moment.facts else 0
    keys: dict[str, Callable[[QueueFacts], float]] = {
        "in": lambda each: moment.moving.get(each.row.name, (0.0, 0.0))[0],
        "out": lambda each: moment.moving.get(each.row.name, (0.0, 0.0))[1],
        "oldest": lambda each: each.oldest_s(now_ns), "readers": lambda each: each.readers}
    return keys.get(sort) or (lambda each: float(getattr(each.row, sort)))


def live(moment: Moment, queues: Iterable[str] | None = None) -> dict[str, str]:
    """All live values; of queues those that a page shows (None: all)."""
    word, colour = manager_words(moment)
    found = {f"f:{each.key}": each.value(moment) for each in FIGURES}
    found |= {"f:manager": word, "f:manager:colour": colour}
    if moment.facts is None:
        return found
    wanted = None if queues is None else set(queues)
    for each in moment.facts.queues:
        if wanted is None or each.row.name in wanted:
            found |= {f"q:{each.row.name}:{key}": text
                      for key, text in queue_cells(moment, each).items()}
            found[f"q:{each.row.name}:state:colour"] = queue_words(each)[1]
    return found


def limit(value: int) -> str:
    """A limit of a queue."""
    return "none" if value in (0, UNLIMITED) else number(value)


def is_inhibited(row: QueueRow) -> tuple[bool, bool]:
    """Whether (get, put) is."""
    return bool(row.flags & QueueFlag.SUSPENDED), bool(row.flags & QueueFlag.PUT_INHIBITED)
