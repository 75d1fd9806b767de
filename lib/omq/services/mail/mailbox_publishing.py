"""Files on their way into mailboxes of several owners and quotas.

Each owner's files are written, synced and renamed together, acting as he; those of a mailbox with
a quota while it is locked against other deliveries. A file that finds no room is refused, the
others go on.

Crash argument: that of omq.services.mail.maildir; a lock ends with its process.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Final

from omq.services.mail.mailbox_owner import Owner, acting_as
from omq.services.mail.mailbox_quota import Quotas
from omq.services.mail.mailbox_rules import MailboxRule
from omq.services.mail.maildir import Maildir, NewFile, publish
from omq.storage import durable

FILES_MAX: Final = 64
"""Open at once."""


class QuotaExceeded(OSError):
    """The mailbox has no room for a file; `never`: it would have none if it were empty."""

    def __init__(self, size: int, quota: int) -> None:
        super().__init__(errno.EDQUOT, f"no room for {size} bytes, the quota is {quota}")
        self.never = size > quota


@dataclass(frozen=True, slots=True)
class Posted:
    """A file for a mailbox."""

    maildir: Maildir
    rule: MailboxRule
    file: NewFile


def publish_all(items: Sequence[Posted], quotas: Quotas) -> list[OSError | None]:
    """Bring all of them in; what went wrong with each."""
    errors: list[OSError | None] = [None] * len(items)
    owners: dict[Owner | None, list[int]] = {}
    for number, item in enumerate(items):
        owners.setdefault(item.rule.owner, []).append(number)
    limited = {item.maildir.path.name for item in items if item.rule.quota_bytes}
    with ExitStack() as held:
        try:
            held.enter_context(quotas.locked(limited))
        except OSError as error:  # of the spool's disk: these wait, the others do not
            errors = [error if item.rule.quota_bytes else None for item in items]
        for owner, numbers in owners.items():
            with acting_as(owner):
                _publish(items, numbers, quotas, errors)
    return errors


def _publish(items: Sequence[Posted], numbers: Sequence[int], quotas: Quotas,
             errors: list[OSError | None]) -> None:
    for number in numbers:
        errors[number] = errors[number] or _refusal(items[number], quotas)
    ready = [number for number in numbers if errors[number] is None]
    for start in range(0, len(ready), FILES_MAX):
        some = ready[start : start + FILES_MAX]
        found = publish(durable.current(), [items[number].file for number in some])
        for number, error in zip(some, found, strict=True):
            errors[number] = error
    for maildir in {items[number].maildir.path: items[number].maildir for number in numbers
                    if items[number].rule.quota_bytes}.values():
        whole = all(errors[number] is None for number in ready
                    if items[number].maildir.path == maildir.path)
        with suppress(OSError):  # then it is counted anew
            quotas.delivered(maildir.path, whole=whole)


def _refusal(item: Posted, quotas: Quotas) -> OSError | None:
    quota, size = item.rule.quota_bytes, item.file.size
    try:
        if quota and (size > quota or not quotas.reserve(item.maildir.path, size, quota)):
            return QuotaExceeded(size, quota)
    except OSError as error:
        return error
    return None
