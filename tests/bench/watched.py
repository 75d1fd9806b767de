"""What looking costs the queue manager: a scrape a second and ten pages that follow all queues,
beside a program that puts, takes and settles message after message.

    python -m tests.bench.watched [ROUNDS [SECONDS]]

Turns with nobody who looks and turns with all of them, one after the other, so that what else the
machine does falls on both. A table: the manager's processor microseconds a message and the
messages a second, of each kind the median; the median of the differences within a round; what the
two programs that look took themselves.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import multiprocess

from omq.cli.watch.omq_metrics import PORT_FILE
from tests.bench.instance import cpu_seconds
from tests.process.processes import WAIT_S, popen
from tests.process.web_world import Browser, Web, follows, world

PAGES = 10
SCRAPE_S = 1.0
_fork = multiprocess.get_context("fork")


@dataclass(frozen=True, slots=True)
class Turn:
    """`manager`, `web`, `metrics`: processor seconds."""

    messages: int
    seconds: float
    manager: float
    web: float
    metrics: float

    @property
    def a_message(self) -> float:
        """Microseconds of the manager."""
        return 1e6 * self.manager / self.messages

    @property
    def a_second(self) -> float:
        return self.messages / self.seconds


def follow_page(browser: Browser) -> None:
    """A page that is open, until this process is ended."""
    with follows(browser, "/live?all=1") as answer:
        while answer.readline():
            pass


def scrape(address: str) -> None:
    """What Prometheus does, until this process is ended."""
    due, pause = time.monotonic(), threading.Event()
    while True:
        with urllib.request.urlopen(address, timeout=WAIT_S) as answer:
            answer.read()
        due += SCRAPE_S
        pause.wait(max(0.0, due - time.monotonic()))


@contextmanager
def looking(browser: Browser, address: str) -> Iterator[None]:
    """All of them meanwhile."""
    each = [_fork.Process(target=follow_page, args=(browser,)) for _ in range(PAGES)]
    each.append(_fork.Process(target=scrape, args=(address,)))
    try:
        for process in each:
            process.start()
        yield
    finally:
        for process in each:
            process.kill()
            process.join()


def turn(web: Web, metrics: int, seconds: float) -> Turn:
    """Messages one after the other, for so long."""
    manager = web.instance.manager
    assert manager is not None
    pids = (manager.pid, web.child.pid, metrics)
    with web.instance.connect("load") as connection, connection.reader("A") as reader:
        before, began, count = [cpu_seconds(pid) for pid in pids], time.monotonic(), 0
        while time.monotonic() - began < seconds:
            connection.put("A", b"a message of the usual size, or nearly" * 10)
            (message,) = reader.next(timeout_s=WAIT_S)
            message.done()
            count += 1
        spent = [cpu_seconds(pid) - was for pid, was in zip(pids, before, strict=True)]
        return Turn(count, time.monotonic() - began, *spent)


def main(arguments: list[str]) -> int:
    rounds, seconds = (*map(float, arguments), *(10.0, 5.0)[len(arguments):])
    quiet, watched = [], []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
        web = stack.enter_context(world(folder, web_period_ms=1000))
        conf = web.instance.conf / "omq.conf"
        conf.write_text(conf.read_text() + "[metrics]\nmetrics_listen_port = 0\n")
        metrics = popen("omq-metrics", web.instance.arguments)
        stack.callback(metrics.wait, WAIT_S)
        stack.callback(metrics.terminate)
        file = web.instance.paths.run / PORT_FILE
        while not file.exists():
            assert metrics.poll() is None
        host, port = file.read_text().split()
        address, browser = f"http://{host}:{port}/metrics", web.browser("games")
        turn(web, metrics.pid, 1.0)  # warm
        for number in range(int(rounds)):
            for kind in ((0, 1), (1, 0))[number % 2]:
                if kind:
                    with looking(browser, address):
                        watched.append(turn(web, metrics.pid, seconds))
                else:
                    quiet.append(turn(web, metrics.pid, seconds))
    print("|  | nobody looks | all look | difference within a round |\n| :-- | --: | --: | --: |")
    for title, name in (("manager, µs a message", "a_message"), ("messages a second", "a_second")):
        pairs = [(getattr(a, name), getattr(b, name)) for a, b in zip(quiet, watched, strict=True)]
        ratios = sorted(100 * (b / a - 1) for a, b in pairs)
        low, _, high = statistics.quantiles(ratios, n=4)
        print(f"| {title} | {statistics.median(a for a, _ in pairs):.1f} | "
              f"{statistics.median(b for _, b in pairs):.1f} | "
              f"{statistics.median(ratios):+.1f} % (quartiles {low:+.1f}, {high:+.1f}) |")
    for title, name in (("omq-web", "web"), ("omq-metrics", "metrics")):
        took = [statistics.median(1e3 * getattr(each, name) / each.seconds for each in turns)
                for turns in (quiet, watched)]
        print(f"| {title}, ms a second | {took[0]:.1f} | {took[1]:.1f} | |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
