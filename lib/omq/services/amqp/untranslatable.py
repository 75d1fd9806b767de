"""The error of a message that cannot cross between AMQP and omq, with the condition of AMQP."""

from __future__ import annotations

from typing import Final

UNREADABLE: Final = (ValueError, TypeError, KeyError, AttributeError, OverflowError)
"""What comes of a value of another type than the standard says; Malformed is a ValueError."""


class Untranslatable(Exception):
    """It cannot become a message of omq, or one of AMQP."""

    def __init__(self, condition: str, reason: str) -> None:
        super().__init__(reason)
        self.condition, self.reason = condition, reason
