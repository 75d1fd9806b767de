"""The table and the lines, the look at the index, and the watch that decides when all is quiet."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from omq.base.errors import ManagerUnavailable
from tests.demo import watch
from tests.demo.feed import FeedCounts
from tests.demo.live import Picture, Queues, Screen, as_line, as_table, take_look
from tests.demo.watch import Sources, StalledError, Watch

FEED = FeedCounts(total=100, accepted=40, finished=41, refused=1)
BUSY = Queues((("IDEL", 2, 0, 9), ("LOCAL", 5, 3, 50), ("POISON", 1, 0, 1)), readers=7)
EMPTY = Queues((("IDEL", 2, 0, 9), ("LOCAL", 0, 0, 55), ("POISON", 1, 0, 1)), readers=7)
PICTURE = Picture(4.0, FEED, arrived=80, expected=200, queues=BUSY, note="feeding")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@dataclass(frozen=True)
class Row:
    name: str
    messages: int
    active: int
    ever: int


class FakeView:
    def queues(self) -> list[Row]:
        return [Row("LOCAL", 5, 3, 50)]

    def readers(self) -> list[str]:
        return ["local"]

    def close(self) -> None:
        self.closed = True


@dataclass
class FakeFeed:
    running: bool = False
    now: FeedCounts = field(default_factory=lambda: FEED)

    def counts(self) -> FeedCounts:
        return self.now

    def wait_accepted(self, count: int) -> bool:
        return self.now.accepted >= count


def test_resting_queues_do_not_count_as_waiting() -> None:
    assert BUSY.waiting == 5 and EMPTY.waiting == 0
    assert BUSY.ever == 60


def test_look() -> None:
    assert take_look(FakeView) == Queues((("LOCAL", 5, 3, 50),), 1)


def test_look_while_the_manager_is_away() -> None:
    def attach() -> FakeView:
        raise ManagerUnavailable(spool="/x", reason="gone")

    assert take_look(attach) is None


def test_line() -> None:
    line = as_line(PICTURE)
    for part in ("4.0 s", "accepted 40/100", "arrived 80/200", "LOCAL 5", "readers 7", "feeding"):
        assert part in line
    assert "no index" in as_line(replace(PICTURE, queues=None))


def test_table() -> None:
    text = "\n".join(as_table(PICTURE))
    assert "10.0 messages/s" in text and "20.0 deliveries/s" in text
    assert [line.split() for line in as_table(PICTURE)][-2] == ["LOCAL", "5", "3", "50"]
    assert "cannot be read" in as_table(replace(PICTURE, queues=None))[-1]


def test_terminal_is_redrawn_in_place() -> None:
    stream = Terminal()
    screen = Screen(stream)
    screen.show(PICTURE)
    first = stream.getvalue()
    assert "\x1b" not in first
    screen.show(PICTURE)
    height = len(as_table(PICTURE))
    assert stream.getvalue() == first + f"\x1b[{height}F\x1b[J" + first


def test_a_line_said_on_a_terminal_stays() -> None:
    stream = Terminal()
    screen = Screen(stream)
    screen.show(PICTURE)
    screen.say("killed")
    screen.show(PICTURE)
    assert "\x1b" not in stream.getvalue()


def test_elsewhere_a_line_every_two_seconds() -> None:
    stream = io.StringIO()
    screen = Screen(stream)
    for elapsed_s in (0.0, 0.5, 1.9, 2.0, 2.1, 4.5):
        screen.show(replace(PICTURE, elapsed_s=elapsed_s))
    assert [line.split()[0] for line in stream.getvalue().splitlines()] == ["0.0", "2.0", "4.5"]


def watching(looks: Iterator[Queues | None], feed: FakeFeed, *, ended: str = "",
             refusals: str = "", screen: Screen | None = None) -> Watch:
    sources = Sources(
        queues=lambda: next(looks), arrived=lambda: 1, expected=lambda: 1, ended=lambda: ended,
        refusals=lambda: refusals,
    )  # fmt: skip
    return Watch(sources, feed, None, screen or Screen(io.StringIO()))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "REDRAW_S", 0.0)


def test_quiet_needs_two_equal_looks_at_empty_queues() -> None:
    moved = replace(EMPTY, rows=(*EMPTY.rows[:1], ("LOCAL", 0, 0, 56), *EMPTY.rows[2:]))
    looks = iter([BUSY, EMPTY, None, EMPTY, moved, moved, BUSY])
    watching(looks, FakeFeed()).until_quiet()
    assert list(looks) == [BUSY]


def test_no_quiet_while_feeding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "STALL_S", -1.0)
    with pytest.raises(StalledError, match="451"):
        feed = FakeFeed(running=True, now=replace(FEED, reason="451 full"))
        watching(iter([EMPTY] * 9), feed).until_quiet()


def test_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "STALL_S", -1.0)
    looks = iter([BUSY, EMPTY, BUSY, BUSY, BUSY])
    with pytest.raises(StalledError, match="nothing moved"):
        watching(looks, FakeFeed()).until_quiet()
    assert list(looks) == [BUSY]


def test_why_nothing_moves_is_on_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "UNEASY_S", -1.0)
    stream = io.StringIO()
    watching(iter([EMPTY, EMPTY]), FakeFeed(), refusals="3 refused: 451 no",
             screen=Screen(stream)).until_quiet()
    assert "nothing moved for 0 s; 3 refused: 451 no" in stream.getvalue()
    monkeypatch.setattr(watch, "STALL_S", -1.0)
    with pytest.raises(StalledError, match="3 refused: 451 no"):
        watching(iter([BUSY] * 9), FakeFeed(), refusals="3 refused: 451 no").until_quiet()


@pytest.mark.parametrize("who", ["the instance", "the sink"])
def test_what_ended_by_itself(who: str) -> None:
    with pytest.raises(StalledError, match=f"{who} ended by itself"):
        watching(iter([BUSY, BUSY]), FakeFeed(), ended=who).until_quiet()
