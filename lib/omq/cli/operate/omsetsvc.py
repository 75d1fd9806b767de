"""omsetsvc: shows what a service is (-r), and sets how many auxiliary readers it has (-x).

The listing is the original's, line by line (seed: "How To Monitor Multiple Reader Processes"). What
does not exist here has the value of a system that does not use it: no audit log, no programs that
shut down or ask for the state (its supervisor tells a service), no temporary processes.

-x works on a running service: readers that stay keep their pid, and the number is in
services.conf, so it survives a restart and a reboot.

Exit code 0; 1 when the readers did not all come up.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Final

from omq.base import limits
from omq.base.config import client_settings
from omq.base.errors import BadRequest, Exit
from omq.base.event_log import Level
from omq.base.services_conf import SERVICES_FILE, ServiceConf, ServiceKind
from omq.cli.common import Location, existing, say, tool_parser
from omq.cli.look.omstat import since_text
from omq.cli.look.service_status import Status, Word
from omq.cli.operate.command_notes import add_reason, note_command
from omq.cli.operate.omoff import off_file
from omq.cli.operate.service_control import chosen, control, is_up, state_of
from omq.cli.operate.services_edit import set_key
from omq.services.daemon.run_state import LIVE, ProcessState, read_service
from omq.services.daemon.signals import Signals
from omq.storage.segment import read_ids

NAME: Final = "omsetsvc"
PIDS: Final = 20
_POLL_S: Final = 0.1


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code."""
    options = _parser().parse_args(argv)
    location = existing(options)
    if options.show:
        (conf,) = chosen(location, [options.show])
        print("\n".join(listing(location, conf, time.time())))
        return Exit.OK
    name, number = options.set
    (conf,) = chosen(location, [name])
    count = _auxiliaries(number)
    code = set_auxiliaries(location, conf, count)
    note_command(location, f"{NAME} -x {conf.name} {count}", options.reason, 1)
    return code


def set_auxiliaries(location: Location, conf: ServiceConf, count: int) -> int:
    """Write it down, tell the service, wait until its readers are so many."""
    if conf.kind is not ServiceKind.READER:
        raise BadRequest(reason=f"{conf.name} has no auxiliary readers")
    _refuse_other_conf(location, conf)
    set_key(location.conf_dir, conf.name, "auxiliaries", str(count))
    if not is_up(state_of(location, conf)):
        say(NAME, f"{conf.title}: {count} auxiliary readers from its next start on")
        return Exit.OK
    control(location).reload(conf)
    deadline = time.monotonic() + client_settings(location.conf_dir).start_timeout_s
    signals = Signals()
    signals.install()
    try:
        while not _settled(status := state_of(location, conf), count):
            if time.monotonic() >= deadline or signals.stopping:
                break
            signals.wait(_POLL_S)
    finally:
        signals.restore()
    say(NAME, f"{conf.title}: {status.auxiliaries_running} of {count} auxiliary readers run")
    return Exit.OK if _settled(status, count) else Exit.NO


def _refuse_other_conf(location: Location, conf: ServiceConf) -> None:
    """The service may read another file than this command would write: a drop-in says so, or the
    supervisor was started with --conf."""
    published = read_service(location.paths.run / f"{conf.name}.json")
    if published is None or not is_up(state_of(location, conf)):
        return
    if published.conf_dir and published.conf_dir != str(location.conf_dir):
        raise BadRequest(
            reason=f"{conf.title} reads {published.conf_dir}/{SERVICES_FILE}, this would change "
            f"{location.conf_dir}/{SERVICES_FILE}: say {NAME} --conf {published.conf_dir}")


def _settled(status: Status, count: int) -> bool:
    return status.auxiliaries == status.auxiliaries_running == count


