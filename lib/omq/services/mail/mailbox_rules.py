"""Whose a mailbox is and how much it may hold: section [mailboxes] of routes.conf.

    user, pattern, @domain or * = owner [quota]

First match wins: the user by name, the domain, a pattern in the order of the file, '*'. A local
domain that stands here has mailboxes of its own, named user@domain; all others share those of the
users' names.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Final

from omq.base import names
from omq.base.config_file import Entry
from omq.base.errors import BadName, ConfigError
from omq.base.limits import GIB, KIB
from omq.services.mail.mailbox_owner import Owner
from omq.services.mail.maildir import mailbox_name

SERVICE: Final = "-"
"""An owner: the service's own user."""
_QUOTA_BYTES_MAX: Final = 1024 * GIB
_ALLOWED: Final = "owner [quota], as 'vmail 2 GiB'; '-' is the service's own user"


@dataclass(frozen=True, slots=True)
class MailboxRule:
    """Of one mailbox; no owner: the service's user; quota 0: none."""

    owner: Owner | None = None
    quota_bytes: int = 0


_PLAIN: Final = MailboxRule()


@dataclass(frozen=True, slots=True)
class MailboxRules:
    """All of them, by key in lower case, in the order of the file."""

    rules: Mapping[str, MailboxRule] = field(default_factory=dict)

    @property
    def has_owners(self) -> bool:
        """Whether some mailbox is another user's."""
        return any(each.owner is not None for each in self.rules.values())

    def of(self, mailbox: str) -> MailboxRule:
        """That of a mailbox, by its name."""
        if not self.rules:
            return _PLAIN
        user, at, domain = mailbox.partition("@")
        found = self.rules.get(mailbox) or self.rules.get(at + domain if at else user)
        if found is None:
            found = next((rule for key, rule in self.rules.items()
                          if key[0] != "@" and fnmatchcase(mailbox, key)), _PLAIN)
        return found

    def mailbox(self, user: str, domain: str) -> str:
        """The name of a user's mailbox."""
        return f"{user}@{domain}" if f"@{domain}" in self.rules else user


def rules_of(entries: Iterable[Entry], domains: Iterable[str]) -> MailboxRules:
    """Section [mailboxes], checked. ConfigError."""
    local = frozenset(domains)
    return MailboxRules(dict(_rule(entry, local) for entry in entries))


def _rule(entry: Entry, domains: frozenset[str]) -> tuple[str, MailboxRule]:
    key = entry.key.lower()
    if key[0] == "@" and key[1:] not in domains:
        raise entry.error(f"{names.escape(key[1:])!r} is not a domain of [local]",
                          ", ".join(sorted(domains)))
    if not set(key).isdisjoint(" /") or (key[0] != "@" and "@" in key and "*" not in key
                                         and not _is_mailbox(key)):
        raise entry.error("not a mailbox", "user, pattern, @domain or *")
    owner, _, quota = entry.value.partition(" ")
    return key, MailboxRule(_owner(entry, owner), _quota(entry, quota.strip()))


def _is_mailbox(key: str) -> bool:
    try:
        return bool(mailbox_name(key))
    except BadName:
        return False


def _owner(entry: Entry, name: str) -> Owner | None:
    if name == SERVICE:
        return None
    try:
        found = pwd.getpwnam(name)
    except (KeyError, ValueError) as error:
        raise entry.error(f"no user {names.escape(name)!r} here", _ALLOWED) from error
    if found.pw_uid == os.geteuid():
        return None
    if os.geteuid() or not found.pw_uid:
        raise entry.error(f"a mailbox cannot belong to {names.escape(name)}",
                          "not root; another user than the service's only if that is root")
    return Owner(found.pw_uid, found.pw_gid)


def _quota(entry: Entry, text: str) -> int:
    if not text:
        return 0
    try:
        return replace(entry, value=text).size(KIB, _QUOTA_BYTES_MAX)
    except ConfigError as error:
        raise entry.error(f"not a quota: {names.escape(text)}", _ALLOWED) from error
