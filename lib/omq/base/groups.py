"""The two groups of an instance, from omq.conf: its clients and its operators (omq.base.modes).

Errors: ConfigError for a group that this host lacks or that the daemons' user is not in: it could
not give its socket and its files to it.
"""

from __future__ import annotations

import grp
import os
from dataclasses import dataclass
from pathlib import Path

from omq.base import modes
from omq.base.errors import ConfigError
from omq.base.settings import Settings


@dataclass(frozen=True, slots=True)
class Groups:
    """Numbers of the two groups; `operators` None: the owner and root alone."""

    clients: int
    operators: int | None = None

    @property
    def index_mode(self) -> int:
        return modes.FILE if self.operators is None else modes.INDEX


def groups_of(settings: Settings, spool: Path) -> Groups:
    """The groups of an instance. ConfigError."""
    clients = _number("clients_group", settings.clients_group)
    if clients is None:
        clients = spool.stat().st_gid
    return Groups(clients, _number("operators_group", settings.operators_group))


def _number(key: str, name: str) -> int | None:
    """A group that this process may give its files to."""
    if not name:
        return None
    try:
        gid = int(name) if name.isdecimal() else grp.getgrnam(name).gr_gid
    except KeyError:
        raise _wrong(key, f"there is no group {name} on this host") from None
    if os.geteuid() != 0 and gid != os.getegid() and gid not in os.getgroups():
        raise _wrong(key, f"uid {os.geteuid()}, which runs the daemons, is not in group {name}")
    return gid


def _wrong(key: str, reason: str) -> ConfigError:
    return ConfigError(file="omq.conf", line=0, key=key, reason=reason,
                       allowed="a group that the daemons' user is in, or nothing")
