"""omtop: its figures, its screen driven by keys, and orders with a question."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.widgets import DataTable, Static

from omq.cli.top_app import TopApp
from omq.cli.top_facts import age
from omq.services.options import Location
from tests.process.operator_world import Instance


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Instance]:
    made = Instance(tmp_path / "spool")
    made.start()
    yield made
    made.end()


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
        "oldest_s", "readers"}
    assert live.run("omtop", "--interval", "0").code == 64


def test_ages() -> None:
    assert [age(seconds) for seconds in (0, 5, 99, 100, 7200, 400_000)] == [
        "-", "5s", "99s", "1m", "2h", "4d"]


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
