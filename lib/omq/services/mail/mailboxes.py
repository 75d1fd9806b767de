"""Who may have a mailbox here: asked by smtp.server for each recipient, by local.delivery before it
makes a Maildir.

A user with a Maildir has one. Others get it made (`maildir_create`) if routes.conf names them; if
only a pattern does, while there are fewer than `maildir_pattern_max` Maildirs. smtp.server counts
those that it has promised (a recipient was taken, and delivery has not made his Maildir yet), so
that who is taken at RCPT is not refused by delivery.

A folder that cannot be looked at (another user's, a disk error) refuses nobody: delivery meets the
error itself and defers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from omq.base.settings import Settings
from omq.services.mail.mailbox_quota import is_full
from omq.services.mail.maildir import maildir_root
from omq.services.mail.routes import Routes

_NO_MORE: Final = "there is no such mailbox here, and no more are made"
PROMISED_S: Final = 3600.0
"""Mail that has not been delivered by then waits for something else than its turn."""


@dataclass(slots=True)
class Promises:
    """Mailboxes that are to be made, by name: by how many recipients, and since when (monotonic).
    Of one process."""

    made: dict[str, tuple[int, float]] = field(default_factory=dict)

    def open(self, there: Iterable[str], now: float) -> int:
        """How many there are besides those that are `there`; these are forgotten, and old ones."""
        known = self.made.keys() & set(there)
        for user in [user for user, (_, since) in self.made.items()
                     if user in known or now - since > PROMISED_S]:
            del self.made[user]
        return len(self.made)

    def add(self, user: str, now: float) -> None:
        """To one recipient more."""
        self.made[user] = self.made.get(user, (0, now))[0] + 1, now

    def give_back(self, users: Iterable[str]) -> None:
        """Nothing comes for these recipients."""
        for user in users:
            count, since = self.made.get(user, (1, 0.0))
            if count > 1:
                self.made[user] = count - 1, since
            else:
                self.made.pop(user, None)


@dataclass(frozen=True, slots=True)
class Mailboxes:
    """The rule of one configuration."""

    root: Path
    routes: Routes
    create: bool
    pattern_max: int
    run: Path
    full_s: float  # so long a mailbox counts as full that had no room
    refuses: bool  # mail for a full one, for good
    promises: Promises = field(default_factory=Promises, compare=False)

    @classmethod
    def of(cls, settings: Settings, spool: Path, routes: Routes) -> Mailboxes:
        """As the settings have it."""
        return cls(maildir_root(settings.maildir_root, spool), routes, settings.maildir_create,
                   settings.maildir_pattern_max, spool / "run", float(settings.local_retry_s),
                   settings.mailbox_full == "refuse")

    def full(self, user: str, size: int) -> tuple[str, str] | None:
        """(status, reason) where a mail of `size` bytes, 0: not known, finds no room by what its
        last delivery saw; None: it may."""
        quota = self.routes.mailboxes.of(user).quota_bytes
        if quota and size > quota:
            return "5.2.2", "the mailbox is smaller than the message"
        if quota and is_full(self.run, user, self.full_s):
            return ("5.2.2" if self.refuses else "4.2.2"), "the mailbox is full"
        return None

    def problem(self, user: str) -> str:
        """Why this user has no mailbox; empty: there is one, or it may be made."""
        problem = self._named(user)
        if problem is None:
            problem = "" if len(self._there()) < self.pattern_max else _NO_MORE
        return problem

    def promise(self, user: str, now: float) -> tuple[str, bool]:
        """The same for a recipient of smtp.server; and whether it is a promise, which is given back
        if no mail comes for him."""
        problem = self._named(user)
        if problem is not None:
            return problem, False
        there = self._there()
        promised = self.promises.open(there, now)
        if user not in self.promises.made and len(there) + promised >= self.pattern_max:
            return _NO_MORE, False
        self.promises.add(user, now)
        return "", True

    def _named(self, user: str) -> str | None:
        """What is so without a look at how many Maildirs there are; None: that counts."""
        if os.path.lexists(f"{self.root}{os.sep}{user}"):
            return ""
        if not self.create:
            return "there is no such mailbox here"
        if self.routes.is_named(user):
            return ""
        return None if self.routes.is_user(user) else "there is no such user here"

    def _there(self) -> list[str]:
        try:
            return os.listdir(self.root)
        except OSError:
            return []  # no folder at all yet, or one that only delivery can look into
