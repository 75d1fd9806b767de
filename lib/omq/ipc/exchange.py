"""What goes over a link: the answer to a request, and what a reader tells a new manager."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


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
    auxiliary: bool = False
    messages: Callable[[], list[tuple[int, int]]] = field(default=list)
