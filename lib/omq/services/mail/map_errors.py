"""How a look-up in a map of addresses may end without an answer: the mail waits."""

from __future__ import annotations

from typing import Protocol


class Fetching(Protocol):
    """What has the answer fetched (omq.services.mail.maps)."""

    async def fetch(self, key: str) -> None: ...
    async def answer(self, key: str) -> tuple[str, ...] | None: ...


class MapFailed(Exception):
    """A map gives no answer that can be used."""

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(f"{source}: {reason}")
        self.source, self.reason = source, reason


class MapMissing(Exception):
    """The answer for this key is to be fetched first."""

    def __init__(self, maps: Fetching, key: str) -> None:
        super().__init__(key)
        self.maps, self.key = maps, key
