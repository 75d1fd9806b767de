"""To work on a mailbox as its owner: with his rights alone, whatever he has made of its folders.

An owner may put a link in the place of any folder of his mailbox. So nothing in it is opened,
made, renamed or removed with the service's rights: while `acting_as` lasts, this process has user,
group and groups of the owner, and the kernel refuses what he could not do himself. What he can do
himself, he may have done by us: a link into another folder of his delivers there.

The mailbox's own folder is made by root, in a root folder that only root can change
(`check_root`), and given to its owner through a descriptor that follows no link.

Invariants: 1. one thread, which meanwhile does nothing else: no log, no manager; 2. what the kernel
forgets at a change of user, the signal at the parent's death, is set again.

Errors: OSError, PermissionError among them, as the owner would have them; ConfigError from
`check_root`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omq.base.errors import ConfigError
from omq.base.settings_file import FILE_NAME, conf_path
from omq.services.daemon.process import die_with_parent
from omq.storage import durable

_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class Owner:
    """A user of this system, as the file system knows it."""

    uid: int
    gid: int


@contextmanager
def acting_as(owner: Owner | None) -> Iterator[None]:
    """With the rights of the owner; None: as we are."""
    if owner is None:
        yield
        return
    groups, group, parent = os.getgroups(), os.getegid(), os.getppid()
    os.setgroups([])
    os.setegid(owner.gid)
    os.seteuid(owner.uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)
        die_with_parent(parent)


def give(path: Path, owner: Owner) -> None:
    """A folder of ours is its owner's from now on; one that is not ours, or a link, stays."""
    try:
        file = durable.current().open(str(path), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        if path.is_symlink():
            return  # root's own word on where the mailbox is
        raise
    try:
        if durable.current().fstat(file).st_uid == os.geteuid():
            os.fchown(file, owner.uid, owner.gid)
    finally:
        durable.current().close(file)


def check_root(root: Path, conf_dir: Path) -> None:
    """Where other users' mailboxes lie nobody but root may make, rename or link one."""
    try:
        found = root.stat()
    except FileNotFoundError:
        return  # it will be made so
    if found.st_uid != 0 or found.st_mode & _OTHERS_WRITE:
        raise ConfigError(file=conf_path(conf_dir, FILE_NAME), line=0, key="maildir_root",
                          reason=f"{root} can be changed by others than root, and mailboxes in it "
                          "are other users' ([mailboxes] of routes.conf)",
                          allowed="a folder of root that nobody else may write")