def listing(location: Location, conf: ServiceConf, now: float) -> list[str]:
    """The lines of -r."""
    status = state_of(location, conf)
    published = read_service(location.paths.run / f"{conf.name}.json")
    up = is_up(status)
    main = published.main if published and up else None
    auxiliary = published.auxiliary if published and up else ()
    settings = client_settings(location.conf_dir)
    lines = [
        ("Service Number", "=", conf.number),
        ("Number of components", "=", 1 + len(conf.subservices)),
        ("Logging Level", "=", int(Level[settings.event_level])),
        ("Audit logging Level", "=", 0),
        ("Has an input queue?", "-", _yes(conf.queue != "")),
        *([("Queue name", "=", conf.queue)] if conf.queue else []),
        ("Show details from omstat?", "-", "YES"),
        ("Subsystem can be enabled?", "-", _yes(conf.enabled)),
        ("Required state", "-", "Enabled" if status.state in _WANTED else "Disabled"),
        ("Last state change (on/off)", "=", since_text(status.since, now)),
        ("Last delayed off time", "=", since_text(_off_since(location, status), now)),
        ("Startup prog name", "=", f"~/bin/{conf.program}"),
        ("Shutdown program name", "=", ""),
        ("Status program name", "=", ""),
        ("PID's of subsystem processes", ":", _pids(_main_pid(status, main))),
        ("Nice Level", "=", _nice(_main_pid(status, main)[0])),
        ("Additional Resolve Flag", "=", 0),
        ("Subsystem is controlled by 'all'", "-", _yes(not conf.nonstop)),
        ("Minimum temporary processes", "=", 0),
        ("Maximum temporary processes", "=", 0),
        ("Context dependent information", ":", _context(location, conf)),
        ("Auxiliary processes", "=", conf.auxiliaries),
        ("PID's of auxiliary processes", ":", _pids(_auxiliary_pids(auxiliary, conf))),
    ]
    return [f"Details for subsystem {conf.title}:",
            *(f"{name + sign if sign == ':' else f'{name:<29} {sign}'} {value}".rstrip()
              for name, sign, value in lines)]


_WANTED: Final = (Word.STARTED, Word.STARTING, Word.PARTIALLY_ABORTED, Word.ABORTED,
                  Word.SUSPENDED, Word.HUNG)


def _off_since(location: Location, status: Status) -> float | None:
    """When it was last turned off; None for never since the boot."""
    if status.state not in _WANTED:
        return status.since
    try:
        return off_file(location, status.conf.name).stat().st_mtime
    except OSError:
        return None


def _nice(pid: int) -> int:
    try:
        return os.getpriority(os.PRIO_PROCESS, pid) if pid > 0 else 0
    except ProcessLookupError:  # it has just ended
        return 0


def _main_pid(status: Status, main: ProcessState | None) -> list[int]:
    """The original's main process is the main reader; -1: it is off."""
    if main is not None and main.state in LIVE:
        return [main.pid]
    return [status.pid or -1]


def _auxiliary_pids(auxiliary: tuple[ProcessState, ...], conf: ServiceConf) -> list[int]:
    running = [each.pid for each in auxiliary if each.state in LIVE and each.identity.alive()]
    return [*running, *[-1] * (conf.auxiliaries - len(running))]


def _context(location: Location, conf: ServiceConf) -> str:
    """Of the Queue Manager: the ids of its request queue and of its index segment (ipcs -q -m)."""
    found = read_ids(location.paths) if conf.kind is ServiceKind.MANAGER else None
    ids = [found.requests[1], found.segment] if found is not None else []
    return " ".join(map(str, [*ids, *[0] * (8 - len(ids))]))


def _pids(pids: list[int]) -> str:
    return " ".join(map(str, [*pids, *[0] * (PIDS - len(pids))][:PIDS]))


def _yes(truth: bool) -> str:  # noqa: FBT001 (a word for a truth)
    return "YES" if truth else "NO"


def _auxiliaries(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > limits.AUXILIARIES_MAX:
        raise BadRequest(reason=f"{text} auxiliary readers; 0 to {limits.AUXILIARIES_MAX}")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(NAME, "Show a service, or set the number of its auxiliary readers.", """
        omsetsvc -r router
        omsetsvc -r qmgr
        omsetsvc -x sr 2
        """)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("-r", dest="show", metavar="SERVICE", help="show the service")
    what.add_argument("-x", dest="set", nargs=2, metavar=("SERVICE", "N"),
                      help=f"have N auxiliary readers, 0 to {limits.AUXILIARIES_MAX}, at once")
    add_reason(parser)
    return parser


