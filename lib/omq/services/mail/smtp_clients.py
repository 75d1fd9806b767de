"""What one client may take of smtp.server: sessions at once, and acts in a period.

A client is a source (services.network.source): an address, the network of one of IPv6, on loopback
an account of this host. Acts are connections,
messages, recipients, errors and wrong passwords; each has a limit in a period that begins with the
first of them. Clients of `smtp_relay_networks` are this site's own and are not limited, but in how
many sessions there are altogether, and in wrong passwords.

Each port has places of its own (`smtp_sessions_max`; `submission_sessions_max` for each of those of
users), so that a flood of strangers at one takes none of another's; a client may have its sessions
at each. The last of a port's are for clients that have none there yet (`smtp_sessions_reserved`): a
few clients that hold all they may do not lock out the rest. Acts are counted over all ports.

Users who have logged in, and domains of senders, are counted in the same way by a table each
(Handler.users, Handler.domains): strangers take no room there.

Bounded: at most CLIENTS_MAX sources are remembered; beyond it those whose period is over are
forgotten, then the oldest: a flood of them costs the others' counts, never memory.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from omq.base.clock import NS_PER_S
from omq.base.settings import Settings

CLIENTS_MAX: Final = 20_000


class Act(Enum):
    """What is counted; the value is the setting with its limit, 0 of which means none."""

    CONNECTION = "smtp_client_connections_max"
    MESSAGE = "smtp_client_messages_max"
    RECIPIENT = "smtp_client_recipients_max"
    ERROR = "smtp_client_errors_max"
    LOGIN_FAILED = "smtp_client_logins_max"
    USER_MESSAGE = "smtp_login_messages_max"
    USER_RECIPIENT = "smtp_login_recipients_max"
    DOMAIN_MESSAGE = "smtp_sender_domain_messages_max"


@dataclass(frozen=True, slots=True)
class Places:
    """Of one port: its name, and the setting that says how many sessions there may be."""

    port: str
    key: str = "smtp_sessions_max"


@dataclass(slots=True)
class _Client:
    """One source."""

    began_ns: int
    sessions: Counter[str] = field(default_factory=Counter)  # by port
    acts: dict[Act, int] = field(default_factory=dict)


class Clients:
    """The counts; times are monotonic ns."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, _Client] = OrderedDict()
        self.sessions = Counter[str]()  # by port

    def refusal(self, places: Places, key: str, settings: Settings, now_ns: int, *, own: bool
                ) -> str:
        """Why no session can be had at a port now; empty: it can, and `begin` is to be called."""
        client = self._clients.get(key)
        held = client.sessions[places.port] if client is not None else 0
        most: int = getattr(settings, places.key)
        free = most - self.sessions[places.port]
        reserved = min(settings.smtp_sessions_reserved, most // 4)
        if free <= 0 or (held and free <= reserved):
            return "too many sessions"
        if own:
            return ""
        if held >= settings.smtp_client_sessions_max:
            return "too many sessions of this client"
        if self.exceeds(key, Act.CONNECTION, settings, now_ns, own=own):
            return "too many connections of this client"
        limit = settings.smtp_client_errors_max
        if client is not None and limit and client.acts.get(Act.ERROR, 0) >= limit:
            return "too many errors of this client"
        return ""

    def begin(self, places: Places, key: str, now_ns: int) -> None:
        """A session begins."""
        self.sessions[places.port] += 1
        self._client(key, now_ns).sessions[places.port] += 1

    def end(self, places: Places, key: str) -> None:
        """A session is over."""
        self.sessions[places.port] -= 1
        client = self._clients.get(key)
        if client is not None and client.sessions[places.port]:
            client.sessions[places.port] -= 1

    def exceeds(self, key: str, act: Act, settings: Settings, now_ns: int, *, own: bool) -> bool:
        """Count an act; whether it is one too many."""
        client = self._client(key, now_ns)
        if now_ns - client.began_ns > settings.smtp_client_period_s * NS_PER_S:
            client.began_ns, client.acts = now_ns, {}
        count = client.acts[act] = client.acts.get(act, 0) + 1
        limit: int = getattr(settings, act.value)
        return bool(limit) and not own and count > limit

    def may_log_in(self, key: str, settings: Settings, now_ns: int) -> bool:
        """Whether a password of this client is checked at all."""
        client = self._clients.get(key)
        if client is None or now_ns - client.began_ns > settings.smtp_client_period_s * NS_PER_S:
            return True
        return client.acts.get(Act.LOGIN_FAILED, 0) < settings.smtp_client_logins_max

    def _client(self, key: str, now_ns: int) -> _Client:
        client = self._clients.get(key)
        if client is None:
            self._make_room()
            client = self._clients[key] = _Client(now_ns)
        return client

    def _make_room(self) -> None:
        """The oldest without a session goes; those with sessions are fewer than the room."""
        while len(self._clients) >= CLIENTS_MAX:
            key = next((key for key, each in self._clients.items()
                        if not any(each.sessions.values())), "")
            self._clients.pop(key, None)
