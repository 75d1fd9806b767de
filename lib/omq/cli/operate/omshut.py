"""omshut: stops an instance in order, by systemd or its embedded supervisor, and waits for it.

Shows what it waits for. Exit code 0 when the instance is down, 1 when none ran, 69 when it is not
down in time (the supervisor goes on stopping it; each daemon has its own time-out there).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import time
from dataclasses import dataclass

from omq.base.amounts import duration
from omq.base.errors import Exit, TimedOut
from omq.base.paths import SpoolPaths, existing_spool
from omq.base.services_conf import STOP_ORDER
from omq.cli.common import (
    Location,
    locate,
    say,
    seconds,
    services_or_shipped,
    settings_or_defaults,
    tool_parser,
)
from omq.cli.look.service_status import all_status
from omq.cli.operate.command_notes import add_reason, note_command
from omq.services.daemon.lock import LOCK_FILE, holder
from omq.services.daemon.process import ProcessId
from omq.services.daemon.run_state import LIVE
from omq.services.supervise import systemctl
from omq.services.supervise.control_client import ControlConnection
from omq.services.supervise.control_socket import Reply

NAME = "omshut"


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code."""
    options = _parser().parse_args(argv)
    location = locate(options)
    existing_spool(location.paths.root)
    settings = settings_or_defaults(location.conf_dir, NAME)
    # Each stage of the stop may take its time-out; one more for the supervisor itself.
    bound_s = options.timeout
    if bound_s is None:
        bound_s = float(settings.stop_timeout_s * (len(STOP_ORDER) + 1))
    managed = systemctl.managed(location.paths)
    began = time.monotonic()
    bound = Bound(bound_s, began + bound_s)
    if managed is not None:
        if not stop_units(location, managed, bound, options.reason):
            return Exit.NO
    elif not holder(location.paths.run / LOCK_FILE):
        say(NAME, f"nothing runs in {location.paths.root}")
        return Exit.NO
    else:
        note_command(location, NAME, options.reason)
        stop(location.paths, settings.connect_timeout_s, bound)
    say(NAME, f"{location.paths.root} is stopped, in {duration(time.monotonic() - began)}")
    return Exit.OK


@dataclass(frozen=True, slots=True)
class Bound:
    """How long the stop may take: as it was asked for, and when it is over (monotonic)."""

    seconds: float
    deadline: float

    def left_s(self) -> float:
        return max(0.0, self.deadline - time.monotonic())

    def over(self, what: str) -> TimedOut:
        return TimedOut(seconds=self.seconds, what=what)


def stop_units(location: Location, managed: systemctl.Managed, bound: Bound, reason: str) -> bool:
    """By omq-drain.service, when systemd stops the target. False: nothing ran. TimedOut."""
    services = services_or_shipped(location.conf_dir, NAME)
    running = {each.conf.name: each.pid for each in all_status(location, services) if each.pid}
    if not running:
        say(NAME, f"nothing runs in {location.paths.root}")
        return False
    say(NAME, f"stopping: {' '.join(running)}")
    note_command(location, NAME, reason, len(running))
    with contextlib.ExitStack() as stack:
        pidfds = {}
        for name, pid in running.items():
            with contextlib.suppress(ProcessLookupError):
                pidfds[os.pidfd_open(pid)] = name
        for pidfd in pidfds:
            stack.callback(os.close, pidfd)
        systemctl.call(["stop", "--no-block", managed.target])
        _see_off(pidfds, bound)
    systemctl.call(["stop", managed.target])  # its job is over only now
    return True


def _see_off(left: dict[int, str], bound: Bound) -> None:
    while left:
        ended = select.select(list(left), [], [], bound.left_s())[0]
        if not ended:
            raise bound.over(" ".join(left.values()))
        for pidfd in ended:
            _say_down(left.pop(pidfd), list(left.values()))


def stop(paths: SpoolPaths, answer_s: float, bound: Bound) -> None:
    """Ask, follow what happens, wait for the end. TimedOut at the deadline."""
    with ControlConnection(paths.run, answer_s) as connection:
        state = connection.ask({"command": "status"})
        process = ProcessId(int(state["pid"]), int(state["start_ticks"]))
        pidfd = os.pidfd_open(process.pid)
        try:
            _follow(connection, bound)
            _wait_gone(process, pidfd, bound)
        finally:
            os.close(pidfd)


def _follow(connection: ControlConnection, bound: Bound) -> None:
    reply = connection.ask({"command": "stop", "follow": True})
    running = [str(each["name"]) for each in reply["children"] if each["state"] in LIVE]
    say(NAME, f"stopping: {' '.join(running)}")
    while True:
        try:
            event = connection.next_line(bound.left_s())
        except TimedOut as error:
            raise bound.over(" ".join(running)) from error
        if event is None:
            return
        running = _after(event, running)


def _after(event: Reply, running: list[str]) -> list[str]:
    name = str(event["name"])
    if event["state"] in LIVE or name not in running:
        return running
    left = [each for each in running if each != name]
    _say_down(name, left)
    return left


def _say_down(name: str, left: list[str]) -> None:
    say(NAME, f"{name} is down; waiting for: {' '.join(left) or 'the supervisor'}")


def _wait_gone(process: ProcessId, pidfd: int, bound: Bound) -> None:
    if process.alive() and not select.select([pidfd], [], [], bound.left_s())[0]:
        raise bound.over(f"the end of the supervisor, process {process.pid}")


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(
        NAME,
        "Stop an instance in order, and wait for it.",
        """
        omshut
        omshut --spool /var/tmp/spool
        omshut --instance test --timeout 30
        """,
    )
    parser.add_argument(
        "--timeout", metavar="S", type=seconds,
        help="wait at most this long (default: the time-outs of the daemons together)",
    )  # fmt: skip
    add_reason(parser)
    return parser
