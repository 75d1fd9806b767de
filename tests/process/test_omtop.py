"""omtop: its figures, its screen driven by keys, and orders with a question."""

from __future__ import annotations

import asyncio
import json
import os

from textual.widgets import DataTable, Static

from omq.cli.look.top_app import TopApp
from omq.cli.look.top_facts import Moment, age, head
from omq.core.look.space import UNKNOWN
from omq.services.daemon.options import Location
from tests.process.operator_world import WAIT_S, Instance
from tests.unit.omqdump.test_terminal import Terminal


def test_once_as_text_and_json(live: Instance) -> None:
    live.put("A", b"1", b"2")
    live.put("B", b"1")
    said = live.run("omtop", "--once", "--interval", "0.2", "--sort", "messages").out.splitlines()
    assert said[0].startswith("manager live  messages 3  clients 0  put/s 0.0")
    queues = [line.split()[0] for line in said[4:]]
    assert queues[:2] == ["A", "B"] and said[4].split()[1] == "2"
    assert max(map(len, said[3:])) <= 90
    (first, *_) = live.run("omtop", "--json", "--interval", "0.2").out.splitlines()
    assert set(json.loads(first)) == {
        "queue", "messages", "active", "deferred", "held", "in_per_s", "out_per_s", "load",
        "oldest_s", "readers", "space_free_bytes", "space_low"}
    assert live.run("omtop", "--interval", "0").code == 64


def test_ages() -> None:
    assert [age(seconds) for seconds in (0, 5, 99, 100, 7200, 400_000)] == [
        "-", "5s", "99s", "1m", "2h", "4d"]


def test_it_says_that_clients_are_slowed_down() -> None:
    counters = {"last_lsn": 9, "checkpoint_lsn": 3, "checkpoint_time": 0, "messages": 0,
                "clients": 0, "journal_file": 1}
    rates = dict.fromkeys(("puts", "gives", "dones", "groups", "journal_bytes"), 0.0)
    for paused_ms, said in ((0.0, []), (250.0, [
            "clients are slowed down: the manager pauses 25 % of the time, until pool.writer has "
            "caught up"])):
        now = Moment(0, "live", "", counters, (), (), {**rates, "paused_ms": paused_ms},
                     UNKNOWN)
        assert list(head(now))[2:] == said


def test_the_screen_is_driven_by_keys(live: Instance) -> None:
    (first, second) = live.put("A", b"1", b"2")

    async def drive() -> None:
        app = TopApp(Location(None, live.paths, live.conf), 60.0, "name")
        async with app.run_test(size=(100, 30)) as pilot:
            table = app.query_one("#table", DataTable)
            assert table.get_row_at(0)[:2] == ["A", "2"]
            await pilot.press("s", "r")
            assert "sorted by messages (turned)" in str(app.query_one("#head", Static).render())
            await pilot.press("r", "h")
            await pilot.press("enter")
            await pilot.pause()
            assert app.queue == "A"
            assert [table.get_row_at(n)[0] for n in range(2)] == [str(first), str(second)]
            await pilot.press("h", "n")
            await pilot.press("h", "y")
            await pilot.pause()
            assert table.get_row_at(0)[2] == "held"
            await pilot.press("u")
            await pilot.press("enter")
            await pilot.pause()
            assert app.message == first
            assert "an operator holds it" in str(app.query_one("#text", Static).render())
            await pilot.press("l", "y")
            await pilot.pause()
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
            await pilot.press("enter", "e")
            await pilot.pause()
            assert [table.get_row_at(0)[n] for n in (1, 2, 3, 7)] == [
                str(os.getpid()), "main", "1", "holder"]
            await pilot.press("h")  # a reader is no message
            await pilot.press("enter")
            await pilot.pause()
            assert [table.get_row_at(0)[n] for n in (0, 2)] == [str(first), "active"]
            assert table.row_count == 1
            await pilot.press("enter")
            await pilot.pause()
            assert "reader holder" in str(app.query_one("#text", Static).render())
            await pilot.press("escape", "escape", "e")
            await pilot.pause()
            assert table.row_count == 2 and table.get_row_at(1)[0] == str(second)
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
        terminal.type("u")
        terminal.until_shown(f"requeue message {poisoned} on POISON (y/n) ?")
        terminal.type("n")
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
