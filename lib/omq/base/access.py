"""A right that is missing, told as what to do: whose the thing is and who may use it.

Rights differ between instances (an owner alone, a group for clients, one for operators), so the
advice is read from the file itself, or from the first folder above it that can be looked at.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

from omq.base.errors import AccessDenied, NotOperator
from omq.base.names import escape


def denied(path: Path | str, error: Exception | None = None) -> AccessDenied:
    """The error for a PermissionError at `path`."""
    reason = (getattr(error, "strerror", None) or str(error or "")) or "permission denied"
    return AccessDenied(path=escape(str(path)), reason=escape(reason[:1].lower() + reason[1:]),
                        user=user_name(os.geteuid()), advice=advice(Path(path)))


def index_denied(spool: Path) -> NotOperator:
    """The error for an index segment: whom it is open to is in omq.conf, not in a mode."""
    owner = user_name(os.stat(spool).st_uid)
    who = "as root" if owner == "root" else f"as {owner}, as root"
    return NotOperator(path=escape(str(spool)), user=user_name(os.geteuid()),
                       advice=f"do it {who} or as a member of the group that omq.conf names as "
                       "operators_group")


def advice(path: Path) -> str:
    """Who may, in words: `do it as omq, as root or as a member of group omq`."""
    for each in (path, *path.absolute().parents):
        try:
            found = os.stat(each)
        except OSError:
            continue
        members = f" or as a member of group {group_name(found.st_gid)}"
        closed = os.geteuid() != found.st_uid and found.st_mode & stat.S_IRWXG and (
            found.st_gid not in {os.getegid(), *os.getgroups()})
        owner = user_name(found.st_uid)
        who = "as root" if owner == "root" else f"as {owner}, as root"
        if not closed and owner != "root":
            who = f"as {owner} or as root"
        return f"do it {who}{members if closed else ''}"
    return "do it as root"


def user_name(uid: int) -> str:
    """The name, or the number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def group_name(gid: int) -> str:
    """The name, or the number."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
