"""The systemd units of an instance: their names, and their text from the templates in units/.

A template may hold `@WORD@`. Standing alone on a line it is replaced by the file include/WORD, else
by a value of `UnitValues`. An instance NAME has a whole set of its own: omq-NAME.target,
omq-NAME-queue-manager.service ... so that stopping one leaves the others. A service of
services.conf without a unit of its own runs as omq-service@SERVICE.service.

Invariant: rendering is pure; the same values give the same bytes. A template that names an unknown
word is our own bug (KeyError).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from omq.base.paths import shipped_conf, shipped_units
from omq.base.services_conf import load_services

UNIT_DIR: Final = Path("/etc/systemd/system")
PACKAGE_UNIT_DIR: Final = Path("/usr/lib/systemd/system")
"""Where the units of the default instance lie when a package of the distribution brings them."""
MSGMNB: Final = 4 * 1024 * 1024
"""kernel.msgmnb as installed: room for the requests of 10,000 clients, four times over."""

_FOLDERS: Final = ("sysusers.d", "tmpfiles.d", "sysctl.d", "logrotate.d")
_TEMPLATES: Final = ("*.target", "*.service", "*.socket", "*.timer")
OUTSIDE: Final = (".timer", ".socket", "-web.service")
"""What runs and does not stop with the target: how its units' names end."""
_WORD: Final = re.compile(r"@([A-Z]+)@")
_INCLUDE: Final = re.compile(r"^@([a-z-]+)@$", re.MULTILINE)
_STARTS: Final = re.compile(r"^ExecStart=@LAUNCH@ (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class UnitValues:
    """What the templates are filled with."""

    instance: str | None
    user: str
    group: str
    python: Path  # the interpreter, not resolved: in a virtual environment its path is its identity
    exec_paths: tuple[Path, ...]  # where programs of ours may run from
    spool: Path
    conf: Path
    open_files: int  # what queue.manager needs for clients_max (ipc.server.admission)

    def words(self) -> dict[str, str]:
        """The replacements, by word."""
        return {
            "NAME": base_name(self.instance),
            "SLICE": slice_of(self.instance),
            "OF": f" (instance {self.instance})" if self.instance else "",
            "USER": self.user,
            "GROUP": self.group,
            "LAUNCH": f"{self.python} -P -m omq.cli.launch",
            "EXEC": " ".join(map(str, self.exec_paths)),
            "SPOOL": str(self.spool),
            "STATE": self.spool.name,
            "CONF": str(self.conf),
            "MSGMNB": str(MSGMNB),
            "FILES": str(self.open_files),
        }


def base_name(instance: str | None) -> str:
    """`omq`, or `omq-INSTANCE`: the first part of every unit's name."""
    return f"omq-{instance}" if instance else "omq"


def slice_of(instance: str | None) -> str:
    """The slice of its daemons, below that of all instances; a dash would be one level more."""
    if instance is None:
        return "system-omq.slice"
    return "system-omq-{}.slice".format(instance.replace("-", "\\x2d"))


def target(instance: str | None) -> str:
    """The unit that stands for the whole instance."""
    return f"{base_name(instance)}.target"


@cache
def _own_units() -> dict[str, str]:
    """Services of the shipped services.conf whose program a template starts, and the name of its
    unit after that of the instance."""
    starts: dict[str, str] = {}
    for path in shipped_units().glob("omq-*.service"):
        found = _STARTS.search(path.read_text(encoding="utf-8"))
        if found is not None:
            starts[found[1]] = path.stem.removeprefix("omq-")
    return {name: starts[conf.program] for name, conf in load_services(shipped_conf()).items()
            if conf.program in starts}


def unit_of(service: str, instance: str | None) -> str:
    """The unit that runs a service of services.conf."""
    own = _own_units().get(service)
    return f"{base_name(instance)}-{own if own else f'service@{service}'}.service"


def installed() -> list[str | None]:
    """Instances with units on this machine: the default one (None) first, the others by name."""
    found: set[str] = set()
    for folder in (UNIT_DIR, PACKAGE_UNIT_DIR):
        for unit in folder.glob("omq*.target"):
            base = unit.name.removesuffix(".target")
            if base == "omq" or (base.startswith("omq-")
                                 and (folder / f"{base}-queue-manager.service").exists()):
                found.add(base.removeprefix("omq").removeprefix("-"))
    return [name or None for name in sorted(found)]


def packaged(path: Path) -> Path:
    """Where a package has the file that `omq setup` would put at `path`."""
    if path.parent == UNIT_DIR:
        return PACKAGE_UNIT_DIR / path.name
    if path.parent.name == "logrotate.d":
        return path
    return Path("/usr/lib") / path.relative_to("/etc")


def render_all(values: UnitValues, source: Path | None = None) -> dict[Path, str]:
    """Every file that `omq setup` installs, by its place."""
    source = shipped_units() if source is None else source
    words = values.words()
    found: dict[Path, str] = {}
    for pattern in _TEMPLATES:
        for template in sorted(source.glob(pattern)):
            name = words["NAME"] + template.name.removeprefix("omq")
            found[UNIT_DIR / name] = render(template, words)
    for folder in _FOLDERS:
        for template in sorted((source / folder).iterdir()):
            name = template.name.replace("omq", words["NAME"])
            found[Path("/etc") / folder / name] = render(template, words)
    return found


def render(template: Path, words: Mapping[str, str]) -> str:
    """One file."""
    include = template.parent / "include"
    text = template.read_text(encoding="ascii")
    while _INCLUDE.search(text):
        text = _INCLUDE.sub(lambda match: _included(include / match[1]), text)
    return _WORD.sub(lambda match: words[match[1]], text)


def _included(path: Path) -> str:
    return path.read_text(encoding="ascii").rstrip("\n")
