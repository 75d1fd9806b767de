"""Envelopes for the demo: who sends to whom, drawn from one random generator, so repeatable.

The shares below make the traffic resemble an office's: most messages have one or two recipients,
a few have a dozen; local and remote recipients are mixed; a tenth has Bcc recipients; a few name a
local user that does not exist, and a few (reports, notices) have the null sender.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.demo.mails import (
    LOCAL_DOMAIN,
    LOCAL_USERS,
    REMOTE_DOMAINS,
    REMOTE_USERS,
    UNKNOWN_USERS,
    local_address,
)

RECIPIENTS_MAX = 12
_NULL_SENDER_SHARE = 0.03
_LOCAL_SENDER_SHARE = 0.65
_LOCAL_RECIPIENT_SHARE = 0.55
_UNKNOWN_RECIPIENT_SHARE = 0.02
_BCC_SHARE = 0.10
# (smallest count, largest count, weight)
_RECIPIENT_COUNTS = ((1, 1, 60), (2, 3, 25), (4, 7, 12), (8, RECIPIENTS_MAX, 3))


@dataclass(frozen=True, slots=True)
class Envelope:
    """Sender ("" = null), recipients named in To and Cc, and recipients named in no header."""

    sender: str
    visible: tuple[str, ...]
    hidden: tuple[str, ...]

    @property
    def recipients(self) -> tuple[str, ...]:
        """All recipients, each once."""
        return self.visible + self.hidden


def draw_envelope(rng: random.Random) -> Envelope:
    """The next envelope of this generator."""
    recipients = _recipients(rng)
    hidden_count = 0
    if rng.random() < _BCC_SHARE:
        # All of them at times: a message "To: undisclosed-recipients:;" is common in real mail.
        hidden_count = rng.randint(1, min(2, len(recipients)))
    cut = len(recipients) - hidden_count
    return Envelope(_sender(rng), tuple(recipients[:cut]), tuple(recipients[cut:]))


def _sender(rng: random.Random) -> str:
    drawn = rng.random()
    if drawn < _NULL_SENDER_SHARE:
        return ""
    if drawn < _NULL_SENDER_SHARE + _LOCAL_SENDER_SHARE:
        return local_address(rng.choice(LOCAL_USERS))
    return _remote_address(rng)


def _remote_address(rng: random.Random) -> str:
    return f"{rng.choice(REMOTE_USERS)}@{rng.choice(REMOTE_DOMAINS)}"


def _recipients(rng: random.Random) -> list[str]:
    ranges = [(low, high) for low, high, _ in _RECIPIENT_COUNTS]
    weights = [weight for _, _, weight in _RECIPIENT_COUNTS]
    low, high = rng.choices(ranges, weights)[0]
    wanted = rng.randint(low, high)
    chosen: dict[str, None] = {}
    if rng.random() < _UNKNOWN_RECIPIENT_SHARE:
        domain = rng.choice((LOCAL_DOMAIN, *REMOTE_DOMAINS))
        chosen[f"{rng.choice(UNKNOWN_USERS)}@{domain}"] = None
    while len(chosen) < wanted:
        local = rng.random() < _LOCAL_RECIPIENT_SHARE
        address = local_address(rng.choice(LOCAL_USERS)) if local else _remote_address(rng)
        chosen[address] = None
    recipients = list(chosen)
    rng.shuffle(recipients)
    return recipients
