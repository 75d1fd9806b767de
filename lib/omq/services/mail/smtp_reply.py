"""What a peer answered, and what that means for a recipient: delivered, later, or never.

A reply of 5yz is for good, every other failure is for now (RFC 5321 section 4.2.1). The status is
the enhanced one that the peer gave (RFC 3463), if its first digit agrees, else a general one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from omq.services.mail.mail_message import one_line

_ENHANCED = re.compile(r"([245]\.\d{1,3}\.\d{1,3})(?:\s|$)")


class Verdict(Enum):
    """What a peer did with one recipient."""

    DELIVERED = "delivered"  # the peer answered the data with 250: the message is the peer's now
    TEMPORARY = "temporary"  # 4yz, or no answer: to be tried again
    PERMANENT = "permanent"  # 5yz: the sender gets a report


STATUS_WORDS: Final = {Verdict.DELIVERED: "sent", Verdict.TEMPORARY: "deferred",
                       Verdict.PERMANENT: "bounced"}
"""As mail.log says it."""


@dataclass(frozen=True, slots=True)
class Result:
    """One recipient's fate: RFC 3463 status and the peer's words."""

    recipient: str
    verdict: Verdict
    status: str
    text: str
    mta: str = ""  # the host that said so; empty where we did
    tells: bool = False  # it has the DSN extension, and tells the sender what he wants to know


@dataclass(frozen=True, slots=True)
class Reply:
    """Code and text of one reply, its lines joined."""

    code: int
    text: str

    def result(self, recipient: str, *, temporary: bool | None = None) -> Result:
        """The failure of a recipient; `temporary` overrides what the code says."""
        if temporary is None:
            temporary = not 500 <= self.code <= 599
        enhanced = _ENHANCED.match(self.text)
        digit = "4" if temporary else "5"
        status = enhanced[1] if enhanced and enhanced[1][0] == digit else f"{digit}.0.0"
        verdict = Verdict.TEMPORARY if temporary else Verdict.PERMANENT
        return Result(recipient, verdict, status, one_line(f"{self.code} {self.text}"))
