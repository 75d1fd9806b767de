"""A queue manager's client in memory, for the tools that use one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from omq.base.errors import BodyDamaged

MESSAGE_ID = "4f4d5131" + "00" * 19 + "2a"


@dataclass
class FakeMessage:
    """As handed out; `ended` is what the reader said of it."""

    content: bytes = b"body"
    properties: Mapping[str, str] = field(default_factory=dict)
    queue: str = "ORDERS"
    message_id: str = MESSAGE_ID
    qpool_id: int = 42
    priority: int = 4
    attempts: int = 0
    defers: int = 0
    redelivered: bool = False
    put_time_ns: int = 1_700_000_000_000_000_000
    correlation_id: bytes = b""
    reply_to: str = ""
    group_id: str = ""
    container: Path | None = None
    damaged: bool = False
    ended: tuple[Any, ...] = ()

    @property
    def texts(self) -> Mapping[str, str]:
        return self.properties

    @property
    def size(self) -> int:
        return len(self.content)

    @property
    def body(self) -> bytes:
        if self.damaged:
            raise BodyDamaged(qpool_id=self.qpool_id, where="file 1", expected=1, got=2)
        return self.content

    def _end(self, *how: Any) -> None:
        assert not self.ended, "settled twice"
        self.ended = how

    def done(self) -> None:
        self._end("done")

    def defer(self, seconds: float, reason: str = "") -> None:
        self._end("defer", seconds, reason)

    def fail(self, reason: str = "") -> None:
        self._end("fail", reason)

    def release(self) -> None:
        self._end("release")

    def move(self, queues: Sequence[str], new: Sequence[Any] = ()) -> None:
        self._end("move", queues, new)


@dataclass
class FakeReader:
    """Hands out `waiting`; `on_empty` is called when there is nothing."""

    waiting: list[FakeMessage] = field(default_factory=list)
    on_empty: Callable[[], None] = lambda: None
    asked: list[tuple[int, float]] = field(default_factory=list)
    flushes: int = 0
    interrupts: int = 0

    def next(self, n: int, timeout_s: float) -> list[FakeMessage]:
        self.asked.append((n, timeout_s))
        batch, self.waiting = self.waiting[:n], self.waiting[n:]
        if not batch:
            self.on_empty()
        return batch

    def flush(self) -> None:
        self.flushes += 1

    def interrupt(self) -> None:
        self.interrupts += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        return None


@dataclass
class FakeConnection:
    """Notes what is put; gives `source` as the reader of every queue."""

    source: FakeReader = field(default_factory=FakeReader)
    puts: list[dict[str, Any]] = field(default_factory=list)
    connects: list[dict[str, Any]] = field(default_factory=list)
    readers: list[dict[str, Any]] = field(default_factory=list)
    longest: int = 1 << 20

    def length_max(self, queue: str) -> int:
        return self.longest

    def connect(self, **how: Any) -> Self:
        self.connects.append(how)
        return self

    def put(self, queues: tuple[str, ...], body: bytes, **options: Any) -> str:
        self.puts.append({"queues": queues, "body": body, **options})
        return f"{len(self.puts):048x}"

    def reader(self, queue: str, *, batch: int, auxiliary: bool, where: str) -> FakeReader:
        assert not where, "who selects asks a real manager"
        self.readers.append({"queue": queue, "batch": batch, "auxiliary": auxiliary})
        return self.source

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        return None
