"""omq conf: reads every configuration file as the daemons do, and says what is wrong.

The units run it before they pass on a reload: a wrong file is refused where the operator sees it,
and no daemon hears of it. Exit code 0, or 78 with file, line and what is allowed, a line for each
mistake in any file. With --show it prints the settings in force instead, and what is changed; with
--changed what differs from the shipped files.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Final

from omq.base.config import QueueConf, load_authority, load_queues, load_settings
from omq.base.errors import BadRequest, Exit
from omq.base.mistakes import Mistakes
from omq.base.names import escape
from omq.base.services_conf import ServiceConf, load_services
from omq.base.settings_file import SECTION_TITLES, in_force
from omq.cli.common import locate, tool_parser
from omq.cli.setup.conf_changes import changes
from omq.cli.watch.alarm_conf import load_alarms
from omq.services.mail.mx_lookup import check_names
from omq.services.mail.peer_security import load_security
from omq.services.mail.smtp_policy import load_policy
from omq.services.trigger.programs import load_programs

NAME: Final = "omq conf"


def main(argv: list[str]) -> int:
    """The command; its exit code. ConfigError."""
    parser = tool_parser(NAME, "Check the configuration of an instance.", """
        omq conf
        omq conf --instance test
        omq conf --conf ./new-conf
        omq conf --show store
        omq conf --changed
        """)
    parser.add_argument("--show", nargs="?", const="", metavar="SECTION", help="print the settings "
                        "of omq.conf in force, of one section or all, with the default of what is "
                        "changed")
    parser.add_argument("--changed", action="store_true",
                        help="print what differs from the shipped files, a line each")
    options = parser.parse_args(argv)
    if options.show and options.show not in SECTION_TITLES:
        raise BadRequest(reason=f"there is no section {escape(options.show)!r}: "
                         f"{', '.join(SECTION_TITLES)}")
    location = locate(options)
    if options.changed:
        for line in changes(location.conf_dir):
            print(line)
        return Exit.OK
    if options.show is not None:
        print("\n".join(in_force(load_settings(location.conf_dir), options.show)))
        return Exit.OK
    spool = location.paths.root
    owner_uid = spool.stat().st_uid if spool.is_dir() else os.geteuid()
    mistakes = Mistakes()
    queues: dict[str, QueueConf] = {}
    services: dict[str, ServiceConf] = {}
    with mistakes.noted():
        queues = load_queues(location.conf_dir)
    with mistakes.noted():
        services = load_services(location.conf_dir)
    for load in (partial(load_authority, owner_uid=owner_uid), load_programs, load_alarms):
        with mistakes.noted():
            load(location.conf_dir)
    with mistakes.noted():  # what follows needs the settings
        settings = load_settings(location.conf_dir)
        with mistakes.noted():
            policy = load_policy(settings, location.conf_dir, spool)
            load_security(settings, location.conf_dir, policy.routes)
        check_names(settings, location.conf_dir)
    mistakes.end()
    print(f"{location.conf_dir}: {len(queues)} queues, {len(services)} services, nothing wrong")
    return Exit.OK
