"""Keys of limited queues that are paused: nothing of them is handed out until they are resumed.

Each is a line among the definitions (format.definition, kind "pause"), so it is journaled by a
DEFINE frame, kept by checkpoints in poolctrl, taken back by UNDEFINE, and the same after every
restart; an older omq keeps the line as one that it does not understand, and hands out. It belongs
to the queue's name: it follows a rename, and goes with the queue; of a queue that is rolled over
both have it. On a queue without `limit_by` it waits until there is one.

In the middle of a crash: the frame is in the journal or not, and so is the pause.
Errors: WrongKind.
"""

from __future__ import annotations

from typing import Final

from omq.base.errors import WrongKind
from omq.core.engine import limited
from omq.core.engine.state import Core
from omq.format.definition import LINE_BYTES_MAX, Definition, pause_line
from omq.format.journal import FrameFlag, FrameType

NAME_BYTES: Final = 16


class Pauses:
    """See the module. `lines`: by their name."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.lines: dict[str, Definition] = {}

    def of(self, queue: str) -> list[str]:
        """The keys of a queue that are paused."""
        return sorted(line.keys.get("key", "") for line in self.lines.values()
                      if line.keys.get("queue") == queue)

    def check(self, queue: str, *, keyed: bool) -> None:
        """May keys of it be paused? WrongKind."""
        if not keyed:
            raise WrongKind(queue=queue, kind="without keys",
                            reason="limit_by says what the key of a message is; "
                                   "get=inhibited holds all of the queue")

    def line(self, queue: str, key: str) -> Definition:
        """What is written down of a pause."""
        return pause_line(queue, key)

    def pause(self, line: Definition) -> None:
        """It is in force when its frame is; the caller has checked and reserved."""
        self.lines[line.name] = line
        self._core.block.frame(FrameType.DEFINE, FrameFlag.PERSISTENT, 0, 0,
                               payload=line.line().encode())

    def resume(self, queue: str, key: str) -> bool:
        """Whether it was paused. The caller has reserved."""
        line = self.line(queue, key)
        if line.name not in self.lines:
            return False
        self._forget(line)
        return True

    def reserve(self, queue: str) -> tuple[int, int]:
        """Frames and bytes that `renamed` and `removed` take."""
        count = len(self.of(queue))
        return 2 * count, (LINE_BYTES_MAX + NAME_BYTES) * count

    def lines_as(self, queue: str, new: str) -> list[Definition]:
        """What would be written down if a queue with the same pauses were called `new`."""
        return [self.line(new, key) for key in self.of(queue)]

    def renamed(self, queue: str, new: str) -> None:
        """They follow the queue."""
        for key in self.of(queue):
            self._forget(self.line(queue, key))
            self.pause(self.line(new, key))

    def removed(self, queue: str) -> None:
        """They go with the queue."""
        for key in self.of(queue):
            self.resume(queue, key)

    def apply(self, queue: str, number: int) -> None:
        """The tables know what is paused on this queue."""
        core, texts = self._core, self.of(queue)
        if texts or number in core.limits.paused:
            core.limits.pause(number, texts, core.mono_ns)
            if number in core.limited:
                limited.opened(core, core.limited[number])

    def _forget(self, line: Definition) -> None:
        del self.lines[line.name]
        self._core.block.frame(FrameType.UNDEFINE, FrameFlag.PERSISTENT, 0, 0,
                               payload=line.name.encode())
