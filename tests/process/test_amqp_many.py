"""10,000 connections that say nothing, or half of a word: a bounded part of them is held, what is
told of them has a rate, and who works beside them notices nothing."""

from __future__ import annotations

import os
import resource
import signal
import socket
from pathlib import Path

from tests.process.amqp_world import SERVER, amqp_world, needs_proton
from tests.process.processes import start
from tests.waiting import until

needs_proton()

from proton import Message  # noqa: E402
from proton.utils import BlockingConnection  # noqa: E402

WAIT_S = 120
MANY, HELD = 10_000, 200


def test_ten_thousand_half_open_connections(tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    with amqp_world(tmp_path, amqp_client_waiting_max=HELD, amqp_handshake_timeout_s=600,
                    amqp_listen_host="127.0.0.1") as world:
        port = world.await_port()
        files = Path(f"/proc/{world.children[SERVER].pid}/fd")
        before = len(os.listdir(files))

        def stay() -> int:
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            lines = []
            for number in range(MANY):
                line = socket.create_connection(("127.0.0.1", port), WAIT_S,
                                                source_address=("127.0.0.2", 0))
                if number % 2:
                    line.send(b"AMQP\x03")
                lines.append(line)
            opened.write_text(str(len(lines)))
            signal.pause()
            return 0

        stranger = start("stranger", stay, output=world.output)
        until(lambda: opened.exists() or not stranger.running, world.said)
        assert opened.exists(), world.said()
        client = BlockingConnection(world.url, timeout=WAIT_S)
        sender, receiver = client.create_sender("A"), client.create_receiver("A", credit=5)
        for number in range(20):
            sender.send(Message(body=b"%d" % number, inferred=True, durable=True))
            message = receiver.receive(timeout=WAIT_S)  # the body is its memory
            assert bytes(message.body) == b"%d" % number
            receiver.accept()
        client.close()
        assert len(os.listdir(files)) < before + HELD + 20, "those over amqp_client_waiting_max"
        assert len(world.events(1588)) + len(world.events(1590)) < 200, "told at a rate"
        stranger.kill()
