"""omq drain: stops the daemons of an instance in order, and waits for each stage.

Submitters, readers, the deleter, the manager, pool.writer: as the embedded supervisor stops them.
omq-drain.service calls it when the instance stops under systemd, also at a shutdown, when the
message bus is gone; so it asks nobody: it finds the daemons by run/SERVICE.pid, signals them, and
waits on their pidfds. It needs no look at /proc.

Invariants: 1. only a process that holds the lock of its pid file is signalled, never a stranger
with a reused pid; 2. each stage has stop_timeout_s: what has not gone then is left to systemd,
which ends it in the order of the units; 3. with no daemon running it ends at once; 4. a wrong
configuration does not keep it from stopping them; 5. where omrc --embedded supervises it is refused
(UnderSupervisor): what was told to be stopped would be started again.

Exit code 0 when all is down, 64 under omrc --embedded, 69 when a stage took too long, 77 without
the right to signal.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from omq.base.amounts import duration
from omq.base.errors import Exit, NoPermission, TimedOut, UnderSupervisor
from omq.base.paths import SpoolPaths
from omq.base.services_conf import ServiceConf
from omq.cli.common import locate, say, services_or_shipped, settings_or_defaults, tool_parser
from omq.services.daemon import pid_file
from omq.services.daemon.lock import LOCK_FILE, holder
from omq.services.supervise.daemon_plan import stop_stage

NAME: Final = "omq drain"


@dataclass(frozen=True, slots=True)
class Running:
    """A daemon that runs; `pidfd` stays this process's, whatever happens to its pid."""

    name: str
    pid: int
    pidfd: int

    def gone(self, timeout_s: float) -> bool:
        """Whether it ends within this time."""
        return bool(select.select([self.pidfd], [], [], max(0.0, timeout_s))[0])


def main(argv: list[str]) -> int:
    """The command; its exit code."""
    options = tool_parser(NAME, "Stop the daemons of an instance in order, and wait.", """
        omq drain
        omq drain --instance test
        """).parse_args(argv)
    location = locate(options)
    with contextlib.suppress(PermissionError):  # another user's: under systemd it says nothing
        if pid := holder(location.paths.run / LOCK_FILE):
            raise UnderSupervisor(pid=pid, spool=location.paths.root)
    settings = settings_or_defaults(location.conf_dir, NAME)
    stages = services_by_stage(services_or_shipped(location.conf_dir, NAME))
    drain(location.paths, stages, settings.stop_timeout_s, lambda text: say(NAME, text))
    return Exit.OK


def services_by_stage(services: list[ServiceConf]) -> list[list[str]]:
    """Names of services; each list stops when the one before is down."""
    ordered = sorted(services, key=stop_stage)
    return [[each.name for each in group] for _, group in groupby(ordered, key=stop_stage)]


def drain(
    paths: SpoolPaths, stages: list[list[str]], timeout_s: float, tell: Callable[[str], None]
) -> None:
    """Stop stage after stage. TimedOut, NoPermission."""
    began = time.monotonic()
    for stage in stages:
        running = [each for each in (find(paths, name) for name in stage) if each is not None]
        try:
            _stop(running, timeout_s)
        finally:
            for each in running:
                os.close(each.pidfd)
        if running:
            names = " ".join(each.name for each in running)
            tell(f"{names} stopped, {duration(time.monotonic() - began)} since the beginning")


def find(paths: SpoolPaths, service: str) -> Running | None:
    """The daemon of this service, if it runs."""
    path = paths.pid_file(service)
    pid = pid_file.running(path)
    if not pid:
        return None
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    if pid_file.running(path) != pid:  # asked again: now the descriptor holds on to it
        os.close(pidfd)
        return None
    return Running(service, pid, pidfd)


def _stop(running: list[Running], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    for each in running:
        try:
            signal.pidfd_send_signal(each.pidfd, signal.SIGTERM)
            signal.pidfd_send_signal(each.pidfd, signal.SIGCONT)  # a stopped one hears it too
        except ProcessLookupError:
            continue
        except PermissionError as error:
            raise NoPermission(action=f"signal {each.name}", what=f"process {each.pid}") from error
    left = [each.name for each in running if not each.gone(deadline - time.monotonic())]
    if left:
        raise TimedOut(seconds=timeout_s, what=f"the end of {', '.join(left)}")
