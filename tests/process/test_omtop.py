"""omtop: its figures, its screen driven by keys, and orders with a question."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable

from textual.pilot import Pilot
from textual.widgets import DataTable, Static

from omq.cli.look.top_app import TopApp
from omq.cli.look.top_facts import Moment, QueueLine, age, cells, figure, head, text
from omq.core.index.rows import QueueRow
from omq.core.look.space import UNKNOWN
from omq.services.daemon.options import Location
from tests.process.operator_world import WAIT_S, Instance
from tests.unit.omqdump.test_terminal import Terminal

COUNTERS = {"last_lsn": 9, "checkpoint_lsn": 3, "checkpoint_time": 0, "messages": 0, "expired": 0,
            "clients": 0, "journal_file": 1}
RATES = dict.fromkeys(("puts", "gives", "dones", "groups", "journal_bytes", "paused_ms"), 0.0)


async def _until(pilot: Pilot[int], reached: Callable[[], bool]) -> None:
    """A key that a widget takes becomes a message of its own, so the key's end is not the end of
    what it does."""
    end = time.monotonic() + WAIT_S
    while not reached():
        assert time.monotonic() < end, "the screen has not come to it"
        await pilot.pause()


def test_once_as_text_and_json(live: Instance) -> None:
    live.put("A", b"1", b"2")
    live.put("B", b"1")
    said = live.run("omtop", "--once", "--interval", "0.2", "--sort", "messages").out.splitlines()
    assert said[0].startswith("manager live  messages 3  clients 0  put/s 0.0")
    rows = said[next(n for n, line in enumerate(said) if line.startswith("QUEUE")) + 1 :]
    assert [line.split()[:2] for line in rows[:2]] == [["A", "2"], ["B", "1"]]
    assert max(map(len, said)) <= 80
    (first, *_) = live.run("omtop", "--json", "--interval", "0.2").out.splitlines()
    assert set(json.loads(first)) == {
        "queue", "messages", "active", "deferred", "held", "remembered", "in_per_s", "out_per_s",
        "load", "oldest_s", "readers", "space_free_bytes", "space_low", "index_low",
        "inodes_free", "space_parts"}
    assert live.run("omtop", "--interval", "0").code == 64


def test_ages() -> None:
    assert [age(seconds) for seconds in (0, 5, 99, 100, 7200, 400_000)] == [
        "-", "5s", "99s", "1m", "2h", "4d"]


def test_figures_never_run_together() -> None:
    assert [figure(value) for value in (0, 999.94, 999.95, 9999, 10_000, 2_345_678, 5e9)] == [
        "0.0", "999.9", "1000", "9999", "10k", "2346k", "5000M"]
    full = QueueRow(5, "Q" * 16, 9_999_999, 999_999, 0, 999_999, 999_999, 0, 0, (1e6,) * 3,
                    (0.0,) * 3, 1, special=False, hour=0, last_hour=0, hour_ns=0, sampled_ns=0,
                    started_ns=0, max_depth=0, max_length=0)
    shown = cells(QueueLine(full, 21, 123456.0, 123456.0, 86400.0 * 900))
    line = list(text(Moment(0, "live", "n" * 200, COUNTERS, (), (), RATES, UNKNOWN),
                     [QueueLine(full, 21, 123456.0, 123456.0, 86400.0 * 900)]))
    assert max(map(len, line)) <= 80 and line[-1].split() == shown


def test_eighty_columns_show_every_key_and_its_help(live: Instance) -> None:
    live.put("A", b"1")

    async def drive() -> None:
        app = TopApp(Location(None, live.paths, live.conf), 60.0, "name")
        async with app.run_test(size=(80, 24)) as pilot:
            await _until(pilot, lambda: len(app.query("FooterKey")) > 0)  # drawn a moment later
            keys = list(app.query("FooterKey"))
            assert len(keys) == 9, "r, which turns the order, stands in the help"
            assert all(key.region.x >= 0 and key.region.right <= 80 for key in keys), [
                (key.region.x, key.region.right) for key in keys]
            await pilot.press("question_mark")
            await _until(pilot, lambda: len(app.screen.query("Label")) > 0)
            (label,) = app.screen.query("Label")
            assert label.region.right <= 80 and label.region.bottom <= 24
            assert "send it back from POISON" in str(label.render())
            await pilot.press("x")
            await pilot.press("x")
        assert app.return_code == 0

    asyncio.run(drive())


def test_it_says_that_clients_are_slowed_down() -> None:
    for paused_ms, said in ((0.0, []), (250.0, [
            "clients are slowed down: the manager pauses 25 % of the time, until pool.writer",
            "has caught up"])):
        now = Moment(0, "live", "", COUNTERS, (), (), {**RATES, "paused_ms": paused_ms},
                     UNKNOWN)
        assert list(head(now))[3:] == said


def test_the_screen_is_driven_by_keys(live: Instance) -> None:
    (first, second) = live.put("A", b"1", b"2")

    async def drive() -> None:
        app = TopApp(Location(None, live.paths, live.conf), 60.0, "name")
        async with app.run_test(size=(100, 30)) as pilot:
            table = app.query_one("#table", DataTable)
            assert table.get_row_at(0)[:2] == ["A", "2"]
            await pilot.press("s", "r")
            await _until(pilot, lambda: "sorted by messages (turned)" in str(
                app.query_one("#head", Static).render()))
            await pilot.press("r", "h")
            await pilot.press("enter")
            await _until(pilot, lambda: app.queue == "A" and table.row_count == 2)
            assert [table.get_row_at(n)[0] for n in range(2)] == [str(first), str(second)]
            await pilot.press("h", "n")
            await pilot.press("h", "y")
            await _until(pilot, lambda: table.get_row_at(0)[2] == "held")
            await pilot.press("u")
            await pilot.press("enter")
            await _until(pilot, lambda: app.message == first)
            assert "an operator holds it" in str(app.query_one("#text", Static).render())
            await pilot.press("l", "y")
            await _until(pilot, lambda: "an operator holds it" not in str(
                app.query_one("#text", Static).render()))
            await pilot.press("escape", "escape", "p", "p", "x")
        assert app.return_code == 0

    asyncio.run(drive())
    found = live.run("omqlog", "--operator").out
    assert f"omtop hold {first}" in found and f"omtop release {first}" in found
    assert live.bodies("A") == [b"1", b"2"]


def test_a_reader_and_what_it_holds(live: Instance) -> None:
    first, second = live.put("A", b"1", b"2")

    async def drive() -> None:
        app = TopApp(Location(None, live.paths, live.conf), 60.0, "name")
        async with app.run_test(size=(100, 30)) as pilot:
            table = app.query_one("#table", DataTable)
            await pilot.press("enter")
            await _until(pilot, lambda: app.queue == "A")
            await pilot.press("e")
            await _until(pilot, lambda: app.readers and table.row_count == 1)
            assert [table.get_row_at(0)[n] for n in (1, 2, 3, 7)] == [
                str(os.getpid()), "main", "1", "holder"]
            await pilot.press("h")  # a reader is no message
            await pilot.press("enter")
            await _until(pilot, lambda: app.reader is not None and table.row_count == 1)
            assert [table.get_row_at(0)[n] for n in (0, 2)] == [str(first), "active"]
            await pilot.press("enter")
            await _until(pilot, lambda: app.message == first)
            assert "reader holder" in str(app.query_one("#text", Static).render())
            await pilot.press("escape", "escape", "e")
            await _until(pilot, lambda: not app.readers and table.row_count == 2)
            assert table.get_row_at(1)[0] == str(second)
            await pilot.press("x")

    with live.connect("holder") as connection, connection.reader("A") as reader:
        (message,) = reader.next(timeout_s=WAIT_S)
        asyncio.run(drive())
        message.done()


def test_a_real_terminal(live: Instance) -> None:
    """The screen as it is drawn, and orders that are asked for: hold, release, requeue."""
    (qpool,) = live.put("A", b"1")
    with live.connect("bad") as connection, connection.reader("B") as reader:
        (poisoned,) = live.put("B", b"2")
        for _ in range(3):
            (message,) = reader.next(timeout_s=WAIT_S)
            message.fail("no")
    terminal = Terminal("--interval", "0.3", *live.arguments, command="omtop")
    try:
        terminal.until_shown("POISON")
        terminal.type("\r")
        terminal.until_shown("A: the first 500 messages")
        terminal.type("h")
        terminal.until_shown(f"hold message {qpool} on A (y/n) ?")
        terminal.type("y")
        terminal.until_shown("held")
        terminal.type("l")
        terminal.until_shown(f"release message {qpool} on A (y/n) ?")
        terminal.type("y")
        terminal.until_shown("release: done")
        terminal.type("\x1b")
        terminal.until_shown("sorted by name")
        terminal.type("s")
        terminal.until_shown("sorted by messages")
        terminal.type("sssss")  # by name again; POISON stands fifth
        terminal.until_shown("sorted by name")
        terminal.type("\x1b[B" * 5 + "\r")
        terminal.until_shown("POISON: the first 500 messages")
        terminal.type("h")  # another question than the next one: a screen may be drawn twice
        terminal.until_shown(f"hold message {poisoned} on POISON (y/n) ?")
        terminal.type("n")
        terminal.until_shown("POISON: the first 500 messages")
        assert live.on("POISON") == [poisoned]
        terminal.type("u")
        terminal.until_shown(f"requeue message {poisoned} on POISON (y/n) ?")
        terminal.type("y")
        terminal.until_shown("requeue: done")
        terminal.type("x")
        assert terminal.end() == 0
    finally:
        terminal.close()
    assert live.on("POISON") == [] and live.on("B") == [poisoned]
    said = live.run("omqlog", "--operator").out
    for name, which in (("hold", qpool), ("release", qpool), ("requeue", poisoned)):
        assert f"omtop {name} {which}" in said
