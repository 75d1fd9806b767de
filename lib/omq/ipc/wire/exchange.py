"""What goes over a link: the answer to a request, and what a reader tells a new manager."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from omq.fast.reader_note import Note


@dataclass(slots=True)
class Answer:
    """A reply without its rows."""

    count: int
    qpool: int
    lsn: int
    lost: int = 0  # settlements that did not hold
    recovered: bool = False  # carried out by a manager that ended before it could say so


@dataclass(slots=True)
class Held:
    """What a reader tells a new manager that it holds."""

    queue: str = ""
    number: int = 0  # of it: after a roll-over its name is another queue's
    auxiliary: bool = False
    prompt: bool = False  # it keeps a note
    where: str = ""  # what it chooses by, as the manager was told
    bell: bool = False  # its replies are announced over the control connection, too
    unit: bool = False  # a unit of work is open: it ends with the manager
    took: Callable[[], list[tuple[int, int]]] = field(default=list)  # for it, (QPoolId, lease)
    messages: Callable[[], list[tuple[int, int]]] = field(default=list)
    note: Note = field(default_factory=Note)
    say_again: Callable[[], None] = field(default=lambda: None)  # into the note of a new channel
