"""The channels of the mail gateways, by the names that routes.conf, tools and held lists use."""

from __future__ import annotations

from typing import Final

SMTP: Final = "smtp"
LMTP: Final = "lmtp"
PIPE: Final = "pipe"
NAMES: Final = "names"
"""The channel that looks domains up: its peers are domains."""
CHANNELS: Final = frozenset((SMTP, LMTP, PIPE, NAMES))
