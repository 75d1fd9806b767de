"""Keys of limited queues that are paused: nothing of them is handed out until they are resumed.

Each is a line among the definitions (format.definition, kind "pause"), so it is journaled by a
DEFINE frame, kept by checkpoints in poolctrl, taken back by UNDEFINE, and the same after every
restart; an older omq keeps the line as one that it does not understand, and hands out. It belongs
to the queue's name: it follows a rename, and goes with the queue. On a queue without `limit_by` it
waits until there is one.

In the middle of a crash: the frame is in the journal or not, and so is the pause.
Errors: WrongKind, UnknownQueue, BadDefinition, TooManyQueues, SpoolFull.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from omq.base.errors import BadDefinition, WrongKind
from omq.base.names import escape
from omq.core.engine import limited
from omq.core.engine.state import Core
from omq.format.definition import LINE_BYTES_MAX, Definition, Kind
from omq.format.journal import FrameFlag, FrameType

KEY_CHARACTERS_MAX: Final = 200
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

    def check(self, queue: str, key: str, *, keyed: bool) -> None:
        """May this key be paused? WrongKind, BadDefinition."""
        if not keyed:
            raise WrongKind(queue=queue, kind="without keys",
                            reason="limit_by says what the key of a message is; "
                                   "get=inhibited holds all of the queue")
        if len(key) > KEY_CHARACTERS_MAX or not key.isprintable():
            raise BadDefinition(queue=queue, key="key", reason=f"{escape(key, 32)}: not a key",
                                allowed=f"up to {KEY_CHARACTERS_MAX} printable characters")

    def line(self, queue: str, key: str) -> Definition:
        """What is written down of a pause."""
        digest = blake2b(f"{queue}\0{key}".encode(), digest_size=5).hexdigest().upper()
        return Definition(f"PAUSE.{digest}", Kind.PAUSE, {"queue": queue, "key": key})

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
