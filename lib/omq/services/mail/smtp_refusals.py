"""What a failed put means to the client: which errors are the message's own, and their replies."""

from __future__ import annotations

import re

from omq.base import errors
from omq.base.errors import OmqError

REFUSALS = (errors.QueueFull, errors.IndexFull, errors.SpoolFull, errors.PutInhibited,
             errors.MessageTooLong, errors.NoAuthority, errors.UnknownQueue, errors.BadProperty)

# RFC 3463: x.3.1 system full, x.3.2 not accepting, x.3.5 incorrectly configured, x.3.4 too big.
_REPLIES: tuple[tuple[tuple[type[OmqError], ...], str], ...] = (
    ((errors.QueueFull, errors.IndexFull, errors.SpoolFull),
     "452 4.3.1 insufficient system storage, try again later"),
    ((errors.PutInhibited, errors.ShuttingDown),
     "451 4.3.2 not accepting messages at present, try again later"),
    ((errors.MessageTooLong,), "552 5.3.4 the message is too long"),
    ((errors.BadProperty,), "554 5.6.0 the envelope cannot be stored"),
    ((errors.NoAuthority, errors.UnknownQueue, errors.ConfigError),
     "451 4.3.5 the system is not configured to accept messages, try again later"),
)
_UNKNOWN = "451 4.3.0 the message could not be stored, try again later"


_FOR_GOOD = re.compile(r"^5(\d\d[ -])(?:5(?=\.\d))?", re.MULTILINE)


def softened(reply: str) -> str:
    """The same refusal, for now: code and enhanced status of each line (RFC 3463)."""
    return _FOR_GOOD.sub(lambda found: f"4{found[1]}{'4' * (len(found[0]) > 4)}", reply)


def reply_to(error: BaseException) -> str:
    """The SMTP reply for a failed put."""
    return next((reply for kinds, reply in _REPLIES if isinstance(error, kinds)), _UNKNOWN)
