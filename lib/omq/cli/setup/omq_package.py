"""omq package: what the maintainer scripts of a distribution's package do, on a machine that may
not be as the package left it.

    omq package pause        before the files are exchanged: drain and stop what runs, note it
    omq package configure    after it: units of named instances anew, then start what was noted
    omq package remove       before the files go: drain everything, take named instances' units away

Invariants: 1. an edited unit is left alone and named, and stops nothing; 2. instances are stopped
and started one after the other, each in its own order, the default one first; 3. what was paused is
started again by the next `configure`, also that of the old version when an upgrade is given up;
4. no spool and no file of an administrator is removed.

In the middle of a crash: what runs is noted before the first one is stopped, and forgotten when
all have been started; /run is empty after a reboot, where the enabled targets start by themselves.

Exit code 0, also when an instance could not be stopped or started (that is printed: the package is
as good as it can be, and a package manager that gives up makes nothing better); 71 when user or
directories cannot be made, 77 without root.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from omq.base import clock
from omq.base.errors import Exit, OmqError, SysctlTooLow
from omq.base.paths import SpoolPaths, conf_of_instance, spool_of_instance
from omq.cli.common import say
from omq.cli.setup import setup_checks, setup_files
from omq.cli.setup.setup_files import Found
from omq.cli.setup.setup_job import apply_folders, disabled, enabled, job_of, of_package, user_of
from omq.services.supervise import systemctl
from omq.services.supervise.unit_files import (
    MSGMNB,
    OUTSIDE,
    UnitValues,
    installed,
    packaged,
    render_all,
    target,
)
from omq.storage import durable

NAME: Final = "omq package"
PAUSED: Final = Path("/run/omq-paused")
EMPTY: Final = ".nothing-waits"
"""In a spool: when its instance was removed no message waited; purging the package may take it."""
_tell = partial(say, NAME)


def main(argv: list[str]) -> int:
    """The command; its exit code."""
    actions: dict[str, Callable[[], None]] = {
        "pause": pause, "configure": configure, "remove": remove}
    parser = argparse.ArgumentParser(
        prog=NAME, description="Steps of a distribution's package; its maintainer scripts call it.")
    parser.add_argument("action", choices=tuple(actions))
    parser.add_argument("--first", action="store_true",
                        help="configure: nothing was installed before")
    options = parser.parse_args(argv)
    setup_checks.check_root()
    if options.action == "configure":
        configure(first=options.first)
    else:
        actions[options.action]()
    return Exit.OK


def pause() -> None:
    """Stop what runs, in order, and note it."""
    if not systemctl.BOOTED.is_dir():
        return
    units = [target(instance) for instance in installed()]
    noted = PAUSED.read_text(encoding="ascii").split() if PAUSED.exists() else []
    running = [unit for unit, state in zip(units, systemctl.states(units), strict=True)
               if state.state.name == "STARTED"]
    setup_files.write(PAUSED, "".join(
        f"{unit}\n" for unit in dict.fromkeys((*noted, *running))).encode("ascii"))
    for unit in running:
        _attempt(f"{unit}: stopped in order", ["stop", unit])


def configure(*, first: bool = False) -> None:
    """See the module. SetupUnfit."""
    _clear_old_files()
    job = job_of(None, user_of(None), by_defaults=True)
    apply_folders(job)
    booted = systemctl.BOOTED.is_dir()
    for instance in installed():
        durable.unlink(spool_of_instance(instance) / EMPTY)
        if instance is not None:
            _refresh(instance)
    if booted:
        _attempt("", ["daemon-reload"])
        try:
            setup_checks.check_sysctl("msgmnb", MSGMNB)
        except SysctlTooLow as error:
            _tell(str(error))
    if first:
        _attempt("", ["enable", *enabled(job)])
        if off := disabled(job):
            _attempt("", ["disable", *off])
        _tell("omq.target is enabled and not started; start it with: systemctl start omq.target")
    paused = PAUSED.read_text(encoding="ascii").split() if PAUSED.exists() else []
    for unit in paused:
        _attempt(f"{unit}: started again", ["start", unit])
    durable.unlink(PAUSED)


def remove() -> None:
    """See the module."""
    pause()
    durable.unlink(PAUSED)
    for instance in installed():
        paths = SpoolPaths(spool_of_instance(instance))
        if instance is None:
            _attempt("", ["disable", *_unit_names(instance)])
        else:
            _take_away(instance)
        if paths.uuid.exists():
            _note_if_empty(paths)
    if systemctl.BOOTED.is_dir():
        _attempt("", ["daemon-reload"])


def _clear_old_files() -> None:
    """Units that an `omq setup` of this instance wrote before the package had its own: they would
    hide these. Edited ones stay, for they are what their author wants."""
    if not of_package():
        return
    for path, text in render_all(_values(None)).items():
        if packaged(path) == path:
            continue  # it is the package's own
        found = setup_files.judge(path, setup_files.stamped(text)).found
        if found in (Found.SAME, Found.OURS):
            durable.unlink(path)
        elif found is not Found.NOTHING:
            _tell(f"{path} is not the package's ({found.value}); it stays, in front of"
                  f" {packaged(path)}")


def _values(instance: str | None) -> UnitValues:
    return job_of(instance, user_of(instance), by_defaults=True).values


def _refresh(instance: str) -> None:
    """The units of a named instance, for this version."""
    try:
        job = job_of(instance, user_of(instance))
    except OmqError as error:
        _tell(f"{target(instance)}: its units stay as they are: {error}")
        return
    ours = [each for each in job.plan if each.found not in (Found.EDITED, Found.FOREIGN)]
    for each in job.plan:
        if each.found in (Found.EDITED, Found.FOREIGN):
            _tell(f"{each.path} {each.found.value}; it stays as it is")
    with ExitStack() as undo:
        setup_files.write_all(ours, undo)
        undo.pop_all()
    apply_folders(job)
    changed = sum(each.found is not Found.SAME for each in ours)
    _tell(f"{target(instance)}: {changed} of {len(job.plan)} unit files written")


def _unit_names(instance: str | None) -> list[str]:
    return [path.name for path in render_all(_values(instance)) if path.suffix in (
        ".target", ".service", ".socket", ".timer")]


def _take_away(instance: str) -> None:
    job = job_of(instance, user_of(instance), by_defaults=True)
    timers = [name for name in _unit_names(instance) if name.endswith(OUTSIDE)]
    if systemctl.BOOTED.is_dir():
        _attempt("", ["stop", *timers])
    _attempt("", ["disable", *_unit_names(instance)])
    _removed, kept = setup_files.remove(job.plan, force=False)
    for path in kept:
        _tell(f"{path} has been edited and stays")
    _tell(f"{target(instance)} is stopped and its units are gone; {job.values.spool} and"
          f" {conf_of_instance(instance)} stay")


def _note_if_empty(paths: SpoolPaths) -> None:
    """So that a purge, which comes when this code is gone, knows what it may take."""
    from omq.core.load.offline_index import read_files  # numpy: not for `omq drain` and the others
    from omq.format.index import Counter

    durable.unlink(paths.root / EMPTY)
    try:
        found = read_files(paths, clock.wall_ns())
    except OmqError as error:
        _tell(f"{paths.root} stays: {error}")
        return
    high = found.tables.counters[Counter.ENTRIES_HIGH]
    waiting = int(found.tables.v["e_state"][:high].astype(bool).sum())
    if waiting or found.findings:
        reason = f"{waiting} messages wait in it" if waiting else "omqcheck finds damage in it"
        _tell(f"{paths.root} stays: {reason}")
    else:
        setup_files.write(paths.root / EMPTY, b"")


def _attempt(done: str, words: list[str]) -> None:
    """`systemctl WORDS`; what fails is reported and stops nothing."""
    try:
        systemctl.call(words)
    except OmqError as error:
        _tell(str(error))
        return
    if done:
        _tell(done)

