"""What is going on, shown while it happens: a table that redraws, or plain lines.

On a terminal the table is drawn anew at each look; anywhere else (a pipe, a CI log) one line is
printed every two seconds. The figures come from a View of omq's index, which is read without asking
the queue manager anything; while that is away (it was just killed) the table says so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TextIO

from omq.base.errors import OmqError
from omq.services.delivery.scheduler_status import read_published
from tests.demo.feed import FeedCounts

LINE_EVERY_S = 2.0
# Queues whose messages wait for nobody: finished ones, and what only an operator moves on.
RESTING_QUEUES = frozenset(("IDEL", "POISON", "ERROR", "DEFER"))


class QueueRow(Protocol):
    """One queue of the index; omq's own row has more."""

    @property
    def name(self) -> str: ...
    @property
    def messages(self) -> int:
        """On the queue, the active ones included."""
        ...

    @property
    def active(self) -> int:
        """In the hands of readers."""
        ...

    @property
    def ever(self) -> int:
        """Put on the queue since the instance was made."""
        ...


class View(Protocol):
    """A read-only look at the index."""

    def queues(self) -> Sequence[QueueRow]: ...
    def readers(self) -> Sequence[object]: ...
    def close(self) -> None:
        """Let go of the segment: it stays attached otherwise."""
        ...


@dataclass(frozen=True, slots=True)
class Queues:
    """The queues at one moment."""

    rows: tuple[tuple[str, int, int, int], ...]  # name, messages, active, ever
    readers: int

    @property
    def waiting(self) -> int:
        """Messages that some reader still has to work on."""
        return sum(row[1] for row in self.rows if row[0] not in RESTING_QUEUES)

    @property
    def ever(self) -> int:
        """All that was ever put: grows whenever anything moves on."""
        return sum(row[3] for row in self.rows)


Look = Callable[[], Queues | None]


def take_look(attach: Callable[[], View]) -> Queues | None:
    """Attach, read, let go; None while there is no index to read.

    A view is taken anew each time, because a restarted queue manager may have a new segment.
    """
    try:
        with contextlib.closing(attach()) as view:
            rows = tuple((row.name, row.messages, row.active, row.ever) for row in view.queues())
            return Queues(rows, len(view.readers()))
    except (OSError, OmqError):
        return None


@dataclass(frozen=True, slots=True)
class Picture:
    """All that is shown at one moment; `queues` None: the index cannot be read just now."""

    elapsed_s: float
    feed: FeedCounts
    arrived: int
    expected: int
    queues: Queues | None
    note: str = ""
    channels: str = ""  # and their peers


def as_line(picture: Picture) -> str:
    """The picture in one line."""
    feed, queues = picture.feed, picture.queues
    parts = [
        f"{picture.elapsed_s:6.1f} s",
        f"accepted {feed.accepted}/{feed.total}",
        f"arrived {picture.arrived}/{picture.expected}",
    ]
    if queues is None:
        parts.append("no index to read")
    else:
        busy = [f"{name} {waiting}" for name, waiting, _, _ in queues.rows if waiting]
        parts.append(f"readers {queues.readers}")
        parts.append("queues: " + (", ".join(busy) or "empty"))
    if picture.channels:
        parts.append(picture.channels)
    return "  ".join([*parts, picture.note]).rstrip()


def as_table(picture: Picture) -> list[str]:
    """The picture in lines of a table."""
    feed, elapsed_s = picture.feed, max(picture.elapsed_s, 0.001)
    readers = "?" if picture.queues is None else str(picture.queues.readers)
    out_rate = picture.arrived / elapsed_s
    lines = [
        f"elapsed {picture.elapsed_s:.1f} s    readers {readers}    {picture.note}",
        f"in   {feed.accepted:>7} of {feed.total:<7} {feed.accepted / elapsed_s:8.1f} messages/s",
        f"out  {picture.arrived:>7} of {picture.expected:<7} {out_rate:8.1f} deliveries/s",
        f"postponed {feed.postponed}    in doubt {feed.in_doubt}    refused {feed.refused}",
        picture.channels,
        "",
    ]
    return [line.rstrip() for line in [*lines, *queue_table(picture.queues)]]


def queue_table(queues: Queues | None) -> list[str]:
    """The per-queue figures, with a heading."""
    lines = [f"{'queue':<16} {'messages':>9} {'active':>7} {'ever':>9}"]
    if queues is None:
        return [*lines, "the index cannot be read just now"]
    rows = (f"{name:<16} {waiting:>9} {active:>7} {ever:>9}" for name, waiting, active, ever
            in queues.rows)  # fmt: skip
    return [*lines, *rows]


def channel_words(run: Path, slow_port: int) -> str:
    """What unix.out's scheduler publishes: its processes, and what waits for each peer."""
    found = read_published(run / "unix.peers.now.json")
    told = [f"{each['name']} {each['busy']} of {each['processes']} processes busy"
            for each in found["channels"] if each["processes"]]
    for each in found["peers"]:
        slow = " (slow)" if each["peer"].endswith(f":{slow_port}") else ""
        told.append(f"peer {each['peer']}{slow} {each['mlists']}")
    return ", ".join(told)


class Screen:
    """Shows pictures on a stream: redrawn on a terminal, else a line now and then."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._drawn = 0
        self._next_line_s = 0.0

    def show(self, picture: Picture) -> None:
        """Draw the picture if it is time to."""
        if self._is_terminal:
            lines = as_table(picture)
            back = f"\x1b[{self._drawn}F\x1b[J" if self._drawn else ""
            self._stream.write(back + "\n".join(lines) + "\n")
            self._drawn = len(lines)
        elif picture.elapsed_s >= self._next_line_s:
            self._stream.write(as_line(picture) + "\n")
            self._next_line_s = picture.elapsed_s + LINE_EVERY_S
        self._stream.flush()

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._stream.write(text + "\n")
        self._stream.flush()
        self._drawn = 0
