"""Messages that differ in nothing but their bodies, as servers of other protocols have them by the
hundred: what they share is kept once, looked at once, and no object is made for each.

To whoever treats them as any sequence of messages they are one: a message is made when it is looked
at, and another one each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import overload

from omq.ipc.wire.outgoing import Outgoing


class Alike(Sequence[Outgoing]):
    """`pattern` with each of `bodies`. They are of no group: a place in one is each message's own,
    and so are ids, which `pattern` has none of."""

    __slots__ = ("bodies", "pattern")

    def __init__(self, pattern: Outgoing, bodies: list[bytes]) -> None:
        assert not pattern.group_id and not pattern.message_id and not pattern.correlation_id
        self.pattern, self.bodies = pattern, bodies

    def __len__(self) -> int:
        return len(self.bodies)

    @overload
    def __getitem__(self, at: int) -> Outgoing: ...
    @overload
    def __getitem__(self, at: slice) -> Alike: ...
    def __getitem__(self, at: int | slice) -> Outgoing | Alike:
        if isinstance(at, slice):
            return Alike(self.pattern, self.bodies[at])
        return self.pattern.with_body(self.bodies[at])


def joined(many: Sequence[Sequence[Outgoing]]) -> Sequence[Outgoing]:
    """All of them, one after the other; they stay alike where all are."""
    alike = [each for each in many if isinstance(each, Alike)]
    if len(alike) == len(many) and all(each.pattern == alike[0].pattern for each in alike):
        return Alike(alike[0].pattern, [*chain.from_iterable(each.bodies for each in alike)])
    return [*chain.from_iterable(many)]
