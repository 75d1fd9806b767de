"""Messages flow on to an existing broker: RabbitMQ with its AMQP 1.0 plugin, as Debian has it.

It knows nothing of channels: each message is there at least once, in order but for what came again,
and those say so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.amqp_world import needs_proton
from tests.process.channel_world import SENDER, sides

needs_proton()
pytest.importorskip("amqp", reason="the extra `peers`: py-amqp, RabbitMQ")

from tests.bench.instance import BenchError  # noqa: E402
from tests.bench.peers import software  # noqa: E402
from tests.bench.peers.rabbit import RabbitPeer  # noqa: E402

COUNT = 40


class Broker(RabbitPeer):
    """With the plugin."""

    def start(self) -> None:
        (self.folder / "plugins").write_text("[rabbitmq_amqp1_0].\n")
        super().start()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    try:
        software.program("usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server")
    except BenchError:
        pytest.skip("the extra `peers`: RabbitMQ (make setup-peers)")
    (tmp_path / "rabbit").mkdir()
    made = Broker(tmp_path / "rabbit")
    try:
        made.start()
        yield made
    finally:
        made.stop()


def test_messages_flow_on_to_rabbitmq(broker: Broker, tmp_path: Path) -> None:
    with sides(tmp_path, "WEST") as (west,):
        passwords = west.conf / "channels"
        passwords.write_text("RABBIT:guest:guest\n")
        passwords.chmod(0o600)
        west.fixed["channel_passwords"] = passwords
        west.configure()
        west.channel("RABBIT", broker.port, peer="foreign", user="guest", batchsize="10",
                     address=f"/amq/queue/{broker.name}")
        west.remote("OUT", "RABBIT", "ORDERS")
        west.put("OUT", 0, COUNT, properties={"customer": "42"})
        west.start(SENDER, fault="channel.before_commit:kill:2")
        assert west.children[SENDER].wait() == -9
        west.start(SENDER)
        west.until(lambda: not west.in_doubt() and not west.depth("RABBIT"))
        west.stop(SENDER)
    wire = broker.getter(0, 100)
    found: list[int] = []
    while len(set(found)) < COUNT:
        bodies = wire.take(10, 30.0)
        assert bodies, f"lost: {found}"
        found += [int(re.findall(rb"[0-9]+$", body)[0]) for body in bodies]
    wire.close()
    first = list(dict.fromkeys(found))
    assert first == list(range(COUNT)), "in order, but for what came again"
