"""Units of work: what one client took from queues, and puts on queues, all or nothing (ADR 0034).

A unit is open in the client that works on it: its messages are handed out to it like any others,
what it will put has not been born. `commit` is one request, and its frames are one block: DONE for
each message that was taken, PUT for each new one, all with the LSN of the first as their unit of
work. So a unit needs no frames of its own, and whoever reads the journal needs to know nothing of
it. `back_out` gives the messages back to their old places, with the attempt counted.

In the middle of a crash: the block is whole or absent (core.engine.block). A block may be as large
as the limits of a unit allow, larger than a group is otherwise; one that is torn fails its CRC, and
a payload that is torn condemns the unit with its request (core.redo.redo). Before the commit the
journal has only hand-outs: they come back as those of any reader that is gone.

Errors: those of core.engine.puts, LeaseLost, BadRequest, before anything is changed.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Sequence

from omq.base.errors import BadRequest, LeaseLost, QueueFull
from omq.core.engine.puts import NewMessage, append, check, check_room, place_bodies, rows_kept
from omq.core.engine.reader_notes import left
from omq.core.engine.settle import END, Verdict, done, held
from omq.core.engine.state import IDEL, Core, Party, Poisoned
from omq.core.engine.taking_back import Returning
from omq.format.frame_rules import Reason
from omq.format.index import Counter
from omq.format.message import Part

_PUTS, _COMMITTED, _BACKED_OUT = (int(Counter.PUTS), int(Counter.UNITS_COMMITTED),
                                  int(Counter.UNITS_BACKED_OUT))


class Units:
    """What the engine does with units of work. `take_back`: of core.engine.taking_back."""

    def __init__(self, core: Core, take_back: Callable[[Iterable[Returning]], None]) -> None:
        self._core, self._take_back = core, take_back

    def commit(self, party: Party, taken: Sequence[Verdict], new: Sequence[NewMessage],
               sequence: int) -> int:
        """A whole unit; the first new QPoolId, 0 when it puts nothing."""
        first, puts = commit(self._core, party, taken, new, sequence)
        counters = self._core.t.counters
        counters[_PUTS] += puts
        counters[_COMMITTED] += 1
        return first

    def put(self, party: Party, new: Sequence[NewMessage], sequence: int) -> int:
        """Messages of one request whose ids their queues remember (core.engine.duplicates), with
        what is remembered; the first QPoolId."""
        first, puts = commit(self._core, party, (), new, sequence)
        self._core.t.counters[_PUTS] += puts
        return first

    def back_out(self, party: Party, taken: Iterable[Verdict]) -> int:
        """Give back what was taken, as far as it is held still; how many were not."""
        core, lost = self._core, 0
        for each in taken:
            try:
                entry = held(core, party, each.entry, each.qpool, each.lease)
            except LeaseLost:
                lost += 1
                continue
            lease = core.t.e_lease[entry]
            self._take_back([Returning(entry, lease, Reason.BACKED_OUT, party)])
        return lost

    def back_out_rest(self, party: Party) -> None:
        """Everything that it holds still: hand-outs that it has given up before they reached it."""
        if party.active:
            self._take_back(left(self._core, party, {}, None, _unheard, Reason.BACKED_OUT))

    def backed_out(self) -> None:
        """Count it."""
        self._core.t.counters[_BACKED_OUT] += 1


def _unheard(poisoned: Poisoned) -> None:
    """Nothing is settled by a note here."""
    raise AssertionError(poisoned)


def commit(core: Core, party: Party, taken: Sequence[Verdict], new: Sequence[NewMessage],
           sequence: int) -> tuple[int, int]:
    """Finish what was taken and put what is new, as one; the first new QPoolId, 0: there is none,
    and how many were put. The caller has seen to it that a block can hold it."""
    entries = entries_of(core, party, taken)
    core.barriers.judged(core, party, new)
    first, asked = core.next_qpool if new else 0, len(new)
    new, absorbed = core.duplicates.judged(core, new, len(entries))
    kept = rows_kept(core, party, moves=bool(entries))  # one that ends messages is like a move
    listed = [check(core, message, kept) for message in new]
    check_unit(core, entries, listed, kept)
    core.block.reserve(len(entries) + len(new), sum(len(message.payload) for message in new))
    bodies = place_bodies(core, new)
    unit, last = core.block.lsn, len(entries) + len(new) - 1
    for i, entry in enumerate(entries):
        done(core, entry, party, sequence, END if i == last else 0, unit)
    core.settled(party, len(entries))
    for i, (message, parts, body) in enumerate(zip(new, listed, bodies, strict=True)):
        ends = END if len(entries) + i == last else 0
        append(core, party, message, parts, sequence, ends, unit, body)
    return first, asked - absorbed


def entries_of(core: Core, party: Party, taken: Sequence[Verdict]) -> list[int]:
    """Of what was taken, each once. LeaseLost, BadRequest."""
    entries = [held(core, party, each.entry, each.qpool, each.lease) for each in taken]
    if len(set(entries)) != len(entries):
        raise BadRequest(reason="a message is named twice")
    if any(core.t.e_queue[entry] == IDEL for entry in entries):
        raise BadRequest(reason="messages on IDEL cannot be part of a unit of work")
    return entries


def check_unit(core: Core, leaving: Sequence[int], listed: Sequence[Sequence[Part]], kept: int,
               more: int = 0) -> None:
    """The unit as a whole, of which each piece was checked; `more` rows of both tables."""
    t = core.t
    arriving = Tally(part.queue for parts in listed for part in parts)
    total = arriving.total()
    arriving.subtract(t.e_queue[entry] for entry in leaving)
    for queue, count in arriving.items():
        rules = core.rules[queue]
        if count > 0 and queue != IDEL and t.q_depth[queue] + count > rules.max_depth:
            raise QueueFull(queue=rules.name, limit=rules.max_depth)
    check_room(core, len(listed) + more, total + more, kept)
