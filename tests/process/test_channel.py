"""Channels between instances: what crosses them, once, whatever dies."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tests.process.amqp_world import SERVER, needs_proton
from tests.process.channel_world import SENDER, Side, sides
from tests.process.instance import MANAGER

needs_proton()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Side]]:
    with sides(tmp_path_factory.mktemp("channel"), "WEST", "EAST") as found:
        yield found


@pytest.fixture
def pair(both: list[Side]) -> Iterator[list[Side]]:
    """The same for all, with nothing on their queues and no channel that runs."""
    yield both
    for side in both:
        side.stop(SENDER, SERVER)
        for queue in ("A", "B", "SYSTEM.DEAD"):
            side.drain(queue)
        side.fault_log.unlink(missing_ok=True)


def connected(west: Side, east: Side, *, fault: str = "", **said: str) -> int:
    port = east.serve(fault=fault)
    west.channel("EAST", port, **said)
    west.remote("FAR", "EAST", "A")
    return port


def test_messages_cross_in_order(pair: list[Side]) -> None:
    west, east = pair
    connected(west, east, batchsize="7")
    west.put("FAR", 0, 100)
    west.start(SENDER)
    east.await_depth("A", 100)
    assert east.numbers("A") == list(range(100))
    west.until(lambda: not west.in_doubt() and not west.depth("EAST"))


def test_the_trace_crosses_with_its_message(pair: list[Side]) -> None:
    west, east = pair
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
             "tracestate": "vendor=1"}
    connected(west, east)
    west.put("FAR", 0, 1, properties=trace)
    west.start(SENDER)
    east.await_depth("A", 1)
    (message,) = east.drain("A")
    assert trace.items() <= message.properties.items()


def test_types_cross_with_their_values(pair: list[Side]) -> None:
    """As texts, with the types beside: a peer of an older version sees the texts."""
    west, east = pair
    moment = datetime(2026, 11, 25, 18, 48, 28, 123456, tzinfo=UTC)
    given = {"n": 3, "half": 0.5, "yes": True, "due": moment, "raw": b"\x00\xff", "text": "3"}
    connected(west, east)
    west.put("FAR", 0, 1, properties=given)
    west.start(SENDER)
    east.await_depth("A", 1)
    (message,) = east.drain("A")
    found = message.properties
    assert {name: found[name] for name in given} == given
    assert {name: type(found[name]) for name in given} == {
        name: type(value) for name, value in given.items()}
    assert message.texts["n"] == "3" and found["omq.from.queue"] == "A"


SENDS = ("channel.before_resync", "channel.after_take", "channel.after_prepare", "channel.in_batch",
         "channel.after_batch", "channel.before_commit", "channel.after_commit")
RECEIVES = ("channel.before_put", "channel.after_put", "channel.before_accept",
            "channel.after_accept")


def _crossed_once(west: Side, east: Side, count: int) -> None:
    """All of it, in order; nothing is left that could come again."""
    west.until(lambda: not west.in_doubt() and not west.depth("EAST"))
    assert east.numbers("A") == list(range(count))


@pytest.mark.cases
@pytest.mark.parametrize("hit", [1, 2, 3])
@pytest.mark.parametrize("point", SENDS)
def test_a_sender_that_dies_at_each_step(pair: list[Side], point: str, hit: int) -> None:
    west, east = pair
    # by themselves: in the middle of a batch
    connected(west, east, batchsize="4", transferlimit="0" if "in_batch" in point else "64")
    west.put("FAR", 0, 20)
    west.start(SENDER, fault=f"{point}:kill:{hit}")
    if point != "channel.before_resync" or hit == 1:
        assert west.children[SENDER].wait() == -9
        west.put("FAR", 20, 5)
        west.start(SENDER)
    else:  # there is one connection alone
        west.put("FAR", 20, 5)
    east.await_depth("A", 25)
    _crossed_once(west, east, 25)


@pytest.mark.cases
@pytest.mark.parametrize("hit", [1, 2, 3])
@pytest.mark.parametrize("point", RECEIVES)
def test_a_receiver_that_dies_at_each_step(pair: list[Side], point: str, hit: int) -> None:
    west, east = pair
    connected(west, east, fault=f"{point}:kill:{hit}", batchsize="4")
    west.put("FAR", 0, 20)
    west.start(SENDER)
    assert east.children[SERVER].wait() == -9
    west.put("FAR", 20, 5)
    east.serve()
    east.await_depth("A", 25)
    _crossed_once(west, east, 25)


LONG = {"long": "x" * 400}  # two such messages are a bundle of 1 KiB


@pytest.mark.parametrize("hit", [1, 2, 4])
def test_a_receiver_that_dies_between_two_bundles(pair: list[Side], hit: int) -> None:
    """Part of a batch is in its memory, the rest on the line."""
    west, east = pair
    connected(west, east, fault=f"channel.half_batch:kill:{hit}", batchsize="6", transferlimit="1")
    west.put("FAR", 0, 18, properties=LONG)
    west.start(SENDER)
    assert east.children[SERVER].wait() == -9
    assert [each.split()[0] for each in east.fired()] == [f"channel.half_batch:kill:{hit}"]
    assert east.depth("A") % 6 == 0, "a batch is there or not"
    east.serve()
    east.await_depth("A", 18)
    _crossed_once(west, east, 18)


@pytest.mark.parametrize("hit", [1, 2, 5])
def test_a_sender_that_dies_between_two_bundles(pair: list[Side], hit: int) -> None:
    west, east = pair
    connected(west, east, batchsize="6", transferlimit="1")
    west.put("FAR", 0, 18, properties=LONG)
    west.start(SENDER, fault=f"channel.in_batch:kill:{hit}")
    assert west.children[SENDER].wait() == -9
    west.start(SENDER)
    east.await_depth("A", 18)
    _crossed_once(west, east, 18)


def test_a_batch_is_no_longer_than_a_unit_of_work_there(pair: list[Side]) -> None:
    """3 MB of bodies that are no containers, and units of 512 KiB: several batches."""
    west, east = pair
    connected(west, east)
    with west.connect() as native:
        for number in range(15):
            native.put("FAR", b"%d" % number + b" " * 200_000)
    west.start(SENDER)
    east.await_depth("A", 15)
    _crossed_once(west, east, 15)


@pytest.mark.cases
@pytest.mark.parametrize("hit", [8, 21])
@pytest.mark.parametrize("point", ["engine.before_append", "engine.after_append",
                                   "engine.after_reply"])
@pytest.mark.parametrize("which", ["west", "east"])
def test_a_queue_manager_that_dies(pair: list[Side], which: str, point: str, hit: int) -> None:
    """The requests of both sides are told again, or the batch is taken anew."""
    west, east = pair
    connected(west, east, batchsize="4")
    west.put("FAR", 0, 60)
    side = west if which == "west" else east
    side.kill(MANAGER)
    side.start(MANAGER, fault=f"{point}:kill:{hit}")
    side.ready()
    west.start(SENDER)
    assert side.children[MANAGER].wait() == -9
    side.start(MANAGER)
    side.ready()
    east.await_depth("A", 60)
    _crossed_once(west, east, 60)
