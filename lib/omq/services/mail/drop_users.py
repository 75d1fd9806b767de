"""Who may hand in mail at the maildrop's socket, and how much: by the uid that the kernel tells.

Rules: 1. the owner of the spool and root always may, and have places of their own; 2. others as
`drop_users` says; 3. one user has a quarter of the sessions, half of the memory for drafts, and
`drop_messages_max` mails in `smtp_client_period_s`. Counts are kept for users who have a session or
whose period is not over.

Errors: NotSubmitter, TooManyMails.
"""

from __future__ import annotations

import grp
import os
import pwd
from collections import Counter
from typing import Final

from omq.base.amounts import duration
from omq.base.clock import NS_PER_S
from omq.base.errors import NotSubmitter, TooManyMails
from omq.base.settings import Settings
from omq.services.mail.smtp_data import Memory

ANYBODY: Final = "*"
_SHARE: Final = 4
_RESERVE: Final = 8
_KNOWN_MAX: Final = 10_000


class Users:
    """The counts; times are monotonic ns."""

    def __init__(self, owner: int) -> None:
        self._own = frozenset((0, owner))
        self.sessions = Counter[int]()
        self._held = Counter[int]()  # bytes of drafts
        self._mails: dict[int, tuple[int, int]] = {}  # uid: (when its period began, mails in it)

    def is_own(self, uid: int) -> bool:
        """Whether this is the owner or root."""
        return uid in self._own

    def admit(self, uid: int, settings: Settings) -> None:
        """A session begins: `sessions` counts it if nothing is raised. TooManyMails, NotSubmitter.
        It may ask a directory for groups."""
        used, most = self.sessions.total(), settings.drop_sessions_max
        free = 0 if self.is_own(uid) else most // _RESERVE
        if used >= most - free or (
                not self.is_own(uid) and self.sessions[uid] >= most // _SHARE):
            raise TooManyMails(what="too many programs hand in mail", uid=uid,
                               key="drop_sessions_max", limit=most)
        if not self.is_own(uid) and not allowed(uid, settings.drop_users):
            raise NotSubmitter(user=name_of(uid))
        self.sessions[uid] += 1

    def end(self, uid: int) -> None:
        """A session is over."""
        self.sessions[uid] -= 1
        if not self.sessions[uid]:
            del self.sessions[uid]

    def take(self, uid: int, size: int, memory: Memory, settings: Settings) -> None:
        """So many bytes more of drafts are held; until `give`. TooManyMails, and they are not."""
        one_mail, own = 2 * settings.smtp_message_bytes_max, self.is_own(uid)
        key, limit = "smtp_memory_bytes_max", memory.limit
        if not own and self._held[uid] + size > max(one_mail, limit // 2):
            raise TooManyMails(what="drafts of one user hold half of the memory for them", uid=uid,
                               key=key, limit=limit)
        if not memory.take(size, beyond=one_mail if own else 0):
            raise TooManyMails(what="drafts of all programs hold all memory for them", uid=uid,
                               key=key, limit=limit)
        self._held[uid] += size

    def give(self, uid: int, size: int, memory: Memory) -> None:
        """These are held no longer."""
        memory.give(size)
        self._held[uid] -= size
        if not self._held[uid]:
            del self._held[uid]

    def count(self, uid: int, settings: Settings, now_ns: int) -> None:
        """A mail of this user. TooManyMails: one too many, and it is not counted."""
        limit = settings.drop_messages_max
        if self.is_own(uid) or not limit:
            return
        period_ns = settings.smtp_client_period_s * NS_PER_S
        if len(self._mails) >= _KNOWN_MAX:
            self._mails = {each: (began, mails) for each, (began, mails) in self._mails.items()
                           if now_ns - began <= period_ns}
        began, mails = self._mails.get(uid, (now_ns, 0))
        if now_ns - began > period_ns:
            began, mails = now_ns, 0
        if mails >= limit:
            raise TooManyMails(what=f"more mails in {duration(settings.smtp_client_period_s)}",
                               uid=uid, key="drop_messages_max", limit=limit)
        self._mails[uid] = (began, mails + 1)


def allowed(uid: int, listed: str) -> bool:
    """Whether `drop_users` names this user: by *, a name or number, or a group of his."""
    words = listed.split()
    if ANYBODY in words or str(uid) in words:
        return True
    try:
        found = pwd.getpwuid(uid)
    except KeyError:
        return False
    if found.pw_name in words:
        return True
    wanted = {word[1:] for word in words if word.startswith("@")}
    return bool(wanted) and any(_group(gid) in wanted or str(gid) in wanted for gid in
                                os.getgrouplist(found.pw_name, found.pw_gid))


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""


def name_of(uid: int) -> str:
    """For people."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
