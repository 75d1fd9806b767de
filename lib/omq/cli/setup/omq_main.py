"""omq: what belongs to the instance as a whole and to its units.

    omq setup     installs the units of an instance, or takes them away
    omq conf      reads the configuration and says what is wrong with it
    omq flush     tries now what waits for its next try
    omq peers     the channels and peers of the mail gateways
    omq drain     stops the daemons in order, without systemd's help (omq-drain.service)
    omq service   runs the daemon of a section of services.conf (omq-service@.service)
    omq package   steps of a distribution's package: pause, configure, remove
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Final

import omq
from omq.base import form
from omq.cli.operate import flush, peers
from omq.cli.setup import omq_conf, omq_drain, omq_package, omq_service, omq_setup

NAME: Final = "omq"

_COMMANDS: Final[dict[str, tuple[Callable[[list[str]], int], str]]] = {
    "setup": (omq_setup.main, "install the systemd units of an instance, or remove them"),
    "conf": (omq_conf.main, "check the configuration"),
    "flush": (flush.main, "try now what waits: of a queue, a domain or a peer"),
    "peers": (peers.main, "show the peers of the mail gateways; retry, hold, release"),
    "drain": (omq_drain.main, "stop the daemons in order"),
    "package": (omq_package.main, "steps of a distribution's package"),
    "service": (omq_service.main, "run the daemon of a section of services.conf"),
}


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code."""
    words = sys.argv[1:] if argv is None else argv
    options = _parser().parse_args(words[:1])
    run, _help = _COMMANDS[options.command]
    return run(words[1:])


def _parser() -> argparse.ArgumentParser:
    shown = "\n".join(f"  {name:<9} {text}" for name, (_run, text) in _COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog=NAME, description="Commands for an omq instance as a whole.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"commands:\n{shown}\n\nexamples:\n  omq setup --dry-run\n  omq conf\n"
        "  omq flush UNIX\n  omq setup --help",
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=(
        f"{NAME} {omq.__version__}, fast path {form.told()}"))
    parser.add_argument("command", choices=tuple(_COMMANDS), metavar="COMMAND")
    return parser
