"""What the report says of archives that are not as they should be: it says "all right" of nothing
that was not looked at. Each archive is made of a few messages; all of it without a JVM."""

from __future__ import annotations

import html
import re
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from omq.base.clock import NS_PER_S as NS
from omq.format.journal import FRAME, FrameType
from omq.storage import durable
from omq.storage.disk import Disk
from omqtools.omqspark import audit, main
from omqtools.omqspark.pool import Beside
from tests.made.story import SIDE, WORK, Book, Story
from tests.made.writer import NAMED, Writer

HOUR: Final = 3600 * NS
Tell = Callable[[Book, int], None]
"""What the frames of one file are, from a time on."""


def served(number: int, every_s: float, first: int = 1000) -> Tell:
    """So many messages on SIDE, one behind the other, each put, given and done."""
    def tell(book: Book, start_ns: int) -> None:
        for n in range(number):
            one = Story(book, first + n, start_ns + int(n * every_s * NS))
            one.put()
            one.served()

    return tell


def stuck(book: Book, start_ns: int) -> None:
    Story(book, 7, start_ns).put()


def half(book: Book, start_ns: int) -> None:
    """On two queues; from one of them it is taken."""
    one = Story(book, 8, start_ns)
    one.put((SIDE, WORK))
    one.served(last=False)


def begun(book: Book, start_ns: int) -> None:
    Story(book, 9, start_ns).put()


def ended(book: Book, start_ns: int) -> None:
    Story(book, 9, start_ns).served()


def nothing(book: Book, start_ns: int) -> None:
    book.rows.append({"type": int(FrameType.CHECKPOINT), "time": start_ns, "queue": 0, "qpool": 0})


class World:
    """An archive that grows by files, and its tables."""

    def __init__(self, base: Path) -> None:
        self.archive, self.out = base / "archive", base / "tables"
        self.start_ns = time.time_ns() - 14 * HOUR
        self.begin()

    def begin(self) -> None:
        durable.use(Disk())
        self.archive.mkdir()
        self._writer = Writer(self.archive, 1 << 20)

    def add(self, *stories: Tell, after_h: float = 0.0) -> None:
        """One file of them."""
        book = Book()
        for tell in stories:
            tell(book, self.start_ns + int(after_h * HOUR))
        rows, parts = book.frames(self._writer.lsn + len(NAMED))
        assert rows.dtype == FRAME.dtype and len(rows)
        self._writer.write_frames(rows, np.asarray(parts))

    def lose(self, number: int) -> None:
        (self.archive / f"{number:010d}.oma").unlink()

    def command(self, name: str, *words: str) -> int:
        return main.main([name, *(() if name == "report" else ("--archive", str(self.archive))),
                          "--out", str(self.out), *words])

    def said(self) -> tuple[list[str], str]:
        """The sentences of a report that is made now, and its verdict in words."""
        assert self.command("report") == 0
        text = (self.out / "report" / "report.html").read_text()
        unusual = text.split("What was unusual</h2>")[1].split("</ul>")[0]
        verdict = re.search(r'<p class="verdict[^>]*>.*?</p>', text)
        return [html.unescape(re.sub(r" <code>.*?</code>", "", each))
                for each in re.findall("<li>(.*?)</li>", unusual)], verdict[0] if verdict else ""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    return World(tmp_path)


def contains(sentences: Sequence[str], *wanted: str) -> bool:
    return all(any(each in one for one in sentences) for each in wanted)


@pytest.mark.parametrize(("story", "where"), [(stuck, "SIDE"), (half, "WORK")])
def test_one_that_is_stuck_is_told_however_busy_its_queue_is(world: World, story: Tell, where: str
                                                             ) -> None:
    """Also one that another queue has done with."""
    world.add(story, served(200, every_s=4.1 * 60))
    assert world.command("refresh") == 0
    sentences, verdict = world.said()
    assert contains(sentences, f"On {where} one message has been there for 13.6 h.")
    assert not contains(sentences, "Nothing was unusual")
    assert "accounted for was not judged" in verdict and "verdict ok" not in verdict


