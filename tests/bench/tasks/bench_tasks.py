"""omq beside Redis and RabbitMQ as brokers of Celery or dramatiq, in one run: `make bench-tasks`
(root, FUSE).

Tasks a second, how long one waits, and how many that were acknowledged are never done after kill -9
of a worker, of the broker, and after a cut of power (tests/crash/daemons/powerfs.py).
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable
from functools import partial

from tests.bench.document import markdown_table, marked, write_section
from tests.bench.tasks.brokers import BROKERS, LIBRARIES
from tests.bench.tasks.measures import FAULTS, Found, Size, Trial, measure

MISSING = "not measured"
TITLES = {"worker": "worker killed", "broker": "broker killed", "power": "power cut"}


def table(found: dict[str, Found]) -> str:
    rows: list[tuple[str, Callable[[Found], str]]] = [
        ("sent a second", lambda each: _figure(each.put, ",.0f")),
        ("done a second", lambda each: _figure(each.work, ",.0f")),
        ("a task waits, median", lambda each: _figure(each.p50_s * 1000, ",.1f", " ms")),
        ("a task waits, p99", lambda each: _figure(each.p99_s * 1000, ",.1f", " ms")),
        *((f"{TITLES[fault]}: not done, of those acknowledged", partial(_lost, fault))
          for fault in FAULTS),
        *((f"{TITLES[fault]}: done twice", partial(_twice, fault)) for fault in FAULTS),
    ]
    return markdown_table(
        ("", *(BROKERS[name].title for name in found)),
        [(title, *(show(each) for each in found.values())) for title, show in rows])


def _figure(value: float, form: str, unit: str = "") -> str:
    return MISSING if math.isnan(value) else f"{value:{form}}{unit}"


def _lost(fault: str, found: Found) -> str:
    count = found.faults.get(fault)
    return f"{count.lost} of {count.sent}" if count else MISSING


def _twice(fault: str, found: Found) -> str:
    count = found.faults.get(fault)
    return str(count.twice) if count else MISSING


def _about(broker: str, library: str) -> str:
    told = BROKERS[broker]
    return f"* {told.title}: " + "; ".join(
        filter(None, (told.settings, told.notes.get(library)))) + "."


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench_tasks")
    parser.add_argument("--only", nargs="+", choices=BROKERS, default=list(BROKERS))
    parser.add_argument("--library", choices=LIBRARIES, default="celery")
    parser.add_argument("--document", help="where the table goes")
    parser.add_argument("--quick", action="store_true", help="a tenth of it: does it work?")
    options = parser.parse_args(argv)
    library = LIBRARIES[options.library]
    if options.document:
        try:
            options.document = marked(library.section)(options.document)
        except argparse.ArgumentTypeError as error:
            parser.error(f"--document: {error}")
    size = Size(200, 60, 40.0, 60) if options.quick else Size()
    before, began = os.getloadavg()[0], time.monotonic()
    found = {name: measure(Trial(name, options.library), size, _say) for name in options.only}
    minutes = (time.monotonic() - began) / 60
    text = (f"{'A short run' if options.quick else 'One run'} of {minutes:.0f} minutes. "
            f"{library.version}, a worker with two processes ({library.about}). Load average "
            f"{before:.1f} before, {os.getloadavg()[0]:.1f} behind; {os.cpu_count()} processors."
            f"\n\n{table(found)}\n" + "\n".join(_about(name, options.library) for name in found))
    print(text)
    missing = [line for each in found.values() for line in each.missing]
    if missing:
        _say("not measured, so the document stays as it is:\n" + "\n".join(missing))
        return 1
    if options.document:
        write_section(options.document, library.section, text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
