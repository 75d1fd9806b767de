"""omqrecover restore: a spool from an object store, as it was at a point of time; omqrecover
archive: the archive files of its journal.

Errors: BadRequest for a directory that is not empty; those of omq.services.ship.restoring and
archiving.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from omq.base import clock
from omq.base.amounts import counted
from omq.base.clock import iso_time
from omq.base.config import load_settings
from omq.base.errors import BadRequest, ConfigError, Exit
from omq.base.paths import SpoolPaths, conf_dir
from omq.base.settings import Settings
from omq.cli.common import say
from omq.services.ship.archiving import Archiving
from omq.services.ship.places import place
from omq.services.ship.restoring import Point, Restoring
from omq.storage import durable, spool
from omq.storage.archive import archive_name

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

NAME = "omqrecover"
Told = Callable[[str], None]


def add_parser(commands: Commands, time_ns: Callable[[str], int], progress: Callable[[], Told]
               ) -> None:
    """The command and its options."""
    def point(text: str) -> Point:
        return Point(lsn=int(text)) if text.isdecimal() else Point(time_ns=time_ns(text))

    back = commands.add_parser("restore", help="a spool from an object store (omq ship)")
    back.add_argument("spool", type=Path, metavar="SPOOL")
    back.add_argument("--from", required=True, metavar="URL", dest="source",
                      help="s3://, gs://, az:// or file:///, as of omq ship")
    back.add_argument("--at", type=point, metavar="TIME|LSN",
                      help="up to the last group commit at or before this point, like "
                      "2026-11-21T08:00 or 81234; else everything that is there")
    back.add_argument("--take-place", action="store_true",
                      help="make it the primary of the next term; what it was made from must "
                           "never serve again. Without this it is a copy to look at")
    back.set_defaults(run=partial(_restore, progress=progress))


def add_archive_parser(commands: Commands, progress: Callable[[], Told]) -> None:
    """The command and its options."""
    made = commands.add_parser("archive", help="archive files for omq-spark from an object store "
                               "(omq ship)")
    made.add_argument("folder", type=Path, metavar="DIR",
                      help="an empty directory, or that of an earlier run, which goes on")
    made.add_argument("--from", required=True, metavar="URL", dest="source",
                      help="s3://, gs://, az:// or file:///, as of omq ship")
    made.add_argument("--bodies", action="store_true",
                      help="the bodies of messages, too (.omb); omq-spark needs none")
    made.set_defaults(run=partial(_archive, progress=progress))


def _archive(options: argparse.Namespace, progress: Callable[[], Told]) -> int:
    folder: Path = options.folder.absolute()
    if durable.status(folder) is None:
        raise BadRequest(reason=f"there is no directory {folder}")
    held = spool.lock(folder / "lock", NAME)
    try:
        made = Archiving(place(options.source), folder, progress(), level=Settings().archive_level,
                         bodies=options.bodies).run()
    finally:
        held.close()
    last = f", up to journal file {made.number}" if made.files else ""
    print(f"{counted(made.files, 'archive file')} made in {folder}{last}: "
          f"{counted(made.frames, 'frame')}; the journal file that is still written comes later")
    if made.findings:
        say(NAME, f"{made.findings} damaged parts in them, as they were in the journal")
    for number in made.gaps:
        say(NAME, f"{archive_name(number)} is not made: a part of journal file {number} was not "
            "shipped")
    return Exit.DATA if made.gaps else Exit.OK


def settings_of(paths: SpoolPaths) -> Settings:
    """Those of the spool's configuration; where it is none, those that are shipped."""
    try:
        return load_settings(conf_dir(paths.root))
    except ConfigError as error:
        say(NAME, f"{error}; default settings are used")
        return Settings()


def _restore(options: argparse.Namespace, progress: Callable[[], Told]) -> int:
    paths = SpoolPaths(options.spool.absolute())
    if durable.status(paths.root) is not None and any(
            name != paths.conf.name for name in durable.list_directory(paths.root)):
        raise BadRequest(reason=f"{paths.root} is not empty, and a restore begins in an empty "
                         "directory")
    made = Restoring(place(options.source), paths, settings_of(paths), options.at or Point(),
                     progress()).run(clock.wall_ns(), takes_place=options.take_place)
    when = f", {iso_time(made.time_ns)}" if made.time_ns else ""
    print(f"{paths.root} is the instance {made.instance.uuid.hex()} as it was at LSN {made.lsn}"
          f"{when}: a base of {iso_time(made.base.time_ns)} and {made.objects} objects of journal")
    if options.at is not None and not made.ended:
        print("the journal there ends before that point: what came later was not shipped")
    print("not in it: non-persistent messages, conf/, archive, logs, mail")
    print(f"it is the primary of term {made.instance.term}; scan, then start the instance"
          if options.take_place else "it is a copy to look at: omqdump, omqlog and omqrecover "
          "extract read it, and no queue manager starts on it")
    return Exit.OK
