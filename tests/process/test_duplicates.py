"""Duplicate detection over the client: a queue takes a key once in its time, over every end of the
manager, by every way of putting."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import omq
import omq.aio
from omq.cli import launch
from tests.process.instance import MANAGER, WRITER, Instance
from tests.process.processes import WAIT_S

QUEUES = """[*]
death_delay_s = 0
attempts_max = 200

[A]
dedupe_s = 600

[B]
dedupe_s = 600
duplicates = refused

[C]
"""
POINTS = {
    "journal.before_write": 20, "journal.before_sync": 20, "engine.after_append": 30,
    "engine.before_reply": 30,
}
"""Where the manager dies while messages with keys are put, and at which visit."""

PUTS = """
import sys, omq
with omq.connect(sys.argv[1], name="puts") as c:
    for number in range(40):
        c.put("A", b"order-%d" % number, unique_key=f"order-{number}")
"""


@pytest.fixture
def keyed(omq_instance: Instance) -> Instance:
    omq_instance.queues(QUEUES)
    return omq_instance


def bodies(c: omq.Connection, queue: str) -> list[bytes]:
    return [row.body for row in c.browse(queue)]


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("end", ["kill", "stop"])
def test_keys_outlive_the_manager(keyed: Instance, end: str, *, checkpointed: bool) -> None:
    keyed.start(*([MANAGER, WRITER] if checkpointed else [MANAGER]))
    with keyed.connect() as c:
        first = c.put("A", b"1", unique_key="order-1")
        assert first == "order-1" == c.put("A", b"again", unique_key="order-1")
        c.put("B", b"2", message_id="order-2")
        with c.reader("A") as reader:
            (message,) = reader.next(timeout_s=WAIT_S)
            message.done()
        if checkpointed:  # and what redo has is in the pool
            keyed.stop(MANAGER, WRITER)
            keyed.start(MANAGER, WRITER)
        getattr(keyed, end)(MANAGER)
        keyed.start()
        assert c.put("A", b"again", unique_key="order-1") == "order-1"
        with pytest.raises(omq.DuplicateKey):
            c.put("B", b"again", unique_key="order-2")
        assert bodies(c, "A") == [] and bodies(c, "B") == [b"2"]
        c.put("A", b"3", unique_key="order-3")
        assert bodies(c, "A") == [b"3"]


@pytest.mark.parametrize("point", POINTS)
def test_a_program_that_does_not_know_puts_again(keyed: Instance, point: str) -> None:
    """It dies with the manager, and its next start says everything again: each is there once."""
    victim = keyed.start(fault=f"{point}:kill:{POINTS[point]}")
    program = subprocess.Popen([sys.executable, "-c", PUTS, str(keyed.root)])
    try:
        assert victim.wait() == -signal.SIGKILL
    finally:
        program.kill()
        program.wait()
    keyed.start()
    keys = [f"order-{number}" for number in range(40)]
    with keyed.connect() as c:
        before = bodies(c, "A")
        assert 0 < len(before) < 40, "it has died in between"
        assert c.put_many("A", [omq.Outgoing(key.encode(), unique_key=key) for key in keys]) == keys
        assert sorted(bodies(c, "A")) == sorted(key.encode() for key in keys)


def test_every_way_of_putting(keyed: Instance, capfd: pytest.CaptureFixture[str]) -> None:
    keyed.start()
    with keyed.connect() as c:
        many = [omq.Outgoing(b"%d" % n, unique_key=f"k{n % 3}") for n in range(6)]
        ids = c.put_many("A", [*many, b"plain", omq.Outgoing(b"more", unique_key="k9")])
        assert (ids[0], ids[3], ids[-1]) == ("k0", "k0", "k9")
        assert sorted(bodies(c, "A")) == [b"0", b"1", b"2", b"more", b"plain"]
        with c.unit() as unit:
            unit.put("A", b"no", unique_key="k0")
            unit.put("A", b"unit", unique_key="k4")
            unit.put("C", b"beside")
        assert unit.ids[:2] == ["k0", "k4"] and bodies(c, "C") == [b"beside"]
        beside = {row.body: row.message_id for row in c.browse("C")}
        assert unit.ids[2] == beside[b"beside"], "ids are those of the messages"
        with c.unit() as unit:
            taken = unit.get("C", timeout_s=WAIT_S)
            unit.put("B", b"b", unique_key="k0")
        assert taken is not None
        with pytest.raises(omq.DuplicateKey), c.unit() as unit:
            unit.put("B", b"b", unique_key="k0")
        c.put("C", b"moves")
        with c.reader("C") as reader:
            (message,) = reader.next(timeout_s=WAIT_S)
            message.move([], [omq.Outgoing(b"no", ("A",), unique_key="k4"),
                              omq.Outgoing(b"moved", ("A",), unique_key="k5")])
        assert len(bodies(c, "A")) == 7 and bodies(c, "C") == []
        with pytest.raises(omq.NoDeduplication):
            c.put("C", b"x", unique_key="k")
        with pytest.raises(omq.NoDeduplication):
            c.put_many("C", [b"plain", omq.Outgoing(b"x", unique_key="k")])
        with pytest.raises(omq.BadArgument, match="unique_key"):
            c.put("A", b"x", unique_key="a", message_id="b")
    place = ["--spool", str(keyed.root)]
    (keyed.paths.root.parent / "body").write_bytes(b"sent")
    for _ in range(2):
        assert launch.run("omsend", ["A", str(keyed.paths.root.parent / "body"), "--unique-key",
                                     "k6", *place]) == 0
        assert capfd.readouterr().out == "k6\n"
    with keyed.connect() as c:
        assert bodies(c, "A").count(b"sent") == 1


def test_coroutines(keyed: Instance) -> None:
    keyed.start()

    async def put() -> None:
        async with omq.aio.connect(keyed.root) as c:
            await asyncio.gather(*(c.put("A", b"%d" % n, unique_key=f"k{n % 5}")
                                   for n in range(20)))

    asyncio.run(put())
    with keyed.connect() as c:
        assert len(bodies(c, "A")) == 5


def test_a_large_duplicate_leaves_no_container(keyed: Instance) -> None:
    keyed.start()
    large = bytes(3 << 20)
    with keyed.connect() as c:
        c.put("A", large, unique_key="k")
        before = containers(keyed)
        assert c.put("A", large, unique_key="k") == "k"
        assert c.put_many("A", [b"1", omq.Outgoing(large, unique_key="k")])[1] == "k"
        with pytest.raises(omq.DuplicateKey), c.unit() as unit:
            unit.put("A", large, unique_key="k")
        assert containers(keyed) == before and len(bodies(c, "A")) == 2


def containers(instance: Instance) -> list[Path]:
    return sorted(path for path in instance.paths.data.rglob("*") if path.is_file()
                  and path.stat().st_size)


def test_a_queue_that_remembers_by_command(keyed: Instance) -> None:
    keyed.start()
    with keyed.connect() as c:
        c.queues.define("ONCE", dedupe_s=60, dedupe_keys_max=2, reason="orders come twice")
        assert c.queues.show("ONCE").keys["duplicates"] == "absorbed"
        c.put("ONCE", b"1", unique_key="1")
        c.put("ONCE", b"2", unique_key="2")
        with pytest.raises(omq.KeysFull) as full:
            c.put("ONCE", b"3", unique_key="3")
        assert full.value.exit_code == 75
        c.queues.roll_over("ONCE", "OLD")
        c.put("ONCE", b"1 again", unique_key="1")
        assert bodies(c, "ONCE") == [], "the memory is of the name"
        assert c.queues.show("ONCE").facts["keys"] == 2


def test_tools_do_not_take_a_memory_for_a_message(
        keyed: Instance, capfd: pytest.CaptureFixture[str]) -> None:
    """Nobody deleted it, and nothing brings it back."""
    keyed.start()
    with keyed.connect() as c:
        c.put("A", b"1", unique_key="order-1")
    place = ["--spool", str(keyed.root)]
    assert launch.run("omqwhy", ["2", *place]) == 0
    said = capfd.readouterr().out
    assert "not a message" in said and "until 2" in said and "undo" not in said
    assert launch.run("omqwhy", ["order-1", *place]) == 0
    assert "on A (ready" in capfd.readouterr().out, "the id is the message's"
    assert launch.run("omqlog", ["--message", "2", *place]) == 0
    assert "not a message: a queue remembers" in capfd.readouterr().out


def test_what_is_remembered_is_shown_apart(keyed: Instance, capfd: pytest.CaptureFixture[str]
                                           ) -> None:
    """Not as messages of IDEL, by any tool that counts them."""
    keyed.start()
    with keyed.connect() as c:
        for number in range(3):
            c.put("A", b"%d" % number, unique_key=f"order-{number}")

        def said(tool: str, *arguments: str) -> str:
            assert launch.run(tool, [*arguments, "--spool", str(keyed.root)]) == 0
            return capfd.readouterr().out

        def rows(tool: str, *arguments: str) -> dict[str, dict[str, Any]]:
            lines = said(tool, *arguments, "--json").splitlines()
            return {row["queue"]: row for row in map(json.loads, lines)}

        for tool, *words in (("omqdump", "-e", "s"), ("omtop", "--once")):
            row = rows(tool, *words)["IDEL"]
            assert (row["messages"], row["deferred"], row["remembered"]) == (0, 0, 3), tool
        assert "remembered on IDEL (dedupe_s): 3" in said("omqdump", "-e", "s")
        assert "a remembered id" in said("omqdump", "-e", "l IDEL")
        listed = said("omqdump", "-e", "l IDEL", "--json").splitlines()
        assert [json.loads(line)["remembers"] for line in listed] == [True] * 3
        shaped = rows("omqshape")
        assert shaped.keys() == {"A"} and shaped["A"]["messages"] == 3
        assert "besides 3 remembered" in said("omqshape")
        assert rows("omqadvise").get("IDEL", {"messages": 0})["messages"] == 0
        with keyed.connect("reads") as other, other.reader("A") as reader:
            (message,) = reader.next(timeout_s=WAIT_S)
            message.done()
        assert rows("omqdump", "-e", "s")["IDEL"]["remembered"] == 3
