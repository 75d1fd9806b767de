"""What a client knows of a queue: asked once a connection."""

from __future__ import annotations

from dataclasses import dataclass

from omq.base import limits


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """What a client knows of a queue: its number, and what its messages are that do not say it."""

    number: int
    priority: int
    persistent: bool
    length_max: int  # bytes of a body
    queues: tuple[str, ...] = ()  # that the name stands for, if that is not itself
    remote: tuple[str, str] | None = None  # queue manager and queue that it goes to in the end

    @property
    def plain(self) -> bool:
        return (self.priority == limits.PRIORITY_NORMAL and self.persistent
                and not self.remote and len(self.queues) < 2)
