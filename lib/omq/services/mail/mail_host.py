"""The name by which this host calls itself in mail: the setting, or the system's own name.

It is in the greeting and the Received field of smtp.server, in EHLO of unix.out and in reports.
The resolver is not asked (`socket.getfqdn` would): a slow name server must not hold up mail.
"""

from __future__ import annotations

import re
import socket

from omq.base.settings import Settings

_NAME = re.compile(r"[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*")


def mail_hostname(settings: Settings) -> str:
    """A host name that is fit for SMTP; `localhost` where the system has none."""
    if settings.hostname:
        return settings.hostname
    name = socket.gethostname()
    return name if _NAME.fullmatch(name) else "localhost"
