"""What `omq setup` installs for an instance: its files, links, and the units that are to come up.

A package of the distribution brings the files of the default instance itself (in /usr/lib): there
the plan of that instance is empty, and what lies in /etc is its administrator's.

Errors: ConfigError.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omq.base.config import load_settings
from omq.base.errors import SetupUnfit
from omq.base.paths import conf_of_instance, spool_of_instance
from omq.base.services_conf import load_services
from omq.base.settings import DEFAULTS
from omq.cli.launch import COMMANDS
from omq.cli.setup import setup_checks, setup_files
from omq.cli.setup.setup_files import Planned
from omq.ipc.server.admission import descriptors_needed
from omq.services.supervise.daemon_plan import is_core
from omq.services.supervise.systemctl import BOOTED
from omq.services.supervise.unit_files import (
    PACKAGE_UNIT_DIR,
    UNIT_DIR,
    UnitValues,
    base_name,
    packaged,
    render_all,
    target,
    unit_of,
)

LINKS: Final = Path("/usr/local/bin")
USER: Final = "omq"
_SYSTEM: Final = (Path("/usr"), Path("/"))
_TIMERS: Final = {"archive": "omq-archive", "check": "omqcheck"}
"""Timers and the programs that they run."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be installed."""

    values: UnitValues
    plan: tuple[Planned, ...]
    links: tuple[tuple[Path, Path], ...]  # from, to

    @property
    def instance(self) -> str | None:
        return self.values.instance


def job_of(instance: str | None, user: str = USER, *, by_defaults: bool = False) -> Job:
    """The job as things are now. `by_defaults`: whatever the configuration says, as when units are
    removed or a package is made."""
    # Not resolved: the path into a virtual environment is what makes it one.
    python = Path(sys.executable)
    prefix, base = Path(sys.prefix), Path(sys.base_prefix)
    exec_paths = tuple(path for path in dict.fromkeys((prefix, base)) if path not in _SYSTEM)
    conf = conf_of_instance(instance)
    settings = load_settings(conf) if conf.is_dir() and not by_defaults else DEFAULTS
    values = UnitValues(
        instance=instance, user=user, group=setup_checks.group_of(user),
        python=python, exec_paths=exec_paths, spool=spool_of_instance(instance), conf=conf,
        open_files=descriptors_needed(settings.clients_max, settings.callers_max),
    )  # fmt: skip
    plan = [] if instance is None and of_package() else [
        setup_files.judge(path, setup_files.stamped(text))
        for path, text in render_all(values).items()]
    return Job(values, tuple(plan), tuple(_links(prefix)))


def of_package() -> bool:
    """Whether a package brought this code and the units of the default instance."""
    prefix = Path(sys.prefix)
    return (prefix.is_relative_to("/usr") and not prefix.is_relative_to("/usr/local")
            and (PACKAGE_UNIT_DIR / target(None)).exists())


def user_of(instance: str | None) -> str:
    """Whom the installed units of an instance name as their user."""
    for folder in (UNIT_DIR, PACKAGE_UNIT_DIR):
        path = folder / unit_of("qmgr", instance)
        if path.is_file():
            found = re.search(r"^User=(\S+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            return found[1] if found else USER
    return USER


def _links(prefix: Path) -> list[tuple[Path, Path]]:
    """Commands for people, where their shell finds them; daemons have a dot in their name. A
    package has links of its own."""
    own = [prefix / "bin" / name for name in COMMANDS if "." not in name]
    inside = prefix in (Path("/usr"), Path("/usr/local")) or of_package()
    return [] if inside else [(LINKS / path.name, path) for path in own if path.exists()]


def apply_folders(job: Job) -> None:
    """The user, the directories and the kernel's limits, as the installed files say. SetupUnfit."""
    name = f"{base_name(job.instance)}.conf"

    def place(folder: str, file: str) -> Path:
        path = Path("/etc", folder, file)
        return path if path.exists() else packaged(path)

    _run("systemd-sysusers", place("sysusers.d", name))
    _run("systemd-tmpfiles", "--create", place("tmpfiles.d", name))
    if BOOTED.is_dir():
        _run("/lib/systemd/systemd-sysctl", place("sysctl.d", f"60-{name}"))


def _run(*command: object) -> None:
    result = subprocess.run([str(word) for word in command], check=False, capture_output=True,
                            text=True)
    if result.returncode:
        raise SetupUnfit(reason=f"{command[0]} says: {result.stderr.strip()}",
                         advice="mend it and run omq setup again (a user that was made stays)")


def enabled(job: Job) -> list[str]:
    """The units that come up with the machine."""
    prefix = base_name(job.instance)
    services = load_services(job.values.conf if job.values.conf.is_dir() else None).values()
    wanted = [unit_of(each.name, job.instance) for each in services
              if each.enabled or is_core(each)]
    timers = [f"{prefix}-{timer}.timer" for timer, tool in _TIMERS.items() if tool in COMMANDS]
    return [target(job.instance), f"{prefix}-drain.service", *wanted, *timers]


def disabled(job: Job) -> list[str]:
    """The units of services that the configuration turns off."""
    services = load_services(job.values.conf if job.values.conf.is_dir() else None).values()
    return [unit_of(each.name, job.instance) for each in services
            if not each.enabled and not is_core(each)]
