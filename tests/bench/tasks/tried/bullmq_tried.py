"""BullMQ, on a Redis of its own (make setup-peers; npm install --prefix build/peers/node bullmq
ioredis). Its trials are in JavaScript, bullmq_tried.mjs, one for each function here."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.peers import software
from tests.bench.peers.processes import Server, free_port

NODE = software.HOME / "node"
WAIT_S = 120


def _trial(name: str) -> None:
    with tempfile.TemporaryDirectory(prefix="omq-tried-") as folder:
        server, port = Server("redis", Path(folder)), free_port()
        server.start([software.program("usr/bin/redis-server"), "--bind", "127.0.0.1", "--port",
                      str(port), "--save", "", "--dir", folder], software.environment())
        try:
            server.wait_port(port)
            program = Path(__file__).with_suffix(".mjs")
            subprocess.run(["node", str(program), name, str(port), str(NODE)], check=True,
                           timeout=WAIT_S, stdout=sys.stderr)
        finally:
            server.stop()


def delay() -> None:
    _trial("delay")


def planned_times() -> None:
    _trial("planned_times")


def retries() -> None:
    _trial("retries")


def priority() -> None:
    _trial("priority")


def once() -> None:
    _trial("once")


def results() -> None:
    _trial("results")


def chains() -> None:
    _trial("chains")


def groups() -> None:
    _trial("groups")


def rate() -> None:
    _trial("rate")


def at_once() -> None:
    """Of a queue, over all its workers; of a key is a feature of its paid edition."""
    _trial("at_once")
