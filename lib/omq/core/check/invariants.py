"""Invariants: one total check of the index, of a live engine or of a copy that anybody can read.

`check_index` takes nothing but the bytes of an index: what omqcheck sees of a running manager, or
of the segment that a dead one left. `check` takes the engine itself and looks at what only the
manager has, too: free rows, heaps, lanes, limbo, readers. Both return findings, in the order of
`Rule`, and raise nothing whatever the bytes are: every number found there is bounded before it is
used.

    promise                                          rules that stand for it
    a message is on the queues that it says          PARTS, SIBLING, TWICE, IDEL
    order is priority, then submission               CHAIN, LANE
    who is handed out to is there, or it comes back  READER, LIMBO, DUE, RUNNABLE
    nothing leaks: no row, pool slot or body         FREE, SLOT, VOLATILE
    what is counted is there, ids are unique         QUEUE, COUNTER, NUMBER

What is promised over time (nothing lost, nothing twice, attempts kept) tests/model compares with a
model.

Both are for the time between two groups (`Counter.VERSION` even): inside one, counters lag behind.
Cost: passes of numpy over whole columns; 1,000,000 messages take about a second.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from omq.core.check.broken_rules import Broken, Report, Rule
from omq.core.check.engine_checks import EngineChecks
from omq.core.check.index_checks import IndexChecks
from omq.core.engine.engine import Engine
from omq.core.engine.state import Party
from omq.format.index import COUNTERS_AT, Counter, IndexLayout

__all__ = ["Broken", "Rule", "check", "check_index", "snapshot"]


def check_index(buffer: memoryview, layout: IndexLayout) -> list[Broken]:
    """Everything that the bytes of an index say by themselves; of a live one pass `snapshot`."""
    report = Report()
    IndexChecks(buffer, layout, report).run()
    return report.sorted()


def check(engine: Engine, parties: Iterable[Party] = ()) -> list[Broken]:
    """The tables of a live engine and its private structures, between two groups.

    `parties`: the clients that are registered, if the caller knows them: then their counts are
    checked, and nobody else may hold a message."""
    report, t = Report(), engine.core.t
    IndexChecks(t.buffer, t.layout, report, t.buckets).run()
    EngineChecks(engine, list(parties), report).run()
    return report.sorted()


def snapshot(buffer: memoryview, size: int, tries: int = 100) -> memoryview | None:
    """A copy of a live index taken between two groups; None when the manager was never idle for as
    long as copying takes."""
    for _ in range(tries):
        before = int(np.frombuffer(buffer, "<u8", 1, COUNTERS_AT + 8 * Counter.VERSION)[0])
        if before % 2:
            continue
        copy = memoryview(bytes(buffer[:size]))
        if int(np.frombuffer(buffer, "<u8", 1, COUNTERS_AT + 8 * Counter.VERSION)[0]) == before:
            return copy
    return None
