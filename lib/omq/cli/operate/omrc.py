"""omrc: starts an instance, by its systemd units or, with --embedded, as its supervisor.

Under systemd it forgets earlier failures, starts the queue manager and says at once if that fails,
then the rest; it returns when all is ready. `omrc --embedded` is for machines without systemd: it
makes the spool if there is none and stays in the foreground. It ends after SIGTERM, ^C or omshut,
when everything is down; exit code 78 if the queue manager cannot start for its configuration.
"""

from __future__ import annotations

import argparse
import os
from contextlib import closing
from functools import partial

from omq.base import modes, side_files
from omq.base.config import load_settings
from omq.base.errors import BadRequest, Exit, NeedsRepair, OmqError, ServiceQueueMissing
from omq.base.event_log import EventLog, Level
from omq.base.paths import SpoolPaths
from omq.base.services_conf import ServiceConf, load_services
from omq.base.settings import Settings
from omq.cli.common import Location, locate, say, tool_parser
from omq.cli.operate.command_notes import add_reason, note_command
from omq.cli.operate.service_control import check_queue, is_up, state_of
from omq.services.daemon.signals import Signals
from omq.services.supervise import systemctl
from omq.services.supervise.chore import Chore
from omq.services.supervise.daemon_plan import (
    LAUNCH,
    Limits,
    command,
    environment,
    is_core,
    start_order,
)
from omq.services.supervise.fork_client import ForkServer
from omq.services.supervise.supervisor import Setup, Supervisor
from omq.storage.journal import numbers_in
from omq.storage.spool import create_spool, refuse_headless

NAME = "omrc"
# What an administrator may have put into a directory that is to become a spool.
_PREPARED = frozenset({"conf", "lost+found"})


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code."""
    options = _parser().parse_args(argv)
    location = locate(options)
    if not options.embedded:
        return start_units(location, options.reason, nonstop_only=options.nonstop)
    os.umask(modes.UMASK)
    signals = Signals()
    signals.install(children=True)  # at once: process 1 gets no signal that it has no handler for
    try:
        return _embedded(location, options, signals)
    finally:
        signals.restore()


def _embedded(location: Location, options: argparse.Namespace, signals: Signals) -> int:
    settings = load_settings(location.conf_dir)
    prepare_spool(location.paths, init=options.init)
    log = EventLog(
        NAME, location.paths.event_log, level=Level[settings.event_level],
        stderr=options.foreground_log or "JOURNAL_STREAM" in os.environ,
        bytes_max=settings.event_log_bytes_max,
    )  # fmt: skip
    side_files.report_to(log.side_files)
    fork_server = ForkServer(environment(os.environ), log)
    with closing(fork_server):
        fork_server.begin()  # it imports while we go on
        note_command(location, f"{NAME} --embedded", options.reason)
        setup = _setup(location, options, settings, fork_server)
        supervisor = Supervisor(setup, signals, log, partial(say, NAME))
        say(NAME, f"starting in {location.paths.root}, configuration from {location.conf_dir}")
        code = supervisor.run()
    say(NAME, "all daemons are stopped")
    return code


def start_units(location: Location, reason: str, *, nonstop_only: bool) -> int:
    """Start the units of this instance; 1 when a service did not come up. SystemctlFailed."""
    managed = systemctl.managed(location.paths)
    if managed is None:
        none = f"no units run {location.paths.root}: 'omq setup' installs them, omrc --embedded"
        raise BadRequest(reason=f"{none} needs none")
    services = start_order(
        load_services(location.conf_dir).values(), nonstop_only=nonstop_only
    )
    units = [managed.unit(each.name) for each in services]
    systemctl.reset_failed([*units, managed.drain])
    for each in services:
        if is_core(each):  # one by one: the first failure is the reason
            systemctl.call(["start", managed.unit(each.name)])
            say(NAME, f"{each.title} is started")
    for each in services:
        try:
            check_queue(location, each)
        except ServiceQueueMissing as error:  # the others come up all the same
            say(NAME, str(error))
    note_command(location, f"{NAME} -n" if nonstop_only else NAME, reason, len(services))
    if not nonstop_only:  # also what omoff turned off
        states = systemctl.enabled(units)
        if off := [unit for unit, state in zip(units, states, strict=True) if state == "disabled"]:
            systemctl.call(["enable", *off])
    # The target is up before its drain is: whoever stops it from here on shall be drained.
    systemctl.call(["start", managed.drain, *(units if nonstop_only else [managed.target])])
    code = Exit.OK
    for each in services:
        status = state_of(location, each)
        if not is_up(status):
            say(NAME, f"{each.title}: {status.state}")
            code = Exit.NO
    if code == Exit.OK:
        say(NAME, f"{managed.target}: all {len(services)} services are started")
    return code


def prepare_spool(paths: SpoolPaths, *, init: bool) -> None:
    """Make the spool where there is none; refuse a directory that is something else.

    NeedsRepair, SpoolOwner, NewerFormat, Damaged.
    """
    if not paths.uuid.exists():
        refuse_headless(paths)
        found = sorted(set(os.listdir(paths.root)) - _PREPARED) if paths.root.is_dir() else []
        if found and not init:
            reason = f"it is not a spool and not empty ({found[0]} ...)"
            redo = f"{NAME} --embedded --init --spool {paths.root}"
            raise NeedsRepair(path=paths.root, reason=reason, command=redo)
        say(NAME, f"making the spool {paths.root}")
    create_spool(paths.root)  # checks an old one, and makes again what a reboot took away


def _setup(location: Location, options: argparse.Namespace, settings: Settings,
           fork_server: ForkServer) -> Setup:
    arguments = location.arguments()
    if options.foreground_log:
        arguments.append("--foreground-log")

    def services() -> list[ServiceConf]:
        fork_server.forgive()  # also called at a reload
        found = load_services(location.conf_dir).values()
        return start_order(found, nonstop_only=False)

    return Setup(
        paths=location.paths,
        limits=Limits.of(settings),
        services=tuple(services()),
        reread=services,
        command=command(arguments),
        environ=environment(os.environ),
        launch=fork_server.launch,
        starts=lambda conf: conf.nonstop or is_core(conf) or not options.nonstop,
        chores=(Chore("omq-archive", [*LAUNCH, "omq-archive", "--quiet", *location.arguments()],
                      settings.archive_interval_s, partial(_retired, location.paths)),),
    )


def _retired(paths: SpoolPaths) -> bool:
    """Do retired journal files wait for omq-archive?"""
    try:
        return bool(numbers_in(paths.archive))
    except OmqError:
        return True  # it says what is wrong


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(
        NAME,
        "Start an instance of omq, by systemd or as its supervisor in the foreground.",
        """
        omrc
        omrc --embedded --spool /var/tmp/spool
        omrc --embedded --instance test -n
        """,
    )
    parser.add_argument(
        "--embedded", action="store_true", help="be the supervisor (no systemd needed)"
    )
    parser.add_argument(
        "--init", action="store_true", help="create the spool even in a directory that is not empty"
    )
    parser.add_argument(
        "-n", "--nonstop", action="store_true",
        help="start only the NON-STOP daemons; omon starts the others",
    )
    add_reason(parser)
    parser.add_argument(
        "--foreground-log", action="store_true", help="show the daemons' events on stderr"
    )
    return parser
