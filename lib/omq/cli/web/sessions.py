"""Sessions of people who logged in to the console.

Kept in memory: a restart ends them. Invariants: 1. the store has the hash of a session's key, not
the key; 2. a key is made at a login and never taken from the client (no fixation); 3. a session
ends web_session_idle_s after its last use and web_session_s after its begin; 4. there are at most
web_sessions_max, and web_user_sessions_max of one user: the one unused the longest gives way.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hmac import compare_digest

from omq.base.settings import Settings


@dataclass(slots=True, repr=False)
class Session:
    """One of them. `csrf`: what each of its forms must carry."""

    user: str
    began_s: float
    used_s: float
    by_proxy: bool = False
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    def right(self, token: str) -> bool:
        """Whether this is what a form of the session carries."""
        return compare_digest(token.encode("utf-8", "surrogateescape"), self.csrf.encode())


class Sessions:
    """See the module. For the event loop."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self._clock = clock
        self._known: dict[str, Session] = {}  # by the hash of the key, the latest used last

    def __len__(self) -> int:
        return len(self._known)

    def begin(self, user: str, *, by_proxy: bool = False) -> tuple[str, Session]:
        """(the key for the client, the session)."""
        now = self._clock()
        self._forget(now)
        mine = [key for key, each in self._known.items() if each.user == user]
        for key in mine[: max(0, len(mine) + 1 - self.settings.web_user_sessions_max)]:
            del self._known[key]
        while len(self._known) >= self.settings.web_sessions_max:
            del self._known[next(iter(self._known))]
        key = secrets.token_urlsafe(32)
        session = self._known[_hashed(key)] = Session(user, now, now, by_proxy)
        return key, session

    def find(self, key: str) -> Session | None:
        """The session of a key, which is used now."""
        hashed, now = _hashed(key), self._clock()
        session = self._known.pop(hashed, None)
        if session is None or self._over(session, now):
            return None
        session.used_s = now
        self._known[hashed] = session
        return session

    def end(self, key: str) -> None:
        """A logout."""
        self._known.pop(_hashed(key), None)

    def end_of(self, users: frozenset[str]) -> None:
        """Those of all but these users are over; what a proxy proved it proves again itself."""
        self._known = {key: each for key, each in self._known.items()
                       if each.by_proxy or each.user in users}

    def _over(self, session: Session, now: float) -> bool:
        return (now - session.used_s > self.settings.web_session_idle_s
                or now - session.began_s > self.settings.web_session_s)

    def _forget(self, now: float) -> None:
        self._known = {key: each for key, each in self._known.items()
                       if not self._over(each, now)}


def _hashed(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
