"""The mail switch beside Postfix in one run, quiet and loaded, with each process's part.

    python -m tests.bench.mail_turns [--rounds 5] [--messages 2000] [--busy 0,4] [--parts]
        [--only sink|maildir] [--ours] [--same-session]

By turns, as `bench-aims --only mail` does it; beside it so many loops that take a processor each
(nice 0, as the switches), in a session of their own, as others' work on a machine is (Linux shares
the processor out by session); with `--same-session` in that of the program that sends the mails.
Of each round: messages a second, ms of processor a message, with that of children that ended in it,
and how often a process gave the processor up by itself, a message (each is a wake-up; those of the
ended are not known). With `--parts` the same of each kind of process, median of the rounds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import multiprocess

from omq.services.daemon.process import die_with_parent
from tests.bench.aims.finding import said
from tests.bench.aims.mail import (
    LOCAL,
    REMOTE,
    Switch,
    _omq,
    _running_sink,
    _sent_through,
    apart,
    configure,
)
from tests.bench.instance import cpu_seconds, ended_cpu_seconds
from tests.bench.options import end_in_order
from tests.bench.peers.bench_peers import folder
from tests.bench.peers.postfix import Postfix
from tests.bench.peers.processes import Server, free_port, freeze_all, thaw_all
from tests.demo.instance import running_instance

_fork = multiprocess.get_context("fork")
Parts = dict[str, tuple[float, float, int]]
"""By process name: ms of processor, switches that it wanted, processes."""
ENDED = "(ended)"


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    options = _parser().parse_args(argv)
    end_in_order()
    home = folder("mail-turns-")
    try:
        with ExitStack() as stack:
            switches, sink = _switches(stack, home, ours=options.ours)
            for busy in (int(each) for each in options.busy.split(",")):
                with _loops(busy, apart=not options.same_session):
                    _measure(switches, sink, options, busy)
    finally:
        shutil.rmtree(home)
    return 0


def _switches(stack: ExitStack, home: Path, *, ours: bool) -> tuple[list[Switch], Server]:
    apart(home)
    sink_port = free_port()
    instance = stack.enter_context(running_instance(
        home / "spool", home / "output", sink_port, configure))
    sink = stack.enter_context(_running_sink(home, sink_port))
    switches = [_omq(instance)]
    if not ours:
        (home / "postfix").mkdir()
        apart(home / "postfix")
        postfix = Postfix(home / "postfix", sink_port)
        stack.callback(postfix.stop)
        postfix.start()
        switches.append(Switch(postfix.version(), postfix.port, postfix.server.pids,
                               postfix.maildir))
    stack.callback(lambda: thaw_all([pid for each in switches for pid in each.pids()]))
    return switches, sink


def _measure(switches: list[Switch], sink: Server, options: argparse.Namespace, busy: int) -> None:
    for switch in switches:  # the first of each opens files and connections
        for kind in (REMOTE, LOCAL):
            _sent_through(switch, kind, 200, sink)
        freeze_all(switch.pids())
    kinds = {"sink": REMOTE, "maildir": LOCAL}
    for what in [options.only] if options.only else kinds:
        rates: dict[str, list[float]] = {}
        spent: dict[str, list[Parts]] = {}
        for _ in range(options.rounds):
            for switch in switches:
                thaw_all(switch.pids())
                before = _used(switch)
                passed = _sent_through(switch, kinds[what], options.messages, sink)
                rates.setdefault(switch.title, []).append(options.messages / passed)
                spent.setdefault(switch.title, []).append(
                    _difference(before, _used(switch), options.messages))
                freeze_all(switch.pids())
        _tell(what, busy, rates, spent, parts=options.parts)
    for switch in switches:
        thaw_all(switch.pids())


def _tell(what: str, busy: int, rates: dict[str, list[float]], spent: dict[str, list[Parts]], *,
          parts: bool) -> None:
    said(f"{what}, {busy} busy loops, load {os.getloadavg()[0]:.1f}\n")
    for title, found in rates.items():
        sums = [[sum(each[at] for each in one.values()) for one in spent[title]] for at in (0, 1)]
        said(f"  {title}: {statistics.median(found):,.0f}/s ({min(found):,.0f} to "
             f"{max(found):,.0f}), {statistics.median(sums[0]):.2f} ms, "
             f"{statistics.median(sums[1]):.1f} wake-ups a message\n")
        for name in sorted({name for one in spent[title] for name in one}) if parts else ():
            these = [one.get(name, (0.0, 0.0, 0)) for one in spent[title]]
            said(f"    {name:16} {statistics.median(each[0] for each in these):.3f} ms, "
                 f"{statistics.median(each[1] for each in these):5.2f} wake-ups, "
                 f"{max(each[2] for each in these)} processes\n")
    if len(rates) == 2:
        ours, theirs = rates.values()
        ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
        said(f"  ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})\n")


@dataclass(frozen=True, slots=True)
class _Used:
    """By a process so far: seconds of processor, those of its ended children, switches."""

    name: str
    spent: float
    ended: float
    switches: int


def _used(switch: Switch) -> dict[int, _Used]:
    found = {}
    for pid in switch.pids():
        with suppress(FileNotFoundError, ProcessLookupError):
            found[pid] = _Used(Path(f"/proc/{pid}/comm").read_text().strip(), cpu_seconds(pid),
                               ended_cpu_seconds(pid), _switches_of(pid))
    return found


def _switches_of(pid: int) -> int:
    """Of all its threads."""
    total = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            text = (thread / "status").read_text()
            total += next(int(line.split()[1]) for line in text.splitlines()
                          if line.startswith("voluntary_ctxt_switches"))
    return total


def _difference(before: dict[int, _Used], after: dict[int, _Used], count: int) -> Parts:
    """A message. What a process had used before is no part of it, also where it has ended and its
    parent has all of its time."""
    found: Parts = {}
    ended = 0.0
    for pid, now in after.items():
        then = before.get(pid, _Used(now.name, 0.0, 0.0, 0))
        ms, wakes, processes = found.get(now.name, (0.0, 0.0, 0))
        found[now.name] = (ms + (now.spent - then.spent) * 1000 / count,
                           wakes + (now.switches - then.switches) / count, processes + 1)
        ended += now.ended - then.ended
    ended -= sum(then.spent + then.ended for pid, then in before.items() if pid not in after)
    found[ENDED] = ended * 1000 / count, 0.0, 0
    return {name: each for name, each in found.items() if each[1] or each[0]}


@contextmanager
def _loops(count: int, *, apart: bool) -> Iterator[None]:
    """One process that leads a session, or none, and its loops."""
    if not count:
        yield
        return
    head = _fork.Process(target=_head, args=(count, apart, os.getpid()))
    head.start()
    try:
        yield
    finally:
        head.terminate()
        head.join()


def _head(count: int, apart: bool, parent: int) -> None:  # noqa: FBT001
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    die_with_parent(parent)
    if apart:
        os.setsid()
    running = [_fork.Process(target=_loop, args=(os.getpid(),)) for _ in range(count)]
    for each in running:
        each.start()
    signal.sigwait(ends)
    for each in running:
        each.kill()
        each.join()


def _loop(parent: int) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    die_with_parent(parent)
    while True:
        pass


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mail_turns", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=2000)
    parser.add_argument("--busy", default="0,4", help="how many loops, one measurement each")
    parser.add_argument("--parts", action="store_true", help="each kind of process")
    parser.add_argument("--only", choices=("sink", "maildir"))
    parser.add_argument("--ours", action="store_true", help="without Postfix")
    parser.add_argument("--same-session", action="store_true", help="the loops share with the "
                        "program that sends")
    return parser


if __name__ == "__main__":
    sys.exit(main())
