"""omq conf: reads every configuration file as the daemons do, and says what is wrong.

The units run it before they pass on a reload: a wrong file is refused where the operator sees it,
and no daemon hears of it. Exit code 0, or 78 with file, line and what is allowed, a line for each
mistake in any file. With --show it prints the settings in force instead, and what is changed; with
--changed what differs from the shipped files.

--changed prints a line for each difference: the file, its section, the key with its value, and what
is shipped. Of omq.conf only values that differ from the defaults count, however they are written.
Of the other files, which replace the shipped ones whole, what is left out is a difference, too; but
a services.conf that only says what differs leaves nothing out.

Errors: ConfigError.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from omq.base.config import QueueConf, load_authority, load_queues
from omq.base.config_file import Section, read_sections
from omq.base.errors import BadRequest, Exit
from omq.base.mistakes import Mistakes
from omq.base.names import escape
from omq.base.paths import shipped_conf
from omq.base.services_conf import ServiceConf, load_services
from omq.base.settings_file import FILE_NAME, SECTION_TITLES, in_force, load_settings
from omq.cli.common import locate, tool_parser
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


_SERVICES: Final = "services.conf"
FILES: Final = (FILE_NAME, "queues.conf", _SERVICES, "routes.conf", "authority.conf",
                "triggers.conf", "alarms.conf")
_WHOLE: Final = "kind"
"""A services.conf with a section that has this key replaces the shipped one."""


def changes(conf_dir: Path) -> Iterator[str]:
    """The lines, file by file; nothing for a file that is not there."""
    for name in FILES:
        path = conf_dir / name
        if path.exists() and not path.samefile(shipped_conf() / name):
            yield from _settings(conf_dir) if name == FILE_NAME else _file(path, name)


def _settings(conf_dir: Path) -> Iterator[str]:
    section = ""
    for line in in_force(load_settings(conf_dir)):
        if line.startswith("["):
            section = line
        elif "    # default:" in line:
            yield f"{FILE_NAME} {section} {line}"


def _file(path: Path, name: str) -> Iterator[str]:
    shipped, own = read_sections(shipped_conf() / name), read_sections(path)
    overlay = name == _SERVICES and not any(_WHOLE in each.entries for each in own.values())
    for section in own.values():
        before = shipped.get(section.name)
        known = before.entries if before is not None else {}
        if before is None and not section.entries:
            yield f"{name} [{section.name}]    # not in the shipped file"
        for entry in section.entries.values():
            there = known.get(entry.key)
            if there is None:
                yield f"{_line(name, section, entry.key, entry.value)}    # not in the shipped file"
            elif there.value != entry.value:
                yield f"{_line(name, section, entry.key, entry.value)}    # shipped: {there.value}"
        if not overlay:
            for key in [each for each in known if each not in section.entries]:
                yield f"{_line(name, section, key, known[key].value)}    # shipped, and left out"
    if not overlay:
        for section in shipped.values():
            if section.name not in own:
                yield f"{name} [{section.name}]    # shipped, and left out"


def _line(name: str, section: Section, key: str, value: str) -> str:
    return f"{name} [{section.name}] {key} = {value}".rstrip()
