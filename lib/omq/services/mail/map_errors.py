"""How a look-up in a map of addresses may end without an answer: the mail waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omq.services.mail.maps import Maps


class MapFailed(Exception):
    """A map gives no answer that can be used."""

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(f"{source}: {reason}")
        self.source, self.reason = source, reason


class MapMissing(Exception):
    """The answer for this key is to be fetched first."""

    def __init__(self, maps: Maps, key: str) -> None:
        super().__init__(key)
        self.maps, self.key = maps, key
