"""Turns of users: nobody's requests hold all threads of the console.

What a request looks at runs in one of web_workers threads, and a selector over a million messages
takes its thread for long; journal and archive are read for one request at a time. Invariants: 1. at
most so many of a user's requests have a turn; 2. at most so many more wait for him, in the order in
which they came, also those whose browser has gone; one more is refused; 3. a user is known here
while he has a turn or waits for one.

Error: ConsoleBusy.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from omq.base.errors import ConsoleBusy

USER: Final[ContextVar[str]] = ContextVar("user", default="")
"""For whom the request at hand works; set by the gate. Empty: nobody has proved who he is, and what
is looked up for him is short."""


@dataclass(slots=True)
class _Share:
    """What one user has."""

    turns: asyncio.Semaphore
    here: int = 0  # that have a turn, or wait for one


class UserTurns:
    """`most` at once of one user, `waiting` more after them. For the event loop."""

    def __init__(self, most: int, waiting: int) -> None:
        self._most, self._waiting = most, waiting
        self._of: dict[str, _Share] = {}

    def __len__(self) -> int:
        return len(self._of)

    @asynccontextmanager
    async def turn(self, user: str) -> AsyncIterator[None]:
        """One of the user's turns, once there is one; nobody has no need of it."""
        if not user:
            yield
            return
        share = self._of.setdefault(user, _Share(asyncio.Semaphore(self._most)))
        if share.here >= self._most + self._waiting:
            raise ConsoleBusy(what=f"{self._waiting} requests of yours wait already "
                              "(web_user_waiting_max)", seconds=1)
        share.here += 1
        try:
            async with share.turns:
                yield
        finally:
            share.here -= 1
            if not share.here:
                del self._of[user]