def test_a_hole_makes_all_else_uncertain(world: World) -> None:
    """The end of the message stood in the file that is missing: it looks stuck."""
    world.add(begun)
    world.add(ended, after_h=1)
    world.add(served(150, every_s=5 * 60), after_h=1)
    world.lose(2)
    assert world.command("refresh") == 1
    sentences, verdict = world.said()
    assert contains(sentences, "The audit found 1 missing archive file.",
                    "The damaged or missing files may have caused other findings",
                    "On SIDE one message has been there for")
    assert "verdict bad" in verdict and "accounted" not in verdict


def test_an_archive_whose_last_files_are_absent_ends_before(world: World) -> None:
    """Nobody can know that they are missing; but that the data are old is seen."""
    world.add(served(20, every_s=5 * 60))
    world.add(served(140, every_s=5 * 60), after_h=2)
    world.lose(2)
    assert world.command("refresh") == 0
    sentences, _ = world.said()
    assert contains(sentences, "12.4 h before this report was made: it does not cover what "
                    "happened since.")
    assert not contains(sentences, "Nothing was unusual")


def test_an_archive_whose_first_files_are_absent_says_so(world: World) -> None:
    world.add(begun)
    world.add(served(160, every_s=5 * 60))
    world.lose(1)
    assert world.command("refresh") == 0
    sentences, verdict = world.said()
    assert contains(sentences, "Nothing was unusual up to", "and as far as it was judged",
                    "Not judged: what came before (the tables begin with file 2")
    assert "verdict ok" not in verdict


def test_what_came_behind_the_audit_is_not_clean(world: World) -> None:
    world.add(served(20, every_s=5 * 60))
    assert world.command("refresh") == 0
    world.add(served(140, every_s=5 * 60, first=5000), after_h=2)
    assert world.command("run", "--incremental") == 0
    sentences, verdict = world.said()
    assert contains(sentences, "Not judged: what came after the audit (it judged 1 files up to")
    assert "accounted for was not judged" in verdict and "verdict ok" not in verdict
    assert world.command("audit") == 0
    assert not contains(world.said()[0], "after the audit")


def test_a_verdict_is_not_of_the_tables_that_come_into_its_place(world: World) -> None:
    """Another archive, or the same one from the beginning, in an OUT that has an audit."""
    world.add(served(160, every_s=5 * 60))
    assert world.command("refresh") == 0
    shutil.rmtree(world.archive)
    world.begin()
    world.add(served(160, every_s=5 * 60, first=9000))
    assert world.command("run") == 0
    sentences, verdict = world.said()
    assert contains(sentences, "No audit was made") and not verdict


def test_of_no_message_nothing_is_said(world: World) -> None:
    world.add(nothing, after_h=13.9)
    assert world.command("refresh") == 0
    sentences, verdict = world.said()
    assert contains(sentences, "These tables contain no messages, so there was nothing to examine")
    assert not contains(sentences, "Nothing was unusual")
    assert "there were no messages to judge" in verdict and "verdict ok" not in verdict


def test_a_clock_that_was_ahead_is_told(world: World) -> None:
    world.add(served(160, every_s=5 * 60))
    world.add(nothing, after_h=24 * 400)
    assert world.command("refresh") == 0
    assert contains(world.said()[0], "after this report was made: a clock was wrong")


def test_a_verdict_with_a_pool_is_green(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """That it can be."""
    world.add(served(160, every_s=5 * 60))

    def nobody(_: Any, __: bytes, ___: int, last: int, ____: Any) -> Beside:
        return Beside(checkpoint=last)

    monkeypatch.setattr(audit, "beside", nobody)
    assert world.command("refresh", "--pool", str(world.archive)) == 0
    sentences, verdict = world.said()
    assert len(sentences) == 1 and contains(sentences, "Nothing was unusual up to")
    assert "verdict ok" in verdict and "All 160 messages are accounted for" in verdict
