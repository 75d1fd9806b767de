"""omq setup: installs the systemd units of an instance, or takes them away.

Everything is checked before anything is written, and what was written is taken away again when a
later step fails. Run it again after an upgrade or after a change of services.conf: what is as it
should be stays untouched. Own changes belong into drop-ins (`systemctl edit UNIT`), which it never
looks at.

Exit code 0; 71 when the machine is not fit, 73 when a file is in the way, 77 without root, 78 when
a kernel limit is too low or the configuration is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from omq.base.config import load_services, load_settings
from omq.base.errors import Exit, FileInTheWay, SetupUnfit, SystemctlFailed
from omq.base.names import check_client_name
from omq.base.paths import conf_of_instance, spool_of_instance
from omq.base.settings import DEFAULTS
from omq.cli.common import say, tool_parser
from omq.cli.launch import COMMANDS
from omq.cli.setup import setup_checks, setup_files, setup_groups
from omq.cli.setup.setup_files import Found, Planned
from omq.ipc.serving.admission import descriptors_needed
from omq.services.supervise import systemctl
from omq.services.supervise.daemon_plan import is_core
from omq.services.supervise.unit_files import (
    MSGMNB,
    UNIT_DIR,
    UnitValues,
    base_name,
    render_all,
    target,
    unit_of,
)
from omq.storage import durable

NAME: Final = "omq setup"
LINKS: Final = Path("/usr/local/bin")
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


def main(argv: list[str]) -> int:
    """The command; its exit code."""
    options = _parser().parse_args(argv)
    job = _job(options)
    if options.remove:
        setup_checks.check_root()
        return _remove(job, force=options.force, dry_run=options.dry_run)
    _check(job)
    if not options.force:
        setup_files.refuse_strangers(job.plan)
        _refuse_links(job)
    if options.dry_run:
        _show(job)
        return Exit.OK
    _install(job)
    return Exit.OK


def _job(options: argparse.Namespace) -> Job:
    # Not resolved: the path into a virtual environment is what makes it one.
    python = Path(sys.executable)
    prefix, base = Path(sys.prefix), Path(sys.base_prefix)
    exec_paths = tuple(
        path for path in dict.fromkeys((prefix, base)) if path not in (Path("/usr"), Path("/"))
    )
    values = UnitValues(
        instance=options.instance, user=options.user, group=setup_checks.group_of(options.user),
        python=python, exec_paths=exec_paths, spool=spool_of_instance(options.instance),
        conf=conf_of_instance(options.instance), open_files=_open_files(options),
    )  # fmt: skip
    files = render_all(values)
    plan = [setup_files.judge(path, setup_files.stamped(text)) for path, text in files.items()]
    return Job(values, tuple(plan), tuple(_links(prefix)))


def _open_files(options: argparse.Namespace) -> int:
    """What queue.manager needs (ipc.serving.admission). To remove the units nothing of this
    matters."""
    conf = conf_of_instance(options.instance)
    settings = load_settings(conf) if conf.is_dir() and not options.remove else DEFAULTS
    return descriptors_needed(settings.clients_max, settings.callers_max)


def _links(prefix: Path) -> list[tuple[Path, Path]]:
    """Commands for people, where their shell finds them; daemons have a dot in their name."""
    own = [prefix / "bin" / name for name in COMMANDS if "." not in name]
    inside = prefix in (Path("/usr"), Path("/usr/local"))
    return [] if inside else [(LINKS / path.name, path) for path in own if path.exists()]


def _check(job: Job) -> None:
    setup_checks.check_root()
    setup_checks.check_systemd()
    setup_checks.check_interpreter(job.values.python)
    setup_checks.check_user(job.values.user)
    setup_checks.check_spool(job.values.spool, job.values.user)
    if job.values.conf.is_dir():
        load_services(job.values.conf)


def _refuse_links(job: Job) -> None:
    for link, _goal in job.links:
        if link.exists() and not _is_omq(link):
            raise FileInTheWay(path=link, reason="is another program")


def _is_omq(link: Path) -> bool:
    """A link to a command of some installation of omq."""
    return link.is_symlink() and link.readlink().name == link.name


def _show(job: Job) -> None:
    for each in job.plan:
        print(f"{each.found.value:<10} {each.path}")
    for link, goal in job.links:
        print(f"{'link':<10} {link} -> {goal}")
    values = job.values
    moved = setup_groups.to_move(values.conf, values.user, values.group)
    if moved is not None:
        print(f"{'groups':<10} {values.conf}/omq.conf, new clients: {' '.join(moved) or 'none'}")
    print(f"would enable: {' '.join(_enabled(job))}")


def _install(job: Job) -> None:
    with ExitStack() as undo:
        undo.callback(_quietly, ["daemon-reload"])  # runs last, when the files are as they were
        setup_files.write_all(job.plan, undo)
        setup_files.link_all(job.links, undo)
        # As they are removed: the outer one last, thus noted first.
        folders = (job.values.spool, job.values.conf, job.values.conf / "readers")
        setup_files.forget_new_folders(folders, undo)
        name = f"{base_name(job.instance)}.conf"
        _run(["systemd-sysusers", f"/etc/sysusers.d/{name}"])
        _run(["systemd-tmpfiles", "--create", f"/etc/tmpfiles.d/{name}"])
        _run(["/lib/systemd/systemd-sysctl", f"/etc/sysctl.d/60-{name}"])
        setup_checks.check_sysctl("msgmnb", MSGMNB)
        setup_groups.write_conf(job.values.conf, job.values.user, job.values.group,
                                partial(say, NAME), undo)
        systemctl.call(["daemon-reload"])
        new = [each.path.name for each in job.plan
               if each.found is Found.NOTHING and each.path.parent == UNIT_DIR]
        undo.callback(_quietly, ["disable", *new])
        systemctl.call(["enable", *_enabled(job)])
        undo.pop_all()
    disabled = _disabled(job)
    if disabled:
        systemctl.call(["disable", *disabled])
    changed = sum(each.found is not Found.SAME for each in job.plan)
    say(NAME, f"{changed} of {len(job.plan)} files written; spool {job.values.spool},"
              f" configuration {job.values.conf}")
    say(NAME, f"start it with: systemctl start {target(job.instance)}")


def _quietly(words: list[str]) -> None:
    """Part of taking back: a failure here would hide the one that is told."""
    with contextlib.suppress(SystemctlFailed):
        systemctl.call(words)


def _enabled(job: Job) -> list[str]:
    """The units that come up with the machine."""
    prefix = base_name(job.instance)
    services = load_services(job.values.conf if job.values.conf.is_dir() else None).values()
    wanted = [unit_of(each.name, job.instance) for each in services
              if each.enabled or is_core(each)]
    timers = [f"{prefix}-{timer}.timer" for timer, tool in _TIMERS.items() if tool in COMMANDS]
    return [target(job.instance), f"{prefix}-drain.service", *wanted, *timers]


def _disabled(job: Job) -> list[str]:
    services = load_services(job.values.conf if job.values.conf.is_dir() else None).values()
    return [unit_of(each.name, job.instance) for each in services
            if not each.enabled and not is_core(each)]


def _remove(job: Job, *, force: bool, dry_run: bool) -> int:
    units = [each.path.name for each in job.plan if each.path.parent == UNIT_DIR
             and each.found is not Found.NOTHING]
    if dry_run:
        for each in job.plan:
            if each.found is not Found.NOTHING:
                print(f"remove     {each.path}")
        return Exit.OK
    if not units:
        say(NAME, f"{target(job.instance)} is not installed")
        return Exit.NO
    systemctl.call(["stop", target(job.instance), f"{base_name(job.instance)}-*.timer"])
    systemctl.call(["disable", *units])
    removed, kept = setup_files.remove(job.plan, force=force)
    others = any(UNIT_DIR.glob("omq*.target"))
    for link, goal in job.links:
        if not others and link.is_symlink() and link.readlink() == goal:
            durable.unlink(link)
    systemctl.call(["daemon-reload"])
    for path in kept:
        say(NAME, f"{path} has been edited and stays")
    say(NAME, f"{len(removed)} files removed; the spool {job.values.spool}, the configuration"
              f" {job.values.conf} and user {job.values.user} stay")
    return Exit.OK


def _run(command: list[str]) -> None:
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    if result.returncode:
        raise SetupUnfit(reason=f"{command[0]} says: {result.stderr.strip()}",
                         advice="mend it and run omq setup again (a user that was made stays)")


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(NAME, "Install the systemd units of an instance, or remove them.", """
        omq setup --dry-run
        omq setup
        omq setup --instance test
        omq setup --instance test --remove
        """)
    add = parser.add_argument
    add("--user", default="omq", type=check_client_name,
        help="the system user of the daemons (default omq; made if there is none)")
    add("--dry-run", action="store_true", help="say what would be done, and do nothing")
    add("--remove", action="store_true",
        help="stop the instance and take its units away; spool and configuration stay")
    add("--force", action="store_true", help="replace files that were edited or are not ours")
    return parser
