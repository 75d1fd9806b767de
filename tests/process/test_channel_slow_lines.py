"""A link or a channel on which nothing moves holds up no other one: what those do is counted, not
timed, and the slow one has all of its own when it moves again."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.process.amqp_world import SERVER, amqp_world, needs_proton
from tests.process.bad_line import Weather, bad_line
from tests.process.channel_world import SENDER, sides
from tests.process.processes import Child, start
from tests.waiting import until

needs_proton()

from proton import Message  # noqa: E402
from proton.utils import BlockingConnection  # noqa: E402

WAIT_S = 120
COUNT, LARGE = 300, 20_000


def receiver(url: str, noted: Path) -> Child:
    """Takes COUNT messages of A with credit for all of them; notes each."""

    def run() -> int:
        client = BlockingConnection(url, timeout=WAIT_S)
        link = client.create_receiver("A", credit=COUNT)
        with noted.open("a", buffering=1) as file:
            for _ in range(COUNT):
                message = link.receive(timeout=WAIT_S)  # the body is its memory
                body = bytes(message.body)
                link.accept()
                file.write(body[:8].decode().strip() + "\n")
        client.close()
        return 0

    return start("receiver", run)


def test_a_receiver_with_credit_that_is_frozen(tmp_path: Path) -> None:
    noted = tmp_path / "noted"
    with amqp_world(tmp_path) as world:
        with world.connect() as native:
            native.put("A", b"%8d" % 0 + bytes(LARGE))
        frozen = receiver(world.url, noted)
        until(lambda: noted.exists() and noted.read_text(), world.said)
        frozen.signal(signal.SIGSTOP)
        frozen.wait_stopped()
        with world.connect() as native:
            for number in range(1, COUNT):
                native.put("A", b"%8d" % number + bytes(LARGE))
        client = BlockingConnection(world.url, timeout=WAIT_S)
        sender, link = client.create_sender("B"), client.create_receiver("B", credit=20)
        for number in range(COUNT):  # each is there and taken while the other does nothing
            sender.send(Message(body=b"%d" % number, inferred=True, durable=True))
            message = link.receive(timeout=WAIT_S)
            assert bytes(message.body) == b"%d" % number
            link.accept()
        client.close()
        assert noted.read_text() == "0\n", "it was frozen all the while"
        frozen.signal(signal.SIGCONT)
        assert frozen.wait() == 0
        assert noted.read_text().split() == [str(number) for number in range(COUNT)]


def test_a_channel_whose_line_is_frozen(tmp_path: Path) -> None:
    with sides(tmp_path, "WEST", "EAST") as (west, east):
        port = east.serve()
        with bad_line(port, Weather(), tmp_path / "line") as line:
            west.channel("EAST", line.port, batchsize="20")
            west.channel("GOOD", port, batchsize="20")
            west.remote("SLOW", "EAST", "A")
            west.remote("FAST", "EAST", "B", transmission="GOOD")
            west.put("SLOW", 0, 50)
            west.start(SENDER)
            east.await_depth("A", 50)
            line.child.signal(signal.SIGSTOP)
            line.child.wait_stopped()
            west.put("SLOW", 50, 250)
            west.put("FAST", 0, 300)
            east.await_depth("B", 300)
            assert east.depth("A") == 50, "its line was frozen all the while"
            line.child.signal(signal.SIGCONT)
            east.await_depth("A", 300)
            west.until(lambda: not west.in_doubt() and not west.depth("EAST"))
            assert east.numbers("A") == list(range(300))
            assert east.numbers("B") == list(range(300))
        west.stop(SENDER)
        east.stop(SERVER)
