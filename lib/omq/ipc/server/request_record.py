"""A request as its handlers see it: the numbers of a wire.REQUEST, and its settlements."""

from __future__ import annotations

from dataclasses import dataclass

from omq.base import limits
from omq.base.errors import BadRequest
from omq.core.engine.settle import Verdict
from omq.format.wire import SETTLE, Settlement


@dataclass(slots=True)
class Request:
    """A request whose client and token are right. (Not frozen: that would triple its cost.)"""

    operation: int
    priority: int
    flags: int
    queue: int
    count: int
    length: int
    sequence: int
    size: int
    crc: int
    correlation: int
    want: int
    argument: int
    parts: int
    expiry: int


def verdicts_of(area: memoryview, r: Request) -> list[Verdict]:
    """The settlements at the begin of the channel, each with its reason. BadRequest."""
    texts = r.count * SETTLE.size
    out = []
    for i in range(r.count):
        kind, _, size, entry, qpool, lease, argument, at, _ = SETTLE.unpack_from(
            area, i * SETTLE.size)
        if at + size > r.length:
            raise BadRequest(reason="a reason does not fit the request")
        text = bytes(area[texts + at : texts + at + min(size, limits.REASON_BYTES_MAX)])
        out.append(Verdict(kind, entry, qpool, lease, argument, text))
    return out


def ends_of(area: memoryview, count: int) -> list[Verdict]:
    """Those of a unit of work, or of a move of several messages: each is finished. BadRequest."""
    if count * SETTLE.size > len(area):
        raise BadRequest(reason=f"{count} messages of a unit of work do not fit the request")
    out = [Verdict(kind, entry, qpool, lease, argument)
           for kind, _, _, entry, qpool, lease, argument, _, _ in SETTLE.iter_unpack(
               area[: count * SETTLE.size])]
    if any(each.kind != Settlement.DONE for each in out):
        raise BadRequest(reason="a message of a unit of work is taken, nothing else")
    return out
