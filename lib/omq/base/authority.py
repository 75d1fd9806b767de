"""authority.conf: who may do what on which queue. What is not granted is denied.

    [ORDERS]                    a queue, or [*] for all of them
    user:alice = put browse     a user by name or number; user:* is everybody
    group:clerks = put get      a group by name or number
                                actions: put get browse admin, or all
    [console]                   no queue: roles in omq-web
    group:staff = look          look, operate (it looks too), admin (all on every queue)
    [standby]                   no queue: who may follow this instance as its standby
    user:east = follow          it has all messages, and can say that it was promoted

Grants add up. The owner of the spool and root may do everything. IDEL and POISON are never put on
by a program: the queue manager refuses that whatever is granted here.

Errors: ConfigError; also for a user or group that this host does not have, because a misspelt name
in a list of rights must not pass in silence.
"""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omq.base.config_file import Entry, Section, read_sections
from omq.base.errors import BadName
from omq.base.mistakes import Mistakes
from omq.base.names import QUEUE_RULE, check_queue_name, escape
from omq.base.settings_file import conf_path

FILE_NAME: Final = "authority.conf"
ACTIONS: Final = ("put", "get", "browse", "admin")
ROLES: Final = ("look", "operate", "admin")
"""Of the console; each has those before it."""
CONSOLE: Final = "console"
"""No name of a queue: it has small letters."""
STANDBY: Final = "standby"
FOLLOW: Final = "follow"
"""The one right of that section."""
EVERY_QUEUE: Final = "*"
_NO_QUEUES: Final = (EVERY_QUEUE, CONSOLE, STANDBY)
_WORDS: Final[dict[str, tuple[str, ...]]] = {CONSOLE: ROLES, STANDBY: (FOLLOW,)}
CACHE_ENTRIES_MAX: Final = 4096
"""Above it the cache is emptied: users times queues may be many, and an answer is quickly found."""


@dataclass(frozen=True, slots=True)
class Grant:
    """One line: these actions for this user or group; both None is everybody."""

    actions: frozenset[str]  # or roles, or FOLLOW
    uid: int | None = None
    gid: int | None = None

    def covers(self, uid: int, gids: frozenset[int]) -> bool:
        if self.uid is None and self.gid is None:
            return True
        return self.uid == uid if self.uid is not None else self.gid in gids


class Authority:
    """Answers who may do what. Unchanging: a reload makes a new one, and with it an empty cache."""

    def __init__(self, owner_uid: int, grants: Mapping[str, tuple[Grant, ...]]) -> None:
        self.owner_uid = owner_uid
        self._grants = dict(grants)
        self._cache: dict[tuple[str, str, int, frozenset[int]], bool] = {}

    def allows(self, action: str, queue: str, uid: int, gids: frozenset[int]) -> bool:
        """Whether `uid`, a member of `gids`, may do `action` (put get browse admin) on `queue`."""
        assert action in ACTIONS, action
        if uid in (0, self.owner_uid):
            return True
        question = (action, queue, uid, gids)
        answer = self._cache.get(question)
        if answer is None:
            answer = any(
                action in grant.actions and grant.covers(uid, gids)
                for name in (queue, EVERY_QUEUE)
                for grant in self._grants.get(name, ())
            )
            if len(self._cache) >= CACHE_ENTRIES_MAX:
                self._cache.clear()
            self._cache[question] = answer
        return answer

    def role(self, uid: int, gids: frozenset[int]) -> str:
        """The highest role in the console; empty: none. The owner and root have all."""
        if uid in (0, self.owner_uid):
            return ROLES[-1]
        granted = {role for grant in self._grants.get(CONSOLE, ())
                   if grant.covers(uid, gids) for role in grant.actions}
        return next((role for role in reversed(ROLES) if role in granted), "")

    def may_follow(self, uid: int, gids: frozenset[int]) -> bool:
        """Whether it may be a standby of this instance."""
        return uid in (0, self.owner_uid) or any(
            grant.covers(uid, gids) for grant in self._grants.get(STANDBY, ()))

    def knows(self, uid: int, gids: frozenset[int]) -> bool:
        """Whether something is granted to them by name, not to everybody alone."""
        return uid in (0, self.owner_uid) or any(
            grant.covers(uid, gids) and (grant.uid is not None or grant.gid is not None)
            for grants in self._grants.values() for grant in grants)

    def queues(self) -> tuple[str, ...]:
        """The queues that authority.conf names, for a check against queues.conf."""
        return tuple(name for name in self._grants if name not in _NO_QUEUES)


def load_authority(conf_dir: Path | None = None, *, owner_uid: int | None = None) -> Authority:
    """authority.conf of `conf_dir`, or the shipped one; the owner is who runs this, by default."""
    sections = read_sections(conf_path(conf_dir, FILE_NAME))
    mistakes = Mistakes()
    grants: dict[str, tuple[Grant, ...]] = {}
    for section in sections.values():
        known, found = _WORDS.get(section.name, ACTIONS), []
        for entry in section.entries.values():
            with mistakes.noted():
                found.append(_grant(entry, known))
        with mistakes.noted():
            grants[_queue(section)] = tuple(found)
    mistakes.end()
    return Authority(os.geteuid() if owner_uid is None else owner_uid, grants)


def check_grant(section: str, who: str, may: str) -> None:
    """Whether this may be a line `who = may` of a section. ConfigError."""
    origin = Path(FILE_NAME)
    for text in (section, who, may):
        if not text.isprintable() or not 0 < len(text) <= 256 or "=" in who or "[" in section:
            raise Entry(origin, 0, who, may).error("not a line", "printable text")
    _queue(Section(origin, 0, section))
    _grant(Entry(origin, 0, who, may), _WORDS.get(section, ACTIONS))


def _queue(section: Section) -> str:
    if section.name in _NO_QUEUES:
        return section.name
    try:
        return check_queue_name(section.name)
    except BadName as error:
        raise section.error("not a queue name", f"{QUEUE_RULE}; or *, console, standby") from error


def _grant(entry: Entry, known: tuple[str, ...]) -> Grant:
    kind, colon, who = entry.key.partition(":")
    if not colon or not who or kind not in ("user", "group"):
        raise entry.error("not a subject", "user:NAME, user:* or group:NAME")
    words = entry.value.split()
    if not words or not set(words) <= {*known, "all"}:
        raise entry.error(f"{escape(entry.value)!r}", f"{' '.join(known)}, or all")
    actions = frozenset(known if "all" in words else words)
    if kind == "group":
        return Grant(actions, gid=_number(entry, who))
    return Grant(actions) if who == "*" else Grant(actions, uid=_number(entry, who))


def _number(entry: Entry, who: str) -> int:
    if who.isascii() and who.isdecimal():
        return int(who)
    try:
        is_user = entry.key.startswith("user:")
        return pwd.getpwnam(who).pw_uid if is_user else grp.getgrnam(who).gr_gid
    except KeyError as error:
        raise entry.error("unknown on this host", "a name or a number") from error
