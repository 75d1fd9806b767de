"""What omtop shows: figures of one moment, and rates since the moment before.

Read from the index alone; nobody is asked. Rates are differences of counters over the time between
two looks. Errors: those of core.look.look.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Final

import numpy as np

from omq.base import clock, limits
from omq.base.amounts import duration
from omq.base.clock import NS_PER_S
from omq.core.index.rows import QueueRow, ReaderRow
from omq.core.look.look import Look
from omq.core.look.space import Space
from omq.format.index import EntryState

COLUMNS_MAX: Final = 80
"""What is printed fits a terminal of this width."""
SORTS: Final = ("name", "messages", "in", "out", "load", "oldest")
_WAITING: Final = (EntryState.READY, EntryState.DEFERRED, EntryState.HELD, EntryState.ACTIVE)


@dataclass(frozen=True, slots=True)
class QueueLine:
    """One queue. Rates are messages a second, `oldest_s` the age of its oldest message."""

    row: QueueRow
    readers: int
    arriving: float
    leaving: float
    oldest_s: float

    def key(self, sort: str) -> tuple[float, str]:
        """To sort by: the largest first, names in order."""
        figure = {"name": 0.0, "messages": self.row.messages, "in": self.arriving,
                  "out": self.leaving, "load": self.row.load[0], "oldest": self.oldest_s}[sort]
        return (-figure, self.row.name)


@dataclass(frozen=True, slots=True)
class Moment:
    """Everything at one time."""

    time_ns: int
    state: str
    note: str
    counters: dict[str, int]
    queues: tuple[QueueLine, ...]
    readers: tuple[ReaderRow, ...]
    rates: dict[str, float]  # of counters, a second
    space: Space
    gateways: tuple[str, ...] = ()  # a line for each
    mono_ns: int = 0  # the same by the clock that nobody sets: for rates

    def sorted(self, sort: str, *, reverse: bool = False) -> list[QueueLine]:
        return sorted(self.queues, key=lambda line: line.key(sort), reverse=reverse)


_RATED: Final = ("puts", "gives", "dones", "groups", "journal_bytes", "paused_ms")


def moment(seen: Look, now_ns: int, before: Moment | None = None,
           gateways: Sequence[str] = ()) -> Moment:
    """Look now. `before`: the moment that rates are counted from."""
    view = seen.view
    counters, readers = view.counters(), view.readers()
    known = {line.row.number: line.row for line in before.queues} if before else {}
    mono_ns = clock.monotonic_ns()
    elapsed_s = (mono_ns - before.mono_ns) / NS_PER_S if before else 0.0
    lines = []
    for row in view.queues():
        old = known.get(row.number, row)
        ages = view.ages(row.number, _WAITING)
        oldest_s = (now_ns - int(np.min(ages))) / NS_PER_S if len(ages) else 0.0
        lines.append(QueueLine(
            row, sum(reader.queue == row.name for reader in readers),
            _rate(row.ever - old.ever, elapsed_s),
            _rate(row.processed - old.processed, elapsed_s), max(0.0, oldest_s)))
    rates = {name: _rate(counters[name] - before.counters[name] if before else 0, elapsed_s)
             for name in _RATED}
    return Moment(now_ns, seen.origin.value, seen.note, counters, tuple(lines), tuple(readers),
                  rates, seen.space, tuple(gateways), mono_ns)


def _rate(change: int, seconds: float) -> float:
    return max(0.0, change / seconds) if seconds > 0 else 0.0


def head(now: Moment) -> Iterator[str]:
    """The lines above the queues."""
    c, r = now.counters, now.rates
    lag = max(0, c["last_lsn"] - c["checkpoint_lsn"])
    since = f"{duration(max(0, now.time_ns - c['checkpoint_time']) / NS_PER_S)} ago" if (
        c["checkpoint_time"]) else "never"
    yield from _fitted(
        f"manager {now.state}", f"messages {c['messages']}", f"clients {c['clients']}",
        f"put/s {figure(r['puts'])}", f"given/s {figure(r['gives'])}",
        f"done/s {figure(r['dones'])}",
        *([f"expired {_count(c['expired'])}"] if c["expired"] else []))
    yield from _fitted(
        f"journal file {c['journal_file']}", f"{figure(r['journal_bytes'] / 1024)} KiB/s",
        f"groups/s {figure(r['groups'])}", f"LSN {c['last_lsn']}",
        f"checkpoint {since}, {lag} frames behind")
    if r["paused_ms"]:
        yield from wrap(
            f"clients are slowed down: the manager pauses {r['paused_ms'] / 10:.0f} % of the "
            "time, until pool.writer has caught up", COLUMNS_MAX)
    for line in (*now.gateways, now.note):
        yield from wrap(line, COLUMNS_MAX)


def _fitted(*words: str) -> Iterator[str]:
    """These, two blanks between, in lines of at most COLUMNS_MAX."""
    line = ""
    for word in words:
        if line and len(line) + 2 + len(word) > COLUMNS_MAX:
            yield line
            line = word
        else:
            line += ("  " if line else "") + word
    yield line


def figure(value: float) -> str:
    """`12.3`, `1234`, `12k`, `3M`: at most 5 characters."""
    if value < 999.95:
        return f"{value:.1f}"
    for size, unit in ((1, ""), (1000, "k"), (1_000_000, "M")):
        if value < 9999.5 * size or size > 1000:
            return f"{value / size:.0f}{unit}"
    raise AssertionError("the last unit takes all")


def _count(value: int) -> str:
    return str(value) if value < 10_000 else figure(value)


assert limits.QUEUE_NAME_BYTES <= 16
COLUMNS: Final = ("QUEUE", "Msgs", "Act", "Defer", "Held", "In/s", "Out/s", "1m", "5m", "15m",
                  "Old", "Rd")
_WIDTHS: Final = (16, 8, 6, 6, 6, 6, 6, 6, 6, 6, 5, 3)
assert sum(_WIDTHS) <= COLUMNS_MAX


def cells(line: QueueLine) -> list[str]:
    """The columns of a queue."""
    row = line.row
    return [row.name, str(row.messages), _count(row.active), _count(row.deferred),
            _count(row.held), figure(line.arriving), figure(line.leaving), *map(figure, row.load),
            age(line.oldest_s), str(line.readers)]


def age(seconds: float) -> str:
    """`90s`, `12m`, `5h`, `3d`; `-` for nothing."""
    if seconds <= 0:
        return "-"
    for limit, unit, size in ((100, "s", 1), (6000, "m", 60), (360_000, "h", 3600)):
        if seconds < limit:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds // 86400)}d"


def text(now: Moment, lines: Sequence[QueueLine]) -> Iterator[str]:
    """A moment as plain text: omtop --once."""
    yield from head(now)
    yield ""
    for row in (list(COLUMNS), *map(cells, lines)):
        shown = [f"{row[0]:<{_WIDTHS[0]}}"]
        shown += [f"{cell:>{width}}" for cell, width in zip(row[1:], _WIDTHS[1:], strict=True)]
        yield "".join(shown).rstrip()
