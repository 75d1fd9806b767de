"""omstat: the state of the daemons (-a), of the services (-s), of their auxiliary readers (-p).

Columns as in the original: title, state, since when (the time if it was today, else month.day.year)
or NON-STOP, number of auxiliary readers that run. Below: the channels of a mail gateway, which of
its peers are down or held, and when one is tried again (each peer: omq peers); in which form the
manager's fast path runs; what keeps the instance, a service or a queue from working, and the
command that helps (omq.cli.look.finding_causes). Needs no running daemon.

Exit code 0: what should run runs. 1: it does not. What should run is the NON-STOP daemons, and each
enabled service that nobody turned off (omoff, omrc -n); with -p their auxiliary readers too. What
starts, or waits for its turn to start, does not run yet.
--quiet prints nothing. --metrics prints the figures for Prometheus instead (omq.cli.watch.metrics).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

from omq.base import clock
from omq.base.errors import AccessDenied, Exit, ExtraMissing, ManagerUnavailable
from omq.base.services_conf import ServiceKind
from omq.cli.common import add_json, existing, print_json, tool_parser
from omq.cli.look.alarm_lines import alarm_lines, alarm_records
from omq.cli.look.cause import Causes
from omq.cli.look.finding_causes import find
from omq.cli.look.gateways import Gateway, gateways
from omq.cli.look.instance_causes import of_services, wrong_configuration
from omq.cli.look.service_status import Status, Word, all_status, is_service, should_run
from omq.core.look.look import Origin, Source, look
from omq.core.look.space import UNKNOWN
from omq.format.index import IndexHeader
from omq.services.daemon.options import Location
from omq.storage import segment

NAME = "omstat"
_TITLE_WIDTH = 25
_STATE_WIDTH = 18
_SINCE_WIDTH = 17
_CAUSES_SHOWN = 12


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code: 1 when something that should run does not."""
    options = _parser().parse_args(argv)
    location = existing(options)
    if options.metrics:
        return _metrics(location)
    found, told = all_status(location), UNKNOWN
    shown, causes, now_ns = list(gateways(location)), Causes(), clock.wall_ns()
    wrong = wrong_configuration(location)
    try:
        with look(location.paths, Source.SEGMENT) as seen:
            told = seen.space
            if seen.origin is Origin.HUNG:
                found = [_hung(each, seen.view.header) for each in found]
            causes = find(location, seen, now_ns, found, shown, wrong)
    except ManagerUnavailable as error:
        causes = find(location, None, now_ns, found, shown, wrong, str(error))
    except AccessDenied:  # omstat is for everybody: what is in the index is not
        causes = Causes(tuple(of_services(location, found, shown, wrong)))
    if options.services or options.auxiliaries:
        found = [each for each in found if is_service(each)]
    code = Exit.OK if all(runs(each, auxiliaries=options.auxiliaries) for each in found) else (
        Exit.NO)
    if options.quiet:
        return code
    form = _form(location)
    if options.json:
        for each in found:
            manages = each.conf.kind is ServiceKind.MANAGER
            known = {"form": form if manages else None,
                     "alarms": alarm_records(location) if manages else None}
            print_json(record(each) | known | told.record() | channel_record(
                next((g for g in shown if g.conf.name == each.conf.name), None)))
    else:
        sys.stdout.write(listing(found, auxiliaries=options.auxiliaries, now=time.time()))
        manager = next((each for each in found if each.conf.kind is ServiceKind.MANAGER), None)
        fast = f"{manager.conf.title}: the fast path is {form}" if manager and form else ""
        for line in filter(None, (fast, *map(Gateway.text, shown), *alarm_lines(location),
                                 *cause_lines(causes))):
            sys.stdout.write(line + "\n")
    return code


def cause_lines(causes: Causes) -> Iterator[str]:
    """The gravest first, so many as a screen has room for."""
    found = causes.all()
    for cause in found[:_CAUSES_SHOWN]:
        yield from cause.lines()
    if len(found) > _CAUSES_SHOWN:
        yield f"and {len(found) - _CAUSES_SHOWN} more: omq health lists them, omqwhy QUEUE says why"


def _metrics(location: Location) -> int:
    """The figures for a textfile collector; exit code 0 whatever runs, for the figures say it."""
    try:
        from omq.cli.watch.metrics import text
    except ModuleNotFoundError as error:
        raise ExtraMissing(command=f"{NAME} --metrics", package=error.name,
                           extra="omq-suite[metrics]") from error
    sys.stdout.write(text(location))
    return Exit.OK


