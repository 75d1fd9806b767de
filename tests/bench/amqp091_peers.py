"""The same client of AMQP 0-9-1 (py-amqp) at amqp.server and at RabbitMQ, by turns:

    python -m tests.bench.amqp091_peers [COUNT [ROUNDS]]     (make setup-peers)

A round: COUNT persistent messages of 100 bytes on a durable queue, by one client in batches of 100,
each batch awaited by its confirms, then taken by another with a prefetch of 300 and acknowledged in
batches; then COUNT / 20 put one at a time. Printed are medians, and the median of the ratios of the
rounds: above 1, omq is better. Processor time is that of the server's processes.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import amqp

from tests.bench.by_turns import compared, measured
from tests.bench.peers.rabbit import RabbitPeer, RabbitWire
from tests.process.amqp_world import PASSWORD, SERVER, amqp_world
from tests.process.instance import MANAGER, WRITER

BATCH: Final = 100
BODY: Final = bytes(100)
WAIT_S: Final = 600
ROWS: Final = ("put a second", "taken a second", "put: us of the server", "taken: us of the server",
               "one put, median ms")
RATES: Final = 2
"""So many of ROWS are rates, of which more is better."""


@dataclass
class Place:
    """A server; `found`, for each round a figure for each of ROWS."""

    name: str
    port: int
    user: str
    password: str
    pids: Callable[[], list[int]]
    found: list[tuple[float, ...]] = field(default_factory=list)

    def connected(self) -> amqp.Connection:
        made = amqp.Connection(f"127.0.0.1:{self.port}", userid=self.user, password=self.password,
                               read_timeout=WAIT_S, write_timeout=WAIT_S)
        made.connect()
        return made

    def round(self, count: int) -> None:
        opened = self.connected()
        opened.channel().queue_declare("rabbitmq-classic", durable=True, auto_delete=False)
        opened.close()
        puts = RabbitWire(self.connected(), "classic", 0)
        put = measured(self.pids(), lambda: self._put(puts, count), count)
        takes = RabbitWire(self.connected(), "classic", BATCH)
        took = measured(self.pids(), lambda: self._take(takes, count), count)
        takes.close()
        times = []
        for _ in range(count // 20):
            began = time.monotonic()
            puts.put([BODY])
            times.append(time.monotonic() - began)
        puts.close()
        rest = RabbitWire(self.connected(), "classic", BATCH)
        self._take(rest, len(times))
        rest.close()
        self.found.append((put[0], took[0], put[1], took[1], statistics.median(times) * 1000))

    def _put(self, puts: RabbitWire, count: int) -> None:
        for _ in range(count // BATCH):
            puts.put([BODY] * BATCH)

    def _take(self, takes: RabbitWire, count: int) -> None:
        while count > 0:
            count -= len(takes.take(BATCH, WAIT_S))


def main(arguments: list[str]) -> int:
    count = int(arguments[0]) if arguments else 5_000
    rounds = int(arguments[1]) if len(arguments) > 1 else 5
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name in ("omq", "rabbit"):
            (folder / name).mkdir()
        rabbit = RabbitPeer(folder / "rabbit")
        stack.callback(rabbit.stop)
        rabbit.start()
        world = stack.enter_context(amqp_world(folder / "omq"))
        world.stop(SERVER)
        (world.conf / "authority.conf").write_text("[*]\nuser:daemon = put get browse admin\n")
        world.stop(MANAGER)
        world.start(MANAGER)
        world.ready()
        world.amqp(amqp_users=world.users("daemon"))
        daemons = [world.children[each].pid for each in (SERVER, MANAGER, WRITER)]
        ours = Place("omq", world.await_port(), "daemon", PASSWORD, lambda: daemons)
        theirs = Place("RabbitMQ", rabbit.port, "guest", "guest", rabbit.pids)
        print(f"{rabbit.version()}; {compared(ROWS, RATES, ours, theirs, count, rounds)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
