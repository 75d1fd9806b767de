"""What one look costs: a scrape of omq-metrics, pages of the console, pages that follow.

    python -m tests.bench.looks [QUEUES [MESSAGES]]     (8 and 0)

QUEUES: so many queues are defined. MESSAGES: so many wait on one of them, a hundredth with the
property customer=42. Of each look the processor milliseconds of the program that answers (mean of
LOOKS, after one that is not counted) and the size of the answer; of ten pages that follow all
queues its processor milliseconds a second. PERFORMANCE has the figures.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import multiprocess

import omq
from omq.cli.watch.omq_metrics import PORT_FILE
from tests.bench.instance import cpu_seconds
from tests.bench.watched import PAGES, follow_page
from tests.process.operator_world import Instance
from tests.process.processes import WAIT_S, popen
from tests.process.web_world import Browser, configure, console

LOOKS = 20
FOLLOW_S = 5.0
BATCH = 1000
_fork = multiprocess.get_context("fork")


def look(title: str, pid: int, ask: Callable[[], str]) -> None:
    """A row: one kind of look."""
    ask()
    before = cpu_seconds(pid)
    for _ in range(LOOKS):
        answer = ask()
    took = 1e3 * (cpu_seconds(pid) - before) / LOOKS  # by ticks of 10 ms: of all together
    print(f"| {title} | {took:.1f} | {len(answer) / 1000:,.0f} | "
          f"{answer.count(chr(10)):,} |", flush=True)


def page(browser: Browser, path: str) -> str:
    """One that must be there."""
    answer = browser.get(path)
    assert answer.status == 200, (path, answer.status, answer.text[:500])
    return answer.text


def following(pid: int, browser: Browser) -> None:
    """A row: ten pages that follow all queues."""
    each = [_fork.Process(target=follow_page, args=(browser,)) for _ in range(PAGES)]
    try:
        for process in each:
            process.start()
        pause = threading.Event()
        pause.wait(1.0)  # they are connected
        before, began = cpu_seconds(pid), time.monotonic()
        pause.wait(FOLLOW_S)
        spent = 1e3 * (cpu_seconds(pid) - before) / (time.monotonic() - began)
    finally:
        for process in each:
            process.kill()
            process.join()
    print(f"| {PAGES} pages that follow all queues, a second | {spent:.0f} | | |", flush=True)


def main(arguments: list[str]) -> int:
    """See the module."""
    queues, messages = (*map(int, arguments), *(8, 0)[len(arguments):])
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
        made = Instance(folder / "spool")
        conf = made.conf / "omq.conf"
        conf.write_text(conf.read_text().replace("= 20000", f"= {20_000 + 2 * messages}").replace(
            "= 25000", f"= {25_000 + 2 * messages}").replace("= 4194304", "= 67108864"))
        configure(made, web_period_ms=1000)
        conf.write_text(conf.read_text() + "[metrics]\nmetrics_listen_port = 0\n")
        stack.callback(made.end)
        made.start()
        web = stack.enter_context(console(made))
        metrics = popen("omq-metrics", web.instance.arguments)
        stack.callback(metrics.wait, WAIT_S)
        stack.callback(metrics.terminate)
        file = web.instance.paths.run / PORT_FILE
        while not file.exists():
            assert metrics.poll() is None
        host, port = file.read_text().split()
        with web.instance.connect("load") as connection:
            there = len(connection.queues.list())
            for number in range(queues - there):
                connection.queues.define(f"LOOK.{number}")
            for first in range(0, messages, BATCH):
                connection.put_many("A", [
                    omq.Outgoing(b"a message", priority=5 if number % 2 else 3,
                                 properties={"customer": str(number % 100)})
                    for number in range(first, min(messages, first + BATCH))])
        browser = web.browser("games")
        print(f"| {max(queues, there)} queues, {messages:,} messages | ms | KB | lines |\n"
              "| :-- | --: | --: | --: |")
        look("a scrape", metrics.pid, lambda: urllib.request.urlopen(
            f"http://{host}:{port}/metrics", timeout=WAIT_S).read().decode())
        look("the page of all queues", web.child.pid, lambda: page(browser, "/queues"))
        following(web.child.pid, browser)
        if messages:
            for title, path in (
                    ("first page of its messages", "/queues/A/messages"),
                    (f"the page after number {messages // 3:,}",
                     f"/queues/A/messages?after=5.{messages // 3}"),
                    ("a selector on a column", "/queues/A/messages?where=priority%3D3"),
                    ("a selector on a property", "/queues/A/messages?where=customer%3D42"),
                    ("the queue with its ages", "/queues/A"),
                    ("one message", f"/messages/{web.instance.on('A')[0]}")):
                look(title, web.child.pid, lambda path=path: page(browser, path))  # type: ignore[misc]
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
