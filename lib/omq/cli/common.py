"""What the command line tools share: the parser with examples, the instance, JSON output.

Every tool: `--help` ends with examples; `--version`; the options of omq.services.daemon.options.
Errors are raised; omq.cli.launch prints them and makes the exit code.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import omq
from omq.base import access, side_files
from omq.base.config import load_settings
from omq.base.errors import ConfigError, SpoolMissing
from omq.base.names import escape
from omq.base.paths import SpoolPaths
from omq.base.services_conf import ServiceConf, load_services
from omq.base.settings import YEAR_S, Settings
from omq.cli import role
from omq.services.daemon.options import Location, add_location, locate

if TYPE_CHECKING:
    from omq.ipc.client.connection import Client

__all__ = ["Location", "add_json", "add_url", "existing", "locate", "print_json", "remote", "say",
           "seconds", "services_or_shipped", "settings_or_defaults", "shown", "tool_parser"]


REMOTE_S: Final = 60.0
"""Patience with a server that is far away."""
HELP_COLUMNS: Final = 78
"""A help fits a terminal of 80; argparse leaves two free."""


def tool_parser(name: str, description: str, examples: str, *, location: bool = True
                ) -> argparse.ArgumentParser:
    """A parser with the common options; `examples` has one command a line. `location`: False for a
    tool that gets its spool as an argument."""
    shown = "\n".join(f"  {line.strip()}" for line in examples.strip().splitlines())
    parser = argparse.ArgumentParser(
        prog=name,
        description=textwrap.fill(description, HELP_COLUMNS),
        epilog=f"examples:\n{shown}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"{name} (omq) {omq.__version__}")
    if location:
        add_location(parser)
    return parser


def existing(options: argparse.Namespace, *, tell_role: bool = True) -> Location:
    """The instance that the options name; SpoolMissing when it has no spool. `tell_role`: of one
    that is not a primary a line on stderr says so."""
    location = locate(options)
    try:
        there = location.paths.root.is_dir() and _has_content(location.paths)
    except PermissionError as error:
        raise access.denied(location.paths.root, error) from error
    if not there:
        raise SpoolMissing(path=location.paths.root)
    told = role.line(location.paths) if tell_role else ""
    if told:
        side_files.say(told)
    return location


def _has_content(paths: SpoolPaths) -> bool:
    try:
        return any(paths.root.iterdir())
    except PermissionError:  # a client or an operator: they may pass, not list
        return paths.uuid.exists()


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="one JSON object per line, for "
                                                            "programs")


def add_url(parser: argparse.ArgumentParser) -> None:
    """Add `--url`."""
    parser.add_argument("--url", metavar="URL", default="",
                        help="of an amqp.server, amqps://USER@HOST/, instead of a spool on this "
                             "host; the password comes from OMQ_AMQP_PASSWORD")  # fmt: skip


def remote(options: argparse.Namespace, name: str, timeout_s: float | None) -> Client:
    """The connection that `--url` means."""
    return omq.connect(options.url, name=name,
                       timeout_s=REMOTE_S if timeout_s is None else timeout_s)


def print_json(record: dict[str, Any]) -> None:
    """One object on one line of stdout."""
    sys.stdout.write(json.dumps(record) + "\n")


def seconds(text: str) -> float:
    """An argument: a time of up to a year."""
    value = float(text)
    if not 0 <= value <= YEAR_S:
        raise argparse.ArgumentTypeError(f"{text}: 0 to {YEAR_S} seconds")
    return value


def say(name: str, text: str) -> None:
    """A line of progress on stderr, seen at once; a stderr that is full or gone ends nothing."""
    side_files.say(f"{name}: {text}")


def settings_or_defaults(conf_dir: Path, name: str) -> Settings:
    """For stopping, which a wrong configuration must not prevent: it is reported, and not used."""
    try:
        return load_settings(conf_dir)
    except ConfigError as error:
        say(name, f"{error}: going by the defaults")
        return Settings()


def services_or_shipped(conf_dir: Path, name: str) -> list[ServiceConf]:
    """For stopping, too."""
    try:
        return list(load_services(conf_dir).values())
    except ConfigError as error:
        say(name, f"{error}: stopping the shipped services in order, others as systemd does")
        return list(load_services(None).values())


def shown(body: bytes) -> bytes:
    """A body for a terminal: nothing in it can move the cursor or hide text."""
    lines = body.removesuffix(b"\n").split(b"\n")
    safe = (escape(line.removesuffix(b"\r"), len(body)) for line in lines)
    return "".join(f"{line}\n" for line in safe).encode()
