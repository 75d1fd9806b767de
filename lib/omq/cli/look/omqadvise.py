"""omqadvise: how many readers a queue needs, from the load and from measured service times.

Two views side by side. The original's rule: the load of 5 minutes divided by the number of readers,
when that is more than 20 times the number of readers, is high (seed: "S"; "Choosing the optimum
number of reader processes": as few as keep the backlog away, one more at a time). And arithmetic:
messages that arrive a second times seconds for one are the readers that are busy all the time; with
--busy percent of each used, so many are needed, and what has piled up is worked off in --catch-up.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from omq.base import clock
from omq.base.amounts import duration
from omq.base.clock import NS_PER_S
from omq.base.errors import BadRequest, Exit
from omq.base.limits import AUXILIARIES_MAX
from omq.base.names import IDEL_NAME, KEPT_RECORDS, POISON_NAME
from omq.base.services_conf import ServiceConf, load_services
from omq.cli.common import add_json, existing, print_json, tool_parser
from omq.cli.look.authority_causes import Refusals
from omq.cli.look.finding_causes import of
from omq.cli.look.queue_why import around
from omq.cli.progress import looking, reading_history
from omq.core.history.service_times import Times, measure
from omq.core.index.rows import QueueRow
from omq.services.daemon.options import Location

NAME: Final = "omqadvise"
HIGH_FACTOR: Final = 20  # seed: "more than 20 times the number of readers"


_NOT_READERS: Final = frozenset((
    "limit", "group", "selector", "reader_stopped", "waits_for_others", "get_inhibited", "held",
    "deferred", "put_off", "in_doubt"))
"""What holds up a queue however many read it."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One queue."""

    queue: str
    service: str
    readers: int  # now
    messages: int
    load: float
    high: bool  # by the original's rule
    arrivals: float  # a second
    service_s: float | None
    needed: int | None  # None: nothing was measured
    held_up: str = ""  # by what more readers would not change

    @property
    def text(self) -> str:
        if self.held_up:
            return f"as it is: {self.held_up}"
        if self.queue in KEPT_RECORDS:
            return "as it is: its messages are records that stay"
        if not self.readers and self.messages:
            return "nobody reads it"
        if self.needed is None:
            return "high; nothing measured: one more" if self.high else "nothing measured"
        if self.needed > self.readers:
            return f"add {self.needed - self.readers}"
        return "fewer would do" if self.needed < self.readers else "as it is"


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code."""
    options = parser().parse_args(argv)
    if not (1 <= options.busy <= 100 and options.catch_up >= 1 and options.minutes >= 1):
        raise BadRequest(reason="--busy is 1 to 100 (percent), --catch-up and --minutes minutes")
    location = existing(options)
    now = clock.wall_ns()
    with reading_history(NAME, location.paths) as history:
        times = measure(history, now - options.minutes * 60 * NS_PER_S, now)
    found = list(advise(location, times, options.busy / 100, options.catch_up * 60))
    for advice in found:
        if options.json:
            print_json(record(advice))
    if not options.json:
        sys.stdout.write("\n".join((*table(found, times), "")))
    return Exit.OK


def advise(location: Location, times: Times, busy: float, catch_up_s: float) -> Iterator[Advice]:
    """An advice for each queue that a service reads, something was done on, or messages wait on."""
    services = {conf.queue: conf for conf in load_services(location.conf_dir).values()
                if conf.queue}
    known, now_ns = around(location), clock.wall_ns()
    with looking(NAME, location.paths) as seen:
        readers = seen.view.readers()
        for queue in seen.view.queues():
            conf = services.get(queue.name)
            waits = queue.messages > 0 and queue.name not in (POISON_NAME, IDEL_NAME)
            if conf is not None or queue.name in times.queues or waits:
                mine = [reader for reader in readers if reader.queue == queue.name]
                found = of(location, seen, queue, mine, known.services, known.gateways, Refusals(),
                           now_ns)
                held_up = next((each for each in found if each.code in _NOT_READERS), None)
                advice = _advise(queue, conf, len(mine), times, busy, catch_up_s)
                yield advice if held_up is None else replace(advice, held_up=held_up.text)


def _advise(queue: QueueRow, conf: ServiceConf | None, readers: int, times: Times, busy: float,
            catch_up_s: float) -> Advice:
    measured = times.queues.get(queue.name)
    arrivals = measured.arrived / times.seconds if measured else 0.0
    service_s = measured.service_s if measured else None
    needed = None
    if service_s is not None:
        rate = arrivals + queue.messages / catch_up_s
        needed = min(max(1, math.ceil(rate * service_s / busy)), AUXILIARIES_MAX + 1)
    load = queue.load[1]
    high = load / max(1, readers) > HIGH_FACTOR * max(1, readers)
    return Advice(queue.name, conf.name if conf else "", readers, queue.messages, load, high,
                  arrivals, service_s, needed)


def table(found: list[Advice], times: Times) -> Iterator[str]:
    """A line a queue, and the commands."""
    yield f"measured over {duration(times.seconds)}" if times.seconds else (
        "nothing happened in that time: --minutes looks further back")
    yield (f"{'QUEUE':<17}{'Readers':>8}{'Messages':>10}{'Load 5m':>10}{'High':>5}"
           f"{'In/s':>9}{'Each ms':>9}{'Needed':>7}")
    for each in found:
        service = "-" if each.service_s is None else f"{each.service_s * 1000:.2f}"
        yield (f"{each.queue:<17}{each.readers:>8}{each.messages:>10}{each.load:>10.2f}"
               f"{'yes' if each.high else 'no':>5}{each.arrivals:>9.2f}{service:>9}"
               f"{'-' if each.needed is None else each.needed:>7}")
    for each in found:
        if each.held_up:
            yield f"{each.queue}: {each.text} (omqwhy {each.queue})"
        elif each.service and each.text.startswith("add") and each.needed is not None:
            yield f"{each.queue}: {each.text}: omsetsvc -x {each.service} {each.needed - 1}"
        elif each.text.startswith(("high", "nobody")):
            yield f"{each.queue}: {each.text}"


def record(each: Advice) -> dict[str, Any]:
    """The JSON object of a queue: a contract, keys are only added."""
    return {"queue": each.queue, "service": each.service, "readers": each.readers,
            "messages": each.messages, "load5": each.load, "high": each.high,
            "arrivals_per_s": each.arrivals, "service_s": each.service_s, "needed": each.needed,
            "advice": each.text}


def parser() -> argparse.ArgumentParser:
    """Its options."""
    found = tool_parser(NAME, "Show how many readers each queue needs.", """
        omqadvise
        omqadvise --minutes 60 --busy 50
        omqadvise --json
        """)
    found.add_argument("--minutes", type=int, default=15, help="how far back to measure (15)")
    found.add_argument("--busy", type=int, default=70, metavar="PERCENT",
                       help="how busy each reader may be (70)")
    found.add_argument("--catch-up", type=int, default=15, metavar="MINUTES",
                       help="time in which the backlog should be cleared (15)")
    add_json(found)
    return found
