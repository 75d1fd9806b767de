"""The lines of [recipient_maps] and [sender_maps] in routes.conf: `name = kind:what`.

A line is checked when routes.conf is read: its kind, paths, rights of a command, the file of a
directory, the packages that it needs. What a file of addresses or a database holds is looked at
when it is asked (omq.services.mail.map_sources): it may change while we run.

Errors: ConfigError (file, line, key, reason, what is allowed).
"""

from __future__ import annotations

import os
import pwd
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from omq.base import names
from omq.base.config_file import Entry
from omq.services.mail import map_sources as sources
from omq.services.mail.map_ldap import LdapMap, load_directory
from omq.services.mail.maps import Source
from omq.services.mail.routes import Pipe
from omq.services.mail.watched_file import Watched

_ALLOWED: Final = ("file:/path, regexp:/path, command:user /path words, sqlite:/path statement or "
                   "ldap:/path")
_PACKAGES: Final = {"regexp": ("re2", "google-re2"), "ldap": ("ldap3", "ldap3")}


def source_of(entry: Entry, *, whole: bool, check: sources.Check | None = None) -> Source:
    """A source; `whole`: it is asked about addresses, else about logins; `check` says what is no
    value. ConfigError."""
    kind, _, rest = entry.value.partition(":")
    check = check or (sources.recipient_problem if whole else sources.sender_problem)
    module, package = _PACKAGES.get(kind, ("", ""))
    if module and find_spec(module) is None:
        raise entry.error(f"the package {package} is missing", "pip install 'omq-base[maps]'")
    if kind == "command":
        pipe = command_of(entry, rest, _ALLOWED)
        return sources.CommandMap(entry.key, pipe, check)
    place, _, statement = rest.partition(" ")
    path = Path(place)
    if kind not in ("file", "regexp", "sqlite", "ldap") or not path.is_absolute():
        raise entry.error("not a map", _ALLOWED)
    if kind == "sqlite":
        if not any(each in statement for each in (":address", ":local")):
            raise entry.error("not a statement, or one that is the same for every address",
                              "sqlite:/path select goto from alias where address = :address")
        return sources.SqliteMap(entry.key, path, statement.strip(), check)
    if statement:
        raise entry.error("a space in the path", _ALLOWED)
    if kind == "ldap":
        return LdapMap(entry.key, load_directory(entry, path), check)
    file = Watched(entry.key, path)
    if kind == "regexp":
        return sources.RegexpMap(entry.key, file, check)
    return sources.FileMap(entry.key, file, check, whole)


def command_of(entry: Entry, text: str, allowed: str) -> Pipe:
    """`user /path words`, that this process may run as the user. ConfigError."""
    try:
        user, *words = shlex.split(text)
        uid = pwd.getpwnam(user).pw_uid
    except (ValueError, KeyError) as error:
        raise entry.error(f"not a command: {error}", allowed) from error
    if not words or not words[0].startswith("/"):
        raise entry.error("not a command with an absolute path", allowed)
    if not uid or (os.geteuid() and uid != os.geteuid()):
        raise entry.error(f"it cannot run as {names.escape(user)}",
                          "not root; another user than the service's only if that is root")
    return Pipe(user, tuple(words))
