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

from omq.base.config import STOP_ORDER
from omq.base.errors import Exit, SpoolMissing, TimedOut
from omq.base.paths import SpoolPaths
from omq.cli.common import (
    Location,
    locate,
    say,
    services_or_shipped,
    settings_or_defaults,
    tool_parser,
)
from omq.cli.noting import add_reason, note_command
from omq.cli.service_status import all_status
from omq.services import systemctl
from omq.services.control import Reply
from omq.services.control_client import ControlConnection
from omq.services.lock import LOCK_FILE, holder
from omq.services.process import ProcessId
from omq.services.run_state import LIVE

NAME = "omshut"


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code."""
    options = _parser().parse_args(argv)
    location = locate(options)
    if not location.paths.root.is_dir():
        raise SpoolMissing(path=location.paths.root)
    settings = settings_or_defaults(location.conf_dir, NAME)
    # Each stage of the stop may take its time-out; one more for the supervisor itself.
    bound_s = options.timeout or settings.stop_timeout_s * (len(STOP_ORDER) + 1)
    managed = systemctl.managed(location.paths)
    began = time.monotonic()
    if managed is not None:
        if not stop_units(location, managed, began + bound_s, options.reason):
            return Exit.NO
    elif not holder(location.paths.run / LOCK_FILE):
        say(NAME, f"nothing runs in {location.paths.root}")
        return Exit.NO
    else:
        note_command(location, NAME, options.reason)
        stop(location.paths, settings.connect_timeout_s, began + bound_s)
    say(NAME, f"{location.paths.root} is stopped, in {time.monotonic() - began:.1f} s")
    return Exit.OK


def stop_units(location: Location, managed: systemctl.Managed, deadline: float, reason: str
               ) -> bool:
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
        _see_off(pidfds, deadline)
    systemctl.call(["stop", managed.target])  # its job is over only now
    return True


def _see_off(left: dict[int, str], deadline: float) -> None:
    while left:
        wait_s = max(0.0, deadline - time.monotonic())
        ended = select.select(list(left), [], [], wait_s)[0]
        if not ended:
            raise TimedOut(seconds=wait_s, what=" ".join(left.values()))
        for pidfd in ended:
            _say_down(left.pop(pidfd), list(left.values()))


def stop(paths: SpoolPaths, answer_s: float, deadline: float) -> None:
    """Ask, follow what happens, wait for the end. TimedOut at the deadline."""
    with ControlConnection(paths.run, answer_s) as connection:
        state = connection.ask({"command": "status"})
        process = ProcessId(int(state["pid"]), int(state["start_ticks"]))
        pidfd = os.pidfd_open(process.pid)
        try:
            _follow(connection, deadline)
            _wait_gone(process, pidfd, deadline)
        finally:
            os.close(pidfd)


def _follow(connection: ControlConnection, deadline: float) -> None:
    reply = connection.ask({"command": "stop", "follow": True})
    running = [str(each["name"]) for each in reply["children"] if each["state"] in LIVE]
    say(NAME, f"stopping: {' '.join(running)}")
    while True:
        try:
            event = connection.next_line(deadline - time.monotonic())
        except TimedOut as error:
            raise TimedOut(seconds=error.fields["seconds"], what=" ".join(running)) from error
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


def _wait_gone(process: ProcessId, pidfd: int, deadline: float) -> None:
    left_s = max(0.0, deadline - time.monotonic())
    if process.alive() and not select.select([pidfd], [], [], left_s)[0]:
        raise TimedOut(seconds=left_s, what=f"the end of the supervisor, process {process.pid}")


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
        "--timeout", metavar="S", type=float, help="wait at most this long (default: the time-outs"
        " of the daemons together)"
    )  # fmt: skip
    add_reason(parser)
    return parser
