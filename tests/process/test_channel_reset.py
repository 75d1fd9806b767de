"""`omq channel reset`, from both sides: what RESET CHANNEL of IBM MQ does, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from omq.base.errors import ChannelRefused
from omq.services.channel.definition import ORDER, altered, channel_of, write
from omq.services.channel.names import Reset
from omq.storage.spool import open_spool
from tests.process.amqp_world import SERVER, needs_proton
from tests.process.channel_world import SENDER, Side, omq_channel, sides, stop_channel

needs_proton()

from omq.services.channel.greeting import Greeting, Hello  # noqa: E402
from omq.services.channel.line import Line  # noqa: E402
from omq.services.channel.run import ChannelRun  # noqa: E402
from omq.services.channel.security import Credentials  # noqa: E402


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Side]]:
    with sides(tmp_path_factory.mktemp("reset"), "WEST", "EAST") as found:
        yield found


@pytest.fixture
def pair(both: list[Side]) -> Iterator[list[Side]]:
    yield both
    for side in both:
        side.stop(SENDER, SERVER)
        side.forget_channels()
        side.fault_log.unlink(missing_ok=True)
        side.drain("A")


def record(east: Side, channel: str) -> int:
    """The batch that its record says."""
    (found,) = [row for line in omq_channel(east, "list", "--json").splitlines()
                if (row := json.loads(line))["channel"] == channel and row["side"] == "receives"]
    return int(found["batch"])


def waits(west: Side, channel: str) -> str:
    """The order that waits in its definition."""
    return str(json.loads(omq_channel(west, "show", channel, "--json"))["keys"][ORDER])


def has_sent(west: Side, east: Side, channel: str, count: int) -> None:
    """So many batches of one message, the last of them over on both sides; then it is stopped."""
    west.channel(channel, east.serve())
    west.remote(f"{channel}.A", "EAST", "A", channel)
    west.start(SENDER)
    for number in range(count):
        west.put(f"{channel}.A", number, 1)
        east.await_depth("A", number + 1)
    west.until(lambda: not west.in_doubt(channel))


def test_both_sides_count_anew_when_it_connects_next(pair: list[Side]) -> None:
    west, east = pair
    has_sent(west, east, "BOTH", 2)
    stop_channel(west, "BOTH")
    assert "batch 17" in omq_channel(west, "reset", "BOTH", "batch=17")
    assert record(east, "BOTH") == 2, "not before it connects"
    omq_channel(west, "start", "BOTH")
    west.until(lambda: not waits(west, "BOTH"))
    assert record(east, "BOTH") == 17
    west.put("BOTH.A", 2, 1)
    east.await_depth("A", 3)
    west.until(lambda: not west.in_doubt("BOTH"))
    assert record(east, "BOTH") == 18
    assert east.numbers("A") == [0, 1, 2]
    assert [each["batch"] for each in west.of_channel(1625, "BOTH")] == [17]
    assert [each["batch"] for each in east.of_channel(1625, "BOTH")] == [17]


def test_not_while_it_runs(pair: list[Side]) -> None:
    west, east = pair
    has_sent(west, east, "RUNS", 1)
    west.until(lambda: "state = running" in omq_channel(west, "show", "RUNS"))
    assert "omq channel stop RUNS" in omq_channel(west, "reset", "RUNS", "batch=1", code=75)
    assert not waits(west, "RUNS")
    west.kill(SENDER)
    omq_channel(west, "reset", "RUNS", "batch=1")  # who says that it runs is dead
    assert waits(west, "RUNS").startswith("1 ")


def test_not_in_doubt_before_that_is_resolved(pair: list[Side]) -> None:
    west, east = pair
    has_sent(west, east, "DOUBT", 1)
    west.kill(SENDER)
    west.put("DOUBT.A", 1, 1)
    west.start(SENDER, fault="channel.after_prepare:kill:1")
    assert west.children[SENDER].wait() == -9
    assert "batches 2 are in doubt" in omq_channel(west, "reset", "DOUBT", "batch=5", code=75)
    assert not waits(west, "DOUBT")
    omq_channel(west, "resolve", "DOUBT", "--backout")
    omq_channel(west, "reset", "DOUBT", "batch=5")
    west.start(SENDER)
    east.await_depth("A", 2)
    west.until(lambda: not west.in_doubt("DOUBT"))
    assert record(east, "DOUBT") == 6
    assert east.numbers("A") == [0, 1]


def test_an_order_beside_doubt_changes_nothing(pair: list[Side]) -> None:
    """A line came up between the look and the order: what is in doubt has its number still."""
    west, east = pair
    has_sent(west, east, "BESIDE", 1)
    west.kill(SENDER)
    west.put("BESIDE.A", 1, 1)
    west.start(SENDER, fault="channel.after_prepare:kill:1")
    assert west.children[SENDER].wait() == -9
    with west.connect() as native:
        channel = channel_of(native.queues.show("BESIDE"))
        assert channel is not None
        write(native, altered(channel, **{ORDER: str(Reset(9, "a" * 16))}))
    west.start(SENDER)
    west.until(lambda: west.of_channel(1605, "BESIDE"))
    assert "omq channel resolve BESIDE" in west.of_channel(1605, "BESIDE")[0]["reason"]
    assert record(east, "BESIDE") == 1
    omq_channel(west, "resolve", "BESIDE", "--backout")
    east.await_depth("A", 2)
    assert east.numbers("A") == [0, 1]


def test_an_order_is_carried_out_once(pair: list[Side]) -> None:
    """Killed before it knows that it was; then a line that was given up long ago tells it again."""
    west, east = pair
    has_sent(west, east, "ONCE", 1)
    west.kill(SENDER)
    omq_channel(west, "reset", "ONCE", "batch=3")
    order = waits(west, "ONCE")
    west.start(SENDER, fault="channel.before_resync:kill:1")
    assert west.children[SENDER].wait() == -9
    assert (record(east, "ONCE"), waits(west, "ONCE")) == (3, order)
    west.put("ONCE.A", 1, 1)
    west.start(SENDER)
    east.await_depth("A", 2)
    west.until(lambda: not west.in_doubt("ONCE"))
    west.stop(SENDER)
    with west.connect() as native:
        channel = channel_of(native.queues.show("ONCE"))
    assert channel is not None and not channel.reset
    spool = open_spool(west.paths.root, writer=False).uuid.hex()
    line = Line(channel, Credentials("ANONYMOUS", "", "", None),
                Hello("WEST", spool, reset=order), 60)
    assert (line.greeting.last, line.greeting.reset) == (4, order)
    line.close(politely=True)
    assert record(east, "ONCE") == 4


def test_what_makes_no_sense_is_refused(pair: list[Side]) -> None:
    west, east = pair
    has_sent(west, east, "SENSE", 1)
    west.stop(SENDER)
    omq_channel(west, "reset", "NONE", code=66)
    for words in (["batch=-1"], ["batch=x"], ["side=up"], ["what=1"], ["batch=" + "9" * 18],
                  ["side=sends", "manager=WEST"]):
        omq_channel(west, "reset", "SENSE", *words, code=64)
    omq_channel(west, "reset", "SENSE", "side=receives", code=66)
    omq_channel(west, "alter", "SENSE", "reset=1 " + "a" * 16, code=64)
    omq_channel(west, "alter", "SENSE", "peer=foreign")
    assert "not omq" in omq_channel(west, "reset", "SENSE", "batch=1", code=64)
    east.channel("SENSE", 1)
    assert "side=" in omq_channel(east, "reset", "SENSE", "batch=4", code=64)
    assert "batch 1, now 4" in omq_channel(east, "reset", "SENSE", "batch=4", "side=receives")
    assert record(east, "SENSE") == 4


@pytest.mark.parametrize(("said", "outcome"), [
    (Greeting(last=2), "no"), (Greeting(last=2, reset="7 " + "b" * 16), "no"),
    (Greeting(last=7), "done"), (Greeting(last=9, reset="7 " + "a" * 16), "done")])
def test_a_side_that_knows_no_resets_is_told_from_one(pair: list[Side], said: Greeting,
                                                      outcome: str) -> None:
    west, _ = pair
    west.channel("OLDER", 1, **{ORDER: "7 " + "a" * 16})
    with west.connect() as native:
        channel = channel_of(native.queues.show("OLDER"))
        run: Any = ChannelRun.__new__(ChannelRun)
        run.channel, run._shared = channel, type("S", (), {"event": lambda *_, **__: None})
        line: Any = type("L", (), {"greeting": said})
        if outcome == "done":
            run._reset(native, line)
        else:
            with pytest.raises(ChannelRefused, match="batch=7"):
                run._reset(native, line)
    assert bool(waits(west, "OLDER")) is (outcome == "no")
