"""Where unix.out sends mail for a recipient: a peer, a domain that is to be looked up first, or
nowhere. What is known of names and of hosts that fail is kept here, for one process.

What unix.out knows of the hosts of domains: names that were looked up, hosts that fail.

Bounded: NAMES_KNOWN domains, the one that was looked up first goes.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omq.services.mail.mail_message import split_address
from omq.services.mail.names import NAMES_KNOWN, Exchanger, Found, leads_here, of_result
from omq.services.mail.routes import Peer, peer_named, peer_of
from omq.services.mail.smtp_address import literal
from omq.services.mail.smtp_reply import Result, Verdict

if TYPE_CHECKING:
    from omq.base.settings import Settings
    from omq.services.mail.routes import Routes, TlsRule


class Exchangers:
    """Times are monotonic."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[float, Found]] = OrderedDict()
        self._unreached: OrderedDict[str, float] = OrderedDict()

    def of(self, domain: str) -> Found | None:
        """What is known of a domain; None: it is to be looked up."""
        until, found = self._known.get(domain, (0.0, None))
        return found if until > time.monotonic() else None

    def learn(self, domain: str, found: Found) -> None:
        """It was looked up."""
        while len(self._known) >= NAMES_KNOWN:
            self._known.popitem(last=False)
        self._known[domain] = time.monotonic() + found.ttl_s, found

    def failed(self, host: str, seconds: float) -> None:
        """It cannot be reached for this long."""
        while len(self._unreached) >= NAMES_KNOWN:
            self._unreached.popitem(last=False)
        self._unreached[host] = time.monotonic() + seconds

    def best(self, domain: str, found: Found, rule: TlsRule | None) -> Exchanger | None:
        """Who is to have mail for the domain: the most preferred that is not known to fail, else
        the most preferred. None: its TLS rule allows nobody."""
        allowed = [each for each in found.ordered()
                   if rule is None or rule.allows(each.host, domain)]
        now = time.monotonic()
        return next((each for each in allowed if self._unreached.get(each.host, 0.0) <= now),
                    allowed[0] if allowed else None)

    def another(self, domain: str) -> bool:
        """Whether there is a host for the domain that is not known to fail."""
        found, now = self.of(domain), time.monotonic()
        return found is not None and any(
            self._unreached.get(each.host, 0.0) <= now for each in found.hosts)


@dataclass(frozen=True, slots=True)
class LookUp:
    """The hosts of this domain are not known."""

    domain: str


Way = Peer | LookUp | Result


class Ways:
    """Of one configuration."""

    def __init__(self, settings: Settings, routes: Routes) -> None:
        self._port, self._mx = settings.unix_port, settings.unix_mx
        self._smarthost = peer_of(settings.unix_smarthost) if settings.unix_smarthost else None
        self._routes = routes
        self._exchangers = Exchangers()
        self._chosen: dict[Peer, Exchanger] = {}

    def of(self, recipient: str) -> Way:
        """The way of mail for a recipient."""
        domain = split_address(recipient)[1]
        peer = self._routes.peer(domain) or self._smarthost
        if peer is not None:
            if peer.channel != "smtp":
                return peer
            rule = self._routes.tls_rule(domain, peer.host)
            return Peer(peer.host, peer.port or self._port, rule.level if rule else "")
        if not self._mx:
            return _never(recipient, "5.4.4", "no host is configured for this domain")
        if domain.startswith("["):
            address = literal(domain)
            if not address:
                return _never(recipient, "5.1.2", "its address literal is no address")
            if leads_here((address,), self._routes.literals):
                return _never(recipient, "5.4.6", f"mail for {domain} comes back to this host")
            return Peer(address, self._port)
        found = self._exchangers.of(domain)
        if found is None:
            return LookUp(domain)
        if found.problem:
            return _never(recipient, found.status, found.problem)
        return self._exchanger(recipient, domain, found)

    def _exchanger(self, recipient: str, domain: str, found: Found) -> Way:
        # A host's name comes from the DNS: what is said of hosts alone does not bind it.
        rule = self._routes.tls_rule(domain, domain)
        best = self._exchangers.best(domain, found, rule)
        if best is None:
            return Result(recipient, Verdict.TEMPORARY, "4.7.5",
                          f"no mail exchanger of {domain} has a name that its TLS rule allows")
        peer = Peer(best.host, self._port, rule.level if rule else "")
        self._chosen[peer] = best
        return peer

    def addresses(self, peers: Iterable[Peer]) -> dict[str, Sequence[str]]:
        """Of those whose names were looked up."""
        found: dict[str, Sequence[str]] = {
            str(peer): self._chosen[peer].addresses for peer in peers if peer in self._chosen}
        self._chosen.clear()
        return found

    def learn(self, rows: Iterable[dict[str, Any]]) -> None:
        """What was looked up."""
        for row in rows:
            self._exchangers.learn(row["domain"], of_result(row))

    def failed(self, peer: str, seconds: float) -> None:
        """A peer was not tried, for it is down."""
        known = peer_named(peer)
        if known is not None:
            self._exchangers.failed(known.host, seconds)

    def unreached(self, hosts: Iterable[str], seconds: float) -> None:
        """These were tried."""
        for host in hosts:
            self._exchangers.failed(host, seconds)

    def with_another(self, results: Iterable[Result]) -> set[str]:
        """Recipients that had no answer, and whose domain has a host that may give one."""
        return {each.recipient for each in results
                if each.verdict is Verdict.TEMPORARY and self._by_name(each.recipient)
                and self._exchangers.another(split_address(each.recipient)[1])}

    def _by_name(self, recipient: str) -> bool:
        domain = split_address(recipient)[1]
        return self._mx and self._smarthost is None and self._routes.peer(domain) is None


def _never(recipient: str, status: str, text: str) -> Result:
    return Result(recipient, Verdict.PERMANENT, status, text)
