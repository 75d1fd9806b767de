"""Moves of several messages by one request: each leaves its queue, and the new messages that take
its place are put. All of the request happens, or nothing.

A reader that works on batches sends one request for all of a batch: one group of the journal, one
answer. What each message became stays told apart: its DONE frame and the PUTs that it made have an
LSN of their own as their unit of work, as those of core.engine.moves.

In the middle of a crash: the frames of the request are one block, which is whole or absent
(core.engine.block). A payload that is torn in what was never acknowledged condemns all of the
request (core.redo.redo): then it was not carried out, and its client sends it again.

Errors: those of core.engine.units, before anything is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from omq.base.errors import BadRequest
from omq.core.engine.puts import NewMessage, append, check, place_bodies, rows_kept
from omq.core.engine.settle import END, Verdict, done
from omq.core.engine.state import Core, Party
from omq.core.engine.units import check_unit, entries_of
from omq.format.index import Counter

if TYPE_CHECKING:
    from omq.core.engine.engine import Engine

_PUTS = int(Counter.PUTS)


def move_many(engine: Engine, party: Party, ends: Sequence[Verdict], new: Sequence[NewMessage],
              sequence: int) -> int:
    """`argument` of each verdict: how many of the new messages, in their order, take its place.
    The first new QPoolId, 0: there is none."""
    core = engine.core
    counts = [each.argument for each in ends]
    if not counts or min(counts) < 0 or sum(counts) != len(new):
        raise BadRequest(reason="the new messages are not those of the messages that move")
    entries = entries_of(core, party, ends)
    kept = rows_kept(core, party, moves=True)
    first = core.next_qpool if new else 0
    new, counts = _without_duplicates(core, new, counts)
    listed = [check(core, message, kept) for message in new]
    check_unit(core, entries, listed, kept)
    frames = len(entries) + len(new)
    core.block.reserve(frames, sum(len(message.payload) for message in new))
    ready = zip(new, listed, place_bodies(core, new), strict=True)
    for entry, count in zip(entries, counts, strict=True):
        frames -= 1
        unit = done(core, entry, party, sequence, 0 if frames else END,
                    core.block.lsn if count else 0)
        for message, parts, body in (next(ready) for _ in range(count)):
            frames -= 1
            append(core, party, message, parts, sequence, 0 if frames else END, unit, body)
    for message, parts, body in ready:  # what is remembered of their ids
        frames -= 1
        append(core, party, message, parts, sequence, 0 if frames else END, 0, body)
    core.settled(party, len(entries))
    core.t.counters[_PUTS] += sum(counts)
    return first


def _without_duplicates(core: Core, new: Sequence[NewMessage], counts: list[int]
                        ) -> tuple[Sequence[NewMessage], list[int]]:
    """What is put (core.engine.duplicates), and how many of it for each message that moves."""
    judged, absorbed = core.duplicates.judged(core, new, len(counts))
    if absorbed:
        there, asked = {id(message) for message in judged}, iter(new)
        counts = [sum(id(next(asked)) in there for _ in range(count)) for count in counts]
    return judged, counts
