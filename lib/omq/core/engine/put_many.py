"""Several messages in one request, on one queue, all or none: the checks of core.engine.puts for
all of them together, then its effects one by one.

Errors, each leaving everything unchanged: those of core.engine.puts.
"""

from __future__ import annotations

from omq.base.errors import BadRequest, SpoolFull
from omq.core.engine import puts
from omq.core.engine.barriers import ASKED
from omq.core.engine.duplicates import watching
from omq.core.engine.engine import Engine
from omq.core.engine.puts import NewMessage, check_queue
from omq.core.engine.state import CONTAINER, PERSISTENT, Core, Party
from omq.format.index import Counter
from omq.format.journal import FRAME, FrameFlag
from omq.format.wire import PutFlag

_PUT_FLAGS = int(sum(PutFlag))
_PUTS = int(Counter.PUTS)
_AT = tuple(map(FRAME.names.index, (
    "priority", "flags", "size", "crc", "correlation", "lease", "argument", "parts", "length")))


def put_many(engine: Engine, party: Party, heads: memoryview, payloads: memoryview, count: int,
             queue: int, sequence: int) -> int:
    """The messages of these frames, whose payloads lie one after the other; the first QPoolId,
    which the others follow."""
    asked = _listed(heads[: count * FRAME.size], payloads, queue)
    # Whichever way they go below: nobody names a container here that is not his.
    if not party.owns and any(new.flags & CONTAINER for new in asked):
        raise BadRequest(reason="containers are only taken from the owner of the spool")
    if any(new.flags & ASKED for new in asked):
        raise BadRequest(reason=puts.BARRIER_ALONE)
    parted = any(new.parts for new in asked)
    if not parted and any(new.key and watching(engine.core, new) for new in asked):
        return engine.units.put(party, asked, sequence)
    if parted:
        raise BadRequest(reason="messages of a batch go on one queue")
    _check(engine.core, party, asked, queue)
    first, last = engine.core.next_qpool, count - 1
    bodies = puts.place_bodies(engine.core, asked)
    for i, (new, body) in enumerate(zip(asked, bodies, strict=True)):
        ends = int(FrameFlag.RESULT) if i == 0 else 0
        if i == last:
            ends |= FrameFlag.REQUEST_END
        puts.append(engine.core, party, new, puts.parts_of(engine.core, new), sequence, ends, 0,
                    body)
    engine.core.t.counters[_PUTS] += count
    return first


def _listed(heads: memoryview, payloads: memoryview, queue: int) -> list[NewMessage]:
    """What the frames say, each read once: a client may write there meanwhile. BadRequest."""
    out, end = [], 0
    for row in FRAME.iter_unpack(heads):
        priority, flags, size, crc, correlation, key, expiry, parts, length = (
            row[at] for at in _AT)
        begin, end = end, end + length
        out.append(NewMessage(queue, priority, flags & _PUT_FLAGS, size, crc, correlation, key,
                              expiry, parts, payloads[begin:end]))
    if end > len(payloads):
        raise BadRequest(reason="messages do not fit the request")
    return out


def _check(core: Core, party: Party, asked: list[NewMessage], queue: int) -> None:
    """All that can refuse them, and room in one block."""
    count = len(asked)
    check_queue(core, queue, max(new.size for new in asked), max(new.priority for new in asked),
                count)
    puts.check_room(core, count, count, puts.rows_kept(core, party))
    if not core.space_left and any(new.flags & PERSISTENT for new in asked):
        raise SpoolFull(path="the spool", detail=core.room.refusal)
    core.block.reserve(count, sum(len(new.payload) for new in asked))
