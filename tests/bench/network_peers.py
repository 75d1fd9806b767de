"""The same client of AMQP 1.0 at amqp.server and at RabbitMQ with rabbitmq_amqp1_0, by turns:

    python -m tests.bench.network_peers [COUNT [ROUNDS]]     (make setup-peers)

A round: COUNT persistent messages of 100 bytes put with all credit there is, nine tenths of them
taken with a read-ahead of 100, the others with none, and COUNT / 20 put one at a time. Both are
set so that what is accepted is on the disk. Printed are medians, and the median of the ratios of
the rounds; processor time is that of the server's processes, and of the client, which is one
process. What it takes times the rate is its share of a processor: near 1, both servers wait for it.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.bench.by_turns import compared, measured
from tests.bench.network_clients import Puts, Single, Takes
from tests.bench.peers.rabbit import RabbitPeer
from tests.process.amqp_world import SERVER, amqp_world
from tests.process.instance import MANAGER, WRITER

ROUNDS: Final = 5
AHEAD: Final = 100
ROWS: Final = ("put a second", "take a second", "take, no read-ahead", "put: us of the server",
               "take: us of the server", "no read-ahead: us", "one put, median ms",
               "one put, p99 ms", "put: us of the client", "take: us of the client")
FASTER: Final = 3
"""So many of ROWS are rates, of which more is better."""


class Rabbit(RabbitPeer):
    """With the plugin."""

    def start(self) -> None:
        (self.folder / "plugins").write_text("[rabbitmq_amqp1_0].\n")
        super().start()


@dataclass
class Place:
    """A server: where its queue is, whose processor time counts; `found`, for each round a figure
    for each of ROWS."""

    name: str
    url: str
    address: str
    pids: Callable[[], list[int]]
    user: str = ""
    found: list[tuple[float, ...]] = field(default_factory=list)

    def round(self, count: int) -> None:
        put = measured(self.pids(), Puts(self.url, self.address, count, self.user).run, count)
        alone = count // 10
        took, single_took = (
            measured(self.pids(), Takes(self.url, self.address, some, ahead, self.user).run, some)
            for some, ahead in ((count - alone, AHEAD), (alone, 1)))
        single = Single(self.url, self.address, count // 20, self.user)
        single.run()
        times = sorted(single.times)
        self.found.append((put[0], took[0], single_took[0], put[1], took[1], single_took[1],
                           statistics.median(times) * 1000,
                           times[len(times) * 99 // 100] * 1000, put[2], took[2]))
        Takes(self.url, self.address, len(times), AHEAD, self.user).run()


def main(arguments: list[str]) -> int:
    count = int(arguments[0]) if arguments else 5_000
    rounds = int(arguments[1]) if len(arguments) > 1 else ROUNDS
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name in ("omq", "rabbit"):
            (folder / name).mkdir()
        rabbit = Rabbit(folder / "rabbit")
        stack.callback(rabbit.stop)
        rabbit.start()
        world = stack.enter_context(amqp_world(folder / "omq"))
        daemons = [world.children[each].pid for each in (SERVER, MANAGER, WRITER)]
        ours = Place("omq", world.url, "A", lambda: daemons)
        theirs = Place("RabbitMQ", f"127.0.0.1:{rabbit.port}", f"/amq/queue/{rabbit.name}",
                       rabbit.pids, "guest:guest")
        print(f"{rabbit.version()}; {compared(ROWS, FASTER, ours, theirs, count, rounds)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
