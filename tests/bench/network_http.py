"""Programs that put and take over HTTP (REST.md) beside clients of AMQP 1.0, the same work:

    python -m tests.bench.network_http [COUNT [CLIENTS [ROUNDS]]]

CLIENTS programs with a connection each put COUNT persistent messages of 1 KiB on one queue, then as
many take them: by AMQP (Qpid Proton, within the credit, a read-ahead of 100), by HTTP over the Unix
socket in lists of 100, and one message a request (COUNT / 10). Printed is each round, and the
medians: microseconds of processor time a message of the server, of the queue manager, and messages
a second.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from tests.bench.peers.processes import cpu_of
from tests.process.amqp_world import SERVER, AmqpWorld, amqp_world
from tests.process.instance import MANAGER
from tests.process.processes import popen
from tests.waiting import until

BODY: Final = "x" * 1024
LIST: Final = 100


def client(what: str, path: Path, count: int, each: int) -> None:
    """A program: `count` messages, `each` a request."""
    from tests.process.test_web_rest import Unix

    with closing(Unix(path)) as line:
        if what == "put":
            for _ in range(0, count, each):
                body = {"messages": [{"body": BODY}] * each} if each > 1 else {"body": BODY}
                assert line.ask("POST", "queues/A/messages", body)[0] == 201
            return
        done: list[str] = []
        while count:
            status, told = line.ask("POST", "queues/A/get", {
                "count": min(each, count), "wait_s": 20, "done": done})
            assert status == 200 and not told.get("failed"), told
            done = [delivery["delivery"] for delivery in told["deliveries"]]
            count -= len(done)
        status, told = line.ask("POST", "deliveries", {
            "settle": [{"delivery": delivery} for delivery in done]})
        assert (status, told["failed"]) == (200, []), told


def measured(pids: list[int], count: int, program: list[str], clients: int
             ) -> tuple[float, ...]:
    """(us of the server, us of the manager, messages a second)."""
    before = [cpu_of([pid]) for pid in pids]
    began = time.monotonic()
    programs = [subprocess.Popen([sys.executable, "-m", *program]) for _ in range(clients)]
    assert [each.wait() for each in programs] == [0] * clients
    wall = time.monotonic() - began
    used = [(cpu_of([pid]) - then) / count * 1e6 for pid, then in zip(pids, before, strict=True)]
    return (*used, count / wall)


@contextmanager
def web_beside(world: AmqpWorld) -> Iterator[int]:
    """omq-web of the same instance; its pid."""
    root, conf = world.root, world.conf
    with (conf / "omq.conf").open("a") as file:
        file.write("\n[web]\nweb_listen_port = 0\n")
    child = popen("omq-web", ["--spool", str(root), "--conf", str(conf)])
    try:
        until(lambda: (root / "run/web.port").exists())
        yield child.pid
    finally:
        child.terminate()
        child.wait()


def main() -> None:
    words = sys.argv[1:]
    if words and words[0] in ("put", "take"):
        client(words[0], Path(words[1]), int(words[2]), int(words[3]))
        return
    count, clients, rounds = [*map(int, words), *(6000, 4, 3)[len(words):]]
    found: dict[str, list[tuple[float, ...]]] = {}
    with tempfile.TemporaryDirectory() as folder, amqp_world(Path(folder)) as world, \
            web_beside(world) as web:
        manager, server = world.children[MANAGER].pid, world.children[SERVER].pid
        socket = str(world.root / "run/web.sock")
        for _ in range(rounds):
            for how in ("amqp", "http, lists of 100", "http, one a request"):
                total = count // 10 if "one" in how else count
                each, pid = {"amqp": (0, server)}.get(how, (LIST if total == count else 1, web))
                for what in ("put", "take"):
                    program = (["tests.bench.network_many", what, world.url, str(total // clients)]
                               if not each else ["tests.bench.network_http", what, socket,
                                                 str(total // clients), str(each)])
                    row = measured([pid, manager], total, program, clients)
                    found.setdefault(f"{how}, {what}", []).append(row)
                    print(f"{how}, {what}", *(f"{value:.1f}" for value in row),
                          f"load {os.getloadavg()[0]:.1f}", flush=True)
    print(json.dumps({name: [round(statistics.median(each), 1) for each in zip(*rows, strict=True)]
                      for name, rows in found.items()}, indent=1))


if __name__ == "__main__":
    main()
