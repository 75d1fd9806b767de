"""Who may have a mailbox here: asked by smtp.server for each recipient, by local.delivery before it
makes a Maildir.

A user with a Maildir has one. Others get it made (`maildir_create`) if routes.conf names them; if
only a pattern does, while there are fewer than `maildir_pattern_max` Maildirs.

A folder that cannot be looked at (another user's, a disk error) refuses nobody: delivery meets the
error itself and defers.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from omq.base.settings import Settings
from omq.services.mail.mailbox_quota import is_full
from omq.services.mail.maildir import maildir_root
from omq.services.mail.routes import Routes


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
        try:
            if os.path.lexists(f"{self.root}{os.sep}{user}"):
                return ""
            if not self.create:
                return "there is no such mailbox here"
            if self.routes.is_named(user):
                return ""
            if not self.routes.is_user(user):
                return "there is no such user here"
            if len(os.listdir(self.root)) < self.pattern_max:
                return ""
        except FileNotFoundError:
            return ""  # no folder at all yet
        except OSError:
            return ""
        return "there is no such mailbox here, and no more are made"
