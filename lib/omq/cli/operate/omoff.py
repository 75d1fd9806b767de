"""omoff: turns services off, after a delay if wanted; each finishes the messages in its hands.

A service that is off stays off until omon or omrc: under systemd its unit is disabled, so that a
restart of the target and a reboot leave it off. NON-STOP ones are refused: omshut stops the whole.
Exit code 0 when each is stopped, 1 when one is not.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from omq.base import side_files
from omq.base.errors import Exit
from omq.cli.common import Location, locate, say, tool_parser
from omq.cli.operate.command_notes import add_reason, note_command
from omq.cli.operate.service_control import ALL, chosen, control, is_up, state_of, stopping
from omq.services.daemon.signals import Signals

NAME: Final = "omoff"
MINUTES_MAX: Final = 24 * 60


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code."""
    options = _parser().parse_args(argv)
    location = locate(options)
    services = stopping(chosen(location, options.services))
    names = " ".join(each.name for each in services)
    if options.delay and not _waited(options.delay * 60.0, names):
        say(NAME, "interrupted; nothing was turned off")
        return Exit.NO
    instance = control(location)
    code = Exit.OK
    for conf in services:
        instance.off(conf)
        mark_off(location, conf.name)
        status = state_of(location, conf)
        say(NAME, f"{conf.title}: {status.state}")
        if is_up(status):
            code = Exit.NO
    note_command(location, f"{NAME} {names}", options.reason, len(services))
    return code


def mark_off(location: Location, service: str) -> None:
    """Keep when it was turned off, for omsetsvc -r; a side file in run/, lost at a reboot."""
    side_files.replace(off_file(location, service), b"")


def off_file(location: Location, service: str) -> Path:
    """Its time is when the service was last turned off."""
    return location.paths.run / f"{service}.off"


def _waited(seconds: float, names: str) -> bool:
    """Whether the delay passed without a signal."""
    minutes = seconds / 60
    unit = "minute" if minutes == 1 else "minutes"
    say(NAME, f"{names}: off in {minutes:g} {unit}; ^C to let it be")
    signals = Signals()
    signals.install()
    try:
        signals.wait(seconds)
        return not signals.stopping
    finally:
        signals.restore()


def _minutes(text: str) -> float:
    minutes = float(text)
    if not 0 <= minutes <= MINUTES_MAX:
        raise argparse.ArgumentTypeError(f"{text}: 0 to {MINUTES_MAX} minutes")
    return minutes


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(NAME, "Turn services off, in the order of stopping.", """
        omoff router
        omoff -d 5 smtp --reason 'new certificate'
        omoff all
        """)
    parser.add_argument("-d", dest="delay", metavar="MINUTES", type=_minutes, default=0.0,
                        help="wait this long first, in the foreground")
    parser.add_argument("services", nargs="+", metavar="SERVICE",
                        help=f"name, number or title from services.conf, or '{ALL}'")
    add_reason(parser)
    return parser
