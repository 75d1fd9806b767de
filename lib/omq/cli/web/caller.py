"""Who asks the console for something, and what he may do: account, role, and scopes of a token.

A user is an account of this host, as at amqp.server: authority.conf says what he may do on which
queue, and its section [console] which role he has here. Invariants: 1. a token never may more than
its user; 2. the role `admin` is all rights on every queue; 3. nobody is the owner or root here, for
a password must not open everything.

Who programs are is remembered for a moment (Callers): to look at the accounts of the host for each
of a thousand requests a second would cost more than the requests. A right that an account loses is
gone KNOWN_S later; one that omq.conf, tokens or authority.conf take away, at the reload.

Errors: RoleMissing, NoAuthority.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from omq.base.authority import ROLES, Authority
from omq.base.errors import NoAuthority, RoleMissing

LOOK, OPERATE, ADMIN = ROLES
SCOPES: Final = ("look", "browse", "put", "get", "operate", "define")
"""What a token may be for."""
_ROLE_OF: Final = {"look": LOOK, "browse": LOOK, "operate": OPERATE, "define": ADMIN}
"""The role that a scope needs; put and get go by the rights on the queue alone."""
_SCOPE_OF: Final = {"put": "put", "get": "get", "browse": "browse", "admin": "operate"}
"""The scope that an action on a queue needs."""
KNOWN_S: Final = 1.0
_KNOWN_MAX: Final = 4096
Key = tuple[str, str, str]
"""Account, token, address."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who proved who he is. `scopes` None: all, it is a person's session."""

    name: str
    uid: int
    gids: frozenset[int]
    role: str
    authority: Authority
    peer: str = ""
    token: str = ""  # its name
    scopes: frozenset[str] | None = None

    def has(self, role: str) -> bool:
        """Whether the role is this one or above it."""
        return bool(self.role) and ROLES.index(self.role) >= ROLES.index(role)

    def within(self, scope: str) -> bool:
        """Whether the scope is his."""
        role = _ROLE_OF.get(scope)
        return (self.scopes is None or scope in self.scopes) and (role is None or self.has(role))

    def need(self, scope: str) -> None:
        """RoleMissing."""
        if not self.within(scope):
            raise RoleMissing(user=self.who, role=_ROLE_OF.get(scope, scope))

    def may(self, action: str, queue: str) -> bool:
        """Whether he may do this (put get browse admin) on the queue."""
        if not self.within(_SCOPE_OF[action]):
            return False
        return self.role == ADMIN or self.authority.allows(action, queue, self.uid, self.gids)

    def need_on(self, action: str, *queues: str) -> None:
        """RoleMissing, NoAuthority."""
        self.need(_SCOPE_OF[action])
        for queue in queues:
            if not self.may(action, queue):
                raise NoAuthority(uid=self.uid, action=action, queue=queue)

    @property
    def known(self) -> bool:
        """Somebody who has a right here. Over the Unix socket every account of the host can ask."""
        return self.scopes is not None or self.authority.knows(self.uid, self.gids)

    @property
    def who(self) -> str:
        """For logs: `alice`, `alice by token backup`."""
        return f"{self.name} by token {self.token}" if self.token else self.name


class Callers:
    """See the module. For the event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._of: dict[Key, tuple[float, Caller | None]] = {}

    async def find(self, key: Key, look: Callable[[], Awaitable[Caller | None]]) -> Caller | None:
        """As it was looked up at most KNOWN_S ago."""
        now = self._clock()
        known = self._of.get(key)
        if known is None or known[0] <= now:
            found = await look()
            if len(self._of) >= _KNOWN_MAX:
                self._of.clear()
            known = self._of[key] = (now + KNOWN_S, found)
        return known[1]

    def forget(self) -> None:
        """At a reload."""
        self._of.clear()
