"""omq conf --changed: what an instance's configuration says that the shipped one does not.

A line for each difference: the file, its section, the key with its value, and what is shipped. Of
omq.conf only values that differ from the defaults count, however they are written. Of the other
files, which replace the shipped ones whole, what is left out is a difference, too; but a
services.conf that only says what differs leaves nothing out.

Errors: ConfigError.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from omq.base.config_file import Section, read_sections
from omq.base.paths import shipped_conf
from omq.base.settings_file import FILE_NAME, in_force, load_settings

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
