"""omon: turns services on. Failures so far are forgotten: no start limit or back-off is in the way.

Exit code 0 when each is started, 1 when one is not, 66 when the queue of one is not defined (then
none is turned on), 69 when nobody runs the instance.
"""

from __future__ import annotations

from typing import Final

from omq.base.errors import BadRequest, Exit
from omq.base.services_conf import SERVICES_FILE
from omq.cli.common import locate, say, tool_parser
from omq.cli.operate.command_notes import add_reason, note_command
from omq.cli.operate.service_control import (
    ALL,
    check_queue,
    chosen,
    control,
    is_up,
    starting,
    state_of,
)

NAME: Final = "omon"


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code."""
    parser = tool_parser(NAME, "Turn services on, in the order of starting.", """
        omon router
        omon router local
        omon all
        """)
    parser.add_argument("services", nargs="+", metavar="SERVICE",
                        help=f"name, number or title from services.conf, or '{ALL}'")
    add_reason(parser)
    options = parser.parse_args(argv)
    location = locate(options)
    instance = control(location)
    code = Exit.OK
    services = starting(chosen(location, options.services))
    for conf in services:
        if not conf.enabled:
            raise BadRequest(reason=f"{conf.name} is not enabled: say 'enabled = yes' in "
                             f"{SERVICES_FILE}, then kill -HUP omrc or systemctl reload")
        check_queue(location, conf)
    for conf in services:
        instance.on(conf)
        status = state_of(location, conf)
        say(NAME, f"{conf.title}: {status.state}")
        if not is_up(status):
            code = Exit.NO
    names = " ".join(each.name for each in services)
    note_command(location, f"{NAME} {names}", options.reason, len(services))
    return code
