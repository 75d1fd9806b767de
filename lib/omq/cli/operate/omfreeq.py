"""omfreeq: release a reader from a queue; its messages come back, no attempt counted.

For a reader that hangs, or one that an operator knows to be gone (seed: "omfreeq"; there a reused
pid had to be released by hand, which cannot happen here: a reader is known by a pidfd). The process
itself is not ended.
"""

from __future__ import annotations

import argparse
import sys

from omq.base.errors import BadRequest, Exit
from omq.base.services_conf import load_services
from omq.cli.common import add_json, existing, print_json, say, tool_parser
from omq.cli.operate.change import connect
from omq.cli.operate.service_control import named
from omq.ipc.client.operator import Operator
from omq.services.daemon.options import Location

NAME = "omfreeq"


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code: 1 when the queue has no such reader."""
    options = parser().parse_args(argv)
    location = existing(options)
    name = options.queue or options.q
    if not name:
        raise BadRequest(reason="name a queue, or the service that reads it")
    queue = _queue(location, name)
    with connect(location, NAME) as connection:
        operator = Operator(connection, f"{NAME} {queue} -p {options.pid}")
        freed = operator.free_reader(queue, options.pid, reason=options.reason)
    if options.json:
        print_json({"queue": queue, "pid": options.pid, "freed": freed})
    elif freed:
        sys.stdout.write(f"reader {options.pid} is released from {queue}\n")
    else:
        say(NAME, f"{queue} has no reader with pid {options.pid}")
    return Exit.OK if freed else Exit.NO


def _queue(location: Location, name: str) -> str:
    """A queue by its name, or by the service that reads it, as in the original."""
    for service in named(load_services(location.conf_dir).values(), name):
        if service.queue:
            return service.queue
    return name.upper()


def parser() -> argparse.ArgumentParser:
    """Its options."""
    found = tool_parser(NAME, "Release a reader from a queue.", """
        omfreeq LOCAL -p 12345
        omfreeq -q local -p 12345 --reason 'hangs in NFS'
        """)
    found.add_argument("queue", nargs="?", help="a queue, or the service that reads it")
    found.add_argument("-q", metavar="QUEUE", help="the same")
    found.add_argument("-p", dest="pid", metavar="PID", type=int, required=True,
                       help="process id of the reader")
    found.add_argument("--reason", metavar="TEXT", default="", help="the reason, recorded in the "
                                                                    "journal")
    add_json(found)
    return found
