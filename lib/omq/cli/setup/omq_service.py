"""omq service NAME: becomes the daemon that services.conf names for the section NAME.

omq-service@NAME.service calls it, so that a service needs a section and no unit of its own. Options
after the name go to the daemon. ServiceUnknown; ConfigError for a program that does not exist.
"""

from __future__ import annotations

import argparse
from typing import Final

from omq.base.errors import ConfigError, ServiceUnknown
from omq.base.services_conf import load_services
from omq.cli import launch
from omq.cli.common import locate, tool_parser

NAME: Final = "omq service"


def main(argv: list[str]) -> int:
    """The command; the exit code of the daemon."""
    parser = tool_parser(NAME, "Run the daemon of a section of services.conf.", """
        omq service router
        omq service router2 --foreground-log
        """)
    parser.add_argument("service", metavar="NAME", help="section of services.conf")
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="OPTION",
                        help="passed on to the daemon")
    options = parser.parse_args(argv)
    location = locate(options)
    services = load_services(location.conf_dir)
    conf = services.get(options.service)
    if conf is None:
        raise ServiceUnknown(service=options.service, known=", ".join(services))
    if conf.program not in launch.COMMANDS:
        raise ConfigError(
            file=location.conf_dir / "services.conf", line=0, key=f"[{conf.name}] program",
            reason=f"there is no program {conf.program}", allowed=", ".join(launch.COMMANDS),
        )  # fmt: skip
    given = [*location.arguments(), "--service", conf.name, *options.rest]
    return launch.run(conf.program, given)
