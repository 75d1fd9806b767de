"""The keys of section [drop] of omq.conf: mail that programs of this host hand in; see
omq.base.settings, whose base this is."""

from __future__ import annotations

from omq.base.limits import GIB, MIB
from omq.base.settings_key import number, part, text
from omq.base.settings_ship import ShipSettings


@part
class DropSettings(ShipSettings):
    """One field per key of [drop]."""

    # fmt: off
    drop_users: str = text("drop", "*", r"\S+( +\S+)*",
        "names or numbers of users, @groups, or *, separated by spaces",
        "who may hand in mail with omq-sendmail while mail.drop runs; the owner and root always "
        "may; *: every user of this host, as sendmail programs do")
    drop_files_max: int = number("drop", 10_000, 10, 1_000_000,
        "mails in the maildrop while the queue manager is away; one user other than the owner and "
        "root has half")
    drop_bytes_max: int = number("drop", 1 * GIB, 1 * MIB, 1024 * GIB,
        "the same in bytes; only they may submit a mail larger than half of it")
    drop_messages_max: int = number("drop", 600, 0, 1_000_000,
        "mails of one user in smtp_client_period_s, but the owner's and root's; 0: no limit")
    drop_sessions_max: int = number("drop", 64, 4, 1000,
        "programs that hand in mail at once; a quarter of them of one user, the last eighth for "
        "the owner and root")
    drop_timeout_s: int = number("drop", 60, 1, 3600,
        "a program that submits mail and sends nothing this long is cut off")
    # fmt: on
