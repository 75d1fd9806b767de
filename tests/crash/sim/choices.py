"""Which of the legal subsets of pending changes are tried at a cut.

All of them when there are few; else nothing, everything, every prefix, every single change kept or
dropped, and random ones. For each uncertain write besides: torn in its sectors, with what was
before it or without, and with one sector of garbage. The order is fixed by the seed, so `label`
names a state for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from random import Random
from typing import Final

from tests.crash.sim.platter import Choice, Data, Pending

Selection = list[Choice]
EXHAUSTIVE: Final = 5
"""Changes of which every subset is tried: 32 of them."""
_TORN: Final = 6
"""Torn forms of one write."""


def selections(pending: Sequence[Pending], random: Random, extra: int = 8
               ) -> Iterator[tuple[str, Selection]]:
    """(label, choice) for this cut; `extra`: how many random ones."""
    every = range(len(pending))
    yield "none", []
    if not pending:
        return
    yield "all", [Choice(i) for i in every]
    if len(pending) <= EXHAUSTIVE:
        for size in range(1, len(pending)):
            for chosen in combinations(every, size):
                yield "subset:" + ",".join(map(str, chosen)), [Choice(i) for i in chosen]
    else:
        for i in every:
            yield f"keep:{i}", [Choice(i)]
            yield f"drop:{i}", [Choice(j) for j in every if j != i]
            yield f"prefix:{i}", [Choice(j) for j in range(i)]
    yield from _torn(pending, random)
    for turn in range(extra):
        yield f"random:{turn}", _random(pending, random)


def _random(pending: Sequence[Pending], random: Random) -> Selection:
    out = []
    for i, change in enumerate(pending):
        if random.random() < 0.5:
            continue
        sectors = None
        if isinstance(change, Data) and len(change.pieces) > 1 and random.random() < 0.6:
            sectors = tuple(s for s in range(len(change.pieces)) if random.random() < 0.5)
        out.append(Choice(i, sectors))
    return out


def _torn(pending: Sequence[Pending], random: Random) -> Iterator[tuple[str, Selection]]:
    for i, change in enumerate(pending):
        if not isinstance(change, Data) or not change.pieces:
            continue
        count = len(change.pieces)
        before = [Choice(j) for j in range(i)]
        rest = [Choice(j) for j in range(len(pending)) if j != i]
        for name, sectors in _forms(count, random):
            yield f"torn:{i}:{name}", [*before, Choice(i, sectors)]
            if len(rest) > len(before):
                yield f"torn+:{i}:{name}", sorted([*rest, Choice(i, sectors)],
                                                  key=lambda choice: choice.index)
        for garbage in sorted({0, count - 1, random.randrange(count)}):
            kept = tuple(range(garbage))
            yield f"garbage:{i}:{garbage}", [*before, Choice(i, kept, garbage)]
            every = tuple(s for s in range(count) if s != garbage)
            yield f"garbage+:{i}:{garbage}", [Choice(i, every, garbage)]


def _forms(count: int, random: Random) -> Iterator[tuple[str, tuple[int, ...]]]:
    if count == 1:
        yield "empty", ()
        return
    yield "empty", ()
    yield "first", (0,)
    yield "last", (count - 1,)
    yield "half", tuple(range(count // 2))
    yield "tail", tuple(range(1, count))
    yield "head", tuple(range(count - 1))
    for turn in range(_TORN - 4 if count > 3 else 1):
        yield f"mix{turn}", tuple(s for s in range(count) if random.random() < 0.5)
