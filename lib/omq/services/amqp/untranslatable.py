"""The error of a message that cannot cross between AMQP and omq, with the condition of AMQP."""

from __future__ import annotations

from typing import Final

from proton import ProtonException

UNREADABLE: Final = (ProtonException, ValueError, TypeError, KeyError, AttributeError,
                     OverflowError, RecursionError)
"""What the library raises for a value of another type than the standard says, one that nests too
deep, and a map with a list as a key."""


class Untranslatable(Exception):
    """It cannot become a message of omq, or one of AMQP."""

    def __init__(self, condition: str, reason: str) -> None:
        super().__init__(reason)
        self.condition, self.reason = condition, reason
