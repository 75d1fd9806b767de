"""omq: what belongs to the instance as a whole and to its units.

    omq setup     installs the units of an instance, or takes them away
    omq conf      reads the configuration and says what is wrong with it
    omq flush     tries now what waits for its next try
    omq tls       what became of TLS with other hosts (RFC 8460)
    omq peers     the channels and peers of the mail gateways
    omq mail      holds, releases, requeues, deletes and prints mails, by id, sender, recipient, age
    omq queue     makes, changes, shows and removes queues
    omq health    what is wrong, by alarms.conf
    omq definitions  queues, exchanges, bindings, schedules and rights as one file
    omq connections  the connections of amqp.server, with their rates; ends one
    omq channel   channels to other instances
    omq standby   a second copy of the instance on another host, and its promotion
    omq ship      the journal and copies of the pool in an object store
    omq units     the units of work in doubt, and their end by hand
    omq cancel    takes messages that wait off their queues
    omq init      makes a project to begin with
    omq schedule  messages that are put at planned times
    omq worker    calls a function for each message of a queue
    omq drain     stops the daemons in order, without systemd's help (omq-drain.service)
    omq service   runs the daemon of a section of services.conf (omq-service@.service)
    omq package   steps of a distribution's package: pause, configure, remove
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from typing import Final

import omq
from omq.base import form

NAME: Final = "omq"

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "setup": ("setup.omq_setup", "install the systemd units of an instance, or remove them"),
    "conf": ("setup.omq_conf", "check the configuration"),
    "flush": ("operate.flush", "try now what waits: of a queue, a domain or a peer"),
    "tls": ("look.tls_report", "what became of TLS with other hosts, as RFC 8460 has it"),
    "peers": ("operate.peers", "show the peers of the mail gateways; retry, hold, release"),
    "mail": ("operate.mail", "mails on the queues: hold, release, requeue, delete, print"),
    "queue": ("operate.omq_queue", "create, change, show and remove queues"),
    "definitions": ("operate.definitions",
                    "queues, exchanges, schedules, rights as one file: export, import"),
    "connections": ("operate.connections", "show the connections of amqp.server, or close one"),
    "channel": ("operate.channel", "channels to other instances: define, start, look, repair"),
    "standby": ("operate.standby", "a copy of the instance on another host: make, follow, promote"),
    "ship": ("operate.ship", "ship the journal to an object store, and show how far it is"),
    "health": ("watch.health", "report what is wrong, by alarms.conf; --watch raises alarms"),
    "units": ("operate.units", "show the units of work in doubt; commit or back them out"),
    "cancel": ("operate.cancel", "remove messages from their queues, by id"),
    "init": ("setup.omq_init", "make a project: a queue, a function, a test, a unit"),
    "schedule": ("operate.schedule", "messages at planned times: define, list, pause, run, delete"),
    "worker": ("queue.worker", "call a function for each message of a queue"),
    "drain": ("setup.omq_drain", "stop the daemons in order"),
    "package": ("setup.omq_package", "steps of a distribution's package"),
    "service": ("setup.omq_service", "run the daemon of a section of services.conf"),
}
"""Module of omq.cli, and what it is for."""


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code."""
    words = sys.argv[1:] if argv is None else argv
    options = _parser().parse_args(words[:1])
    return main_of(options.command)(words[1:])


def main_of(name: str) -> Callable[[list[str]], int]:
    """What carries it out. Its module is imported now, not before: `omq worker` is a client's, too,
    which has no numpy, and others need it."""
    run: Callable[[list[str]], int] = importlib.import_module(f"omq.cli.{COMMANDS[name][0]}").main
    return run


def _parser() -> argparse.ArgumentParser:
    shown = "\n".join(f"  {name:<11} {text}" for name, (_module, text) in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog=NAME, description="Commands for an omq instance as a whole.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"commands:\n{shown}\n\nexamples:\n  omq setup --dry-run\n  omq conf\n"
        "  omq flush UNIX\n  omq setup --help",
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=(
        f"{NAME} {omq.__version__}, fast path {form.told()}"))
    parser.add_argument("command", choices=tuple(COMMANDS), metavar="COMMAND")
    return parser
