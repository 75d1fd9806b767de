"""Reply codes of AMQP 0-9-1 (1.2 of its reference), and the errors of omq as these.

Errors: Refused ends a channel with its code.
"""

from __future__ import annotations

from typing import Final

from omq.base.errors import (
    BadDefinition,
    BadName,
    NoAuthority,
    QueueGone,
    QueueInUse,
    QueueNotEmpty,
    QueueOfFile,
    TooManyQueues,
    UnknownQueue,
    WrongKind,
)
from omq.services.amqp.targets import UNAUTHORIZED
from omq.services.amqp.untranslatable import Untranslatable

CONTENT_TOO_LARGE: Final = 311
NO_ROUTE: Final = 312
FORCED: Final = 320
ACCESS_REFUSED: Final = 403
NOT_FOUND: Final = 404
LOCKED: Final = 405
PRECONDITION_FAILED: Final = 406
CHANNEL_ERROR: Final = 504
UNEXPECTED: Final = 505
RESOURCE_ERROR: Final = 506
NOT_ALLOWED: Final = 530
NOT_IMPLEMENTED: Final = 540
INTERNAL_ERROR: Final = 541
_CODES: Final[tuple[tuple[tuple[type[Exception], ...], int], ...]] = (
    ((UnknownQueue, QueueGone, BadName), NOT_FOUND),
    ((NoAuthority, QueueOfFile), ACCESS_REFUSED),
    ((QueueInUse, QueueNotEmpty, BadDefinition, WrongKind, TooManyQueues, ValueError),
     PRECONDITION_FAILED))


NAMES: Final = {
    CONTENT_TOO_LARGE: "CONTENT_TOO_LARGE", FORCED: "CONNECTION_FORCED",
    ACCESS_REFUSED: "ACCESS_REFUSED", NOT_FOUND: "NOT_FOUND", LOCKED: "RESOURCE_LOCKED",
    PRECONDITION_FAILED: "PRECONDITION_FAILED", CHANNEL_ERROR: "CHANNEL_ERROR",
    UNEXPECTED: "UNEXPECTED_FRAME", RESOURCE_ERROR: "RESOURCE_ERROR", NOT_ALLOWED: "NOT_ALLOWED",
    NOT_IMPLEMENTED: "NOT_IMPLEMENTED", INTERNAL_ERROR: "INTERNAL_ERROR", 501: "FRAME_ERROR",
    502: "SYNTAX_ERROR"}
TEXT_MAX: Final = 250
"""Of 255 bytes that a short string has."""


def worded(code: int, reason: str) -> str:
    """The text next to a code. It begins with the code's name, as RabbitMQ writes it: there are
    programs that look for that."""
    text = f"{NAMES[code]} - {reason}" if code in NAMES else reason
    return text.encode()[:TEXT_MAX].decode(errors="ignore")


class Refused(Exception):
    """Its channel ends with this code."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def code_of(error: Exception | None) -> int:
    """The reply code that says why."""
    if isinstance(error, Untranslatable):
        if error.condition == UNAUTHORIZED:
            return ACCESS_REFUSED
        return NOT_FOUND if error.condition == "amqp:not-found" else INTERNAL_ERROR
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), INTERNAL_ERROR)


def refused_by(error: Exception) -> Refused:
    """The end of a channel for an error of omq."""
    return error if isinstance(error, Refused) else Refused(code_of(error), str(error))