def runs(status: Status, *, auxiliaries: bool = False) -> bool:
    """Whether it runs, or need not. A service that is being stopped was told to; a daemon that is
    NON-STOP always should run."""
    if not should_run(status):
        return True
    if status.state is not Word.STARTED:
        return False
    return not auxiliaries or not status.auxiliaries or status.auxiliary_state is Word.STARTED


def _form(location: Location) -> str | None:
    """In which form the fast path of the running manager is (omq.base.form); None: none runs."""
    with suppress(AccessDenied):
        ids = segment.read_ids(location.paths)
        if ids is not None and clock.process_start_ticks(ids.pid) == ids.started:
            return str(ids.extra.get("form", "")) or None
    return None


def _hung(status: Status, header: IndexHeader | None) -> Status:
    """The queue manager does not move, though its process runs, which the index names: it may be
    one that nobody supervises."""
    if status.conf.kind is not ServiceKind.MANAGER or header is None:
        return status
    stopped = clock.process_state(header.pid) in clock.STOPPED
    return replace(status, state=Word.SUSPENDED if stopped else Word.HUNG, pid=header.pid)


def advice(status: Status) -> str:
    """What to do about a daemon that runs and does not work, or that no restart mends; empty for
    others."""
    if status.state is Word.SUSPENDED:
        return (f"{status.conf.title} (process {status.pid}) is stopped by a signal: "
                f"'kill -CONT {status.pid}' lets it go on")
    if status.state is Word.HUNG:
        return (f"{status.conf.title} (process {status.pid}) runs but does not move: "
                f"'kill -ABRT {status.pid}' ends it with a trace, its supervisor starts the next "
                "one")
    if status.given_up and status.text:
        return f"{status.conf.title} is not restarted: {status.text}"
    return ""


def listing(found: Iterable[Status], *, auxiliaries: bool, now: float) -> str:
    """The table; `now` decides what "today" is."""
    lines = []
    for each in found:
        state = each.auxiliary_state if auxiliaries else each.state
        title = each.conf.title[: _TITLE_WIDTH - 1]
        count = str(each.auxiliaries_running) if is_service(each) else ""
        since = "NON-STOP" if each.conf.nonstop else since_text(each.since, now)
        line = f"{title:<{_TITLE_WIDTH}}{state:<{_STATE_WIDTH}}{since:<{_SINCE_WIDTH}}{count}"
        lines.append(line.rstrip() + "\n")
    return "".join(lines)


def since_text(since: float | None, now: float) -> str:
    """HH:MM:SS today, MM.DD.YY before (local time), nothing for never."""
    if since is None:
        return ""
    then, today = time.localtime(since), time.localtime(now)
    same_day = (then.tm_year, then.tm_yday) == (today.tm_year, today.tm_yday)
    return time.strftime("%H:%M:%S" if same_day else "%m.%d.%y", then)


def record(status: Status) -> dict[str, object]:
    """The JSON object of one service: a contract, keys are only added."""
    since = None if status.since is None else clock.iso_time(int(status.since * clock.NS_PER_S))
    return {
        "service": status.conf.name,
        "title": status.conf.title,
        "state": status.state,
        "since": since,
        "nonstop": status.conf.nonstop,
        "pid": status.pid,
        "queue": status.conf.queue,
        "auxiliary_state": status.auxiliary_state,
        "auxiliaries": status.auxiliaries,
        "auxiliaries_running": status.auxiliaries_running,
        "restarts": status.restarts,
        "text": status.text,
    }


def channel_record(gateway: Gateway | None) -> dict[str, object]:
    """What a mail gateway has besides; null for the others."""
    if gateway is None:
        return {"channels": None, "peers_down": None, "peers_held": None, "next_try_s": None}
    return {"channels": list(gateway.channels), "peers_down": len(gateway.down),
            "peers_held": len(gateway.held), "next_try_s": gateway.next_try_s}


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(
        NAME,
        "Show the state of an instance's daemons and services.",
        """
        omstat -a
        omstat -s -p --instance test
        omstat --quiet || mail -s 'omq is ill' root
        omstat -a --json
        omstat --metrics >omq.prom.new && mv omq.prom.new /var/lib/node_exporter/omq.prom
        """,
    )
    parser.add_argument("-a", dest="all", action="store_true", help="all daemons (the default)")
    parser.add_argument(
        "-s", dest="services", action="store_true", help="the services that read a queue"
    )
    parser.add_argument(
        "-p", dest="auxiliaries", action="store_true", help="the state of their auxiliary readers"
    )
    parser.add_argument(
        "--quiet", action="store_true", help="print nothing; the exit code says whether all runs"
    )
    parser.add_argument(
        "--metrics", action="store_true", help="print the figures in the format of Prometheus"
    )
    add_json(parser)
    return parser
