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
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from omq.base.errors import Exit, FileInTheWay, SystemctlFailed
from omq.base.names import check_client_name
from omq.base.services_conf import load_services
from omq.cli.common import say, tool_parser
from omq.cli.setup import setup_checks, setup_files, setup_groups, setup_ports
from omq.cli.setup.setup_files import Found
from omq.cli.setup.setup_job import USER, Job, apply_folders, disabled, enabled, job_of
from omq.services.supervise import systemctl
from omq.services.supervise.unit_files import (
    MSGMNB,
    OUTSIDE,
    UNIT_DIR,
    installed,
    packaged,
    target,
)
from omq.storage import durable

NAME: Final = "omq setup"

def main(argv: list[str]) -> int:
    """The command; its exit code."""
    options = _parser().parse_args(argv)
    job = job_of(options.instance, options.user,
                 by_defaults=options.remove or options.stage is not None)
    if options.stage is not None:
        return _stage(job, options.stage)
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
    print(f"would enable: {' '.join(enabled(job))}")


def _install(job: Job) -> None:
    with ExitStack() as undo:
        undo.callback(_quietly, ["daemon-reload"])  # runs last, when the files are as they were
        setup_files.write_all(job.plan, undo)
        setup_files.link_all(job.links, undo)
        # As they are removed: the outer one last, thus noted first.
        folders = (job.values.spool, job.values.conf, job.values.conf / "readers",
                   job.values.conf / "workers")
        setup_files.forget_new_folders(folders, undo)
        apply_folders(job)
        setup_checks.check_sysctl("msgmnb", MSGMNB)
        port = setup_ports.port_for(job.instance)
        setup_groups.write_conf(job.values.conf, job.values.user, job.values.group,
                                partial(say, NAME), undo, port)
        systemctl.call(["daemon-reload"])
        new = [each.path.name for each in job.plan
               if each.found is Found.NOTHING and each.path.parent == UNIT_DIR]
        undo.callback(_quietly, ["disable", *new])
        # What is new, and services without a unit of their own. What was turned off stays off.
        wanted = [unit for unit in enabled(job) if unit in new or "@" in unit]
        if wanted:
            systemctl.call(["enable", *wanted])
        undo.pop_all()
    _say_off(job)
    for text in setup_ports.clashes(job.instance):
        say(NAME, text)
    if units := disabled(job):
        systemctl.call(["disable", *units])
    changed = sum(each.found is not Found.SAME for each in job.plan)
    say(NAME, f"{changed} of {len(job.plan)} files written; spool {job.values.spool},"
              f" configuration {job.values.conf}")
    say(NAME, f"start it with: systemctl start {target(job.instance)}")


def _say_off(job: Job) -> None:
    """What should run and was turned off."""
    units = enabled(job)
    for unit, state in zip(units, systemctl.enabled(units), strict=True):
        if state == "disabled":
            say(NAME, f"{unit} has been turned off and stays off: omon, or systemctl enable")


def _quietly(words: list[str]) -> None:
    """Part of taking back: a failure here would hide the one that is reported."""
    with contextlib.suppress(SystemctlFailed):
        systemctl.call(words)


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
    # Named one by one: a glob omq-*.timer would be that of every other instance, too.
    timers = [unit for unit in units if unit.endswith(OUTSIDE)]
    systemctl.call(["stop", target(job.instance), *timers])
    systemctl.call(["disable", *units])
    removed, kept = setup_files.remove(job.plan, force=force)
    others = installed()
    for link, goal in job.links:
        if not others and link.is_symlink() and link.readlink() == goal:
            durable.unlink(link)
    systemctl.call(["daemon-reload"])
    for path in kept:
        say(NAME, f"{path} has been edited and stays")
    say(NAME, f"{len(removed)} files removed; the spool {job.values.spool}, the configuration"
              f" {job.values.conf} and user {job.values.user} stay")
    return Exit.OK


def _stage(job: Job, root: Path) -> int:
    """The files as a package has them, below `root`; nothing else is looked at or done."""
    for each in job.plan:
        # Without the stamp: the package owns it.
        setup_files.write(root / packaged(each.path).relative_to("/"),
                          each.data.partition(b"\n")[2])
    setup_files.write(root / job.values.conf.relative_to("/") / "omq.conf",
                      setup_groups.first_conf(job.values.user).encode("ascii"))
    return Exit.OK


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(NAME, "Install the systemd units of an instance, or remove them.", """
        omq setup --dry-run
        omq setup
        omq setup --instance test
        omq setup --instance test --remove
        """)
    add = parser.add_argument
    add("--user", default=USER, type=check_client_name,
        help="the system user of the daemons (default omq; created if missing)")
    add("--dry-run", action="store_true", help="show what would be done, and do nothing")
    add("--remove", action="store_true",
        help="stop the instance and remove its units; spool and configuration stay")
    add("--stage", type=Path, metavar="DIR",
        help="for packagers: write the files below DIR, into usr/lib, and do nothing else")
    add("--force", action="store_true", help="replace files that were edited or are not ours")
    return parser
