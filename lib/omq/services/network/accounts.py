"""Accounts of the machine behind names that somebody proved over the network."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass

from omq.base.authority import Authority


@dataclass(frozen=True, slots=True)
class Account:
    """What authority.conf is asked about."""

    name: str
    uid: int
    gids: frozenset[int]


def account_of(name: str, authority: Authority) -> Account | None:
    """None: there is none, or it is the owner's or root's, who do not come over the network. It may
    ask a directory: not for an event loop."""
    try:
        found = pwd.getpwnam(name)
    except (KeyError, ValueError):
        return None
    if found.pw_uid in (0, authority.owner_uid):
        return None
    return Account(name, found.pw_uid, frozenset(os.getgrouplist(name, found.pw_gid)))
