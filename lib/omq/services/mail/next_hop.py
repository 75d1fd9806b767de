"""Where unix.out sends mail for a recipient: a peer, a domain that is to be looked up first, or
nowhere. What is known of names and of hosts that fail is kept here, for one process.

What unix.out knows of the hosts of domains: names that were looked up, hosts that fail.

Bounded: NAMES_KNOWN domains, the one that was looked up first goes.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omq.services.delivery.rules import PeerLimit
from omq.services.mail.exchanger import Exchanger
from omq.services.mail.mail_message import split_address
from omq.services.mail.mx_lookup import (
    NAMED,
    NAMES_KNOWN,
    Found,
    is_address,
    leads_here,
    of_result,
)
from omq.services.mail.routes import Peer, peer_named, peer_of
from omq.services.mail.smtp_address import literal
from omq.services.mail.smtp_reply import Result, Verdict
from omq.services.mail.tls_policy import DANE, DomainPolicy, LinePolicy, Refused
from omq.services.mail.tls_sessions import TlsSession

if TYPE_CHECKING:
    from omq.base.settings import Settings
    from omq.services.mail.routes import Routes


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

    def best(self, allowed: Sequence[Exchanger]) -> Exchanger | None:
        """Who of these is to have mail: the most preferred that is not known to fail, else the
        most preferred. None: there is nobody."""
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
Note = Callable[[TlsSession, Sequence[str], str, Sequence[str]], None]
"""Hears what is refused before a line is opened."""


def _note_nothing(session: TlsSession, domains: Sequence[str], policy: str, lines: Sequence[str]
                  ) -> None:
    del session, domains, policy, lines


class NextHops:
    """Of one configuration."""

    def __init__(self, settings: Settings, routes: Routes, note: Note = _note_nothing) -> None:
        self._note = note
        self._port, self._mx = settings.unix_port, settings.unix_mx
        self._smarthost = peer_of(settings.unix_smarthost) if settings.unix_smarthost else None
        self._routes = routes
        self._exchangers = Exchangers()
        self._site = settings.unix_tls
        self._limits: dict[tuple[str, int], PeerLimit] = {}  # of hosts, by their domains
        self._chosen: dict[Peer, dict[str, tuple[Exchanger, LinePolicy]]] = {}

    def of(self, recipient: str, sender: str = "", *, tls_optional: bool = False) -> Way:
        """The way of mail for a recipient, from this sender. `tls_optional`: what the recipient's
        domain publishes of TLS does not bind it, and no report counts it (RFC 8689, RFC 8460
        section 3); what omq.conf and routes.conf want does."""
        domain = split_address(recipient)[1]
        peer = self._routes.peer(domain, sender) or self._smarthost
        if peer is not None:
            if self._routes.peer_limits and peer == self._routes.own_peer(domain):
                self._limit(domain, peer)
            if peer.channel != "smtp":
                return peer
            return self._named(recipient, domain, peer, tls_optional=tls_optional)
        if not self._mx:
            return _never(recipient, "5.4.4", "no host is configured for this domain")
        if domain.startswith("["):
            address = literal(domain)
            if not address:
                return _never(recipient, "5.1.2", "its address literal is not an address")
            if leads_here((address,), self._routes.literals):
                return _never(recipient, "5.4.6", f"mail for {domain} comes back to this host")
            return self._named(recipient, domain, Peer(address), tls_optional=tls_optional)
        found = self._exchangers.of(domain)
        if found is None:
            return LookUp(domain)
        if found.problem:
            return _never(recipient, found.status, found.problem)
        return self._exchanger(recipient, domain, found, tls_optional=tls_optional)

    def _named(self, recipient: str, domain: str, peer: Peer, *, tls_optional: bool) -> Way:
        """To a host of routes.conf."""
        port = peer.port or self._port
        rule = self._routes.tls_rule(domain, peer.host)
        wanted = DomainPolicy(domain, rule, self._site, named=True, optional=tls_optional)
        exchanger = Exchanger(0, peer.host, ())
        if wanted.level in DANE and not is_address(peer.host):
            name = f"{NAMED}{peer.host}:{port}"
            found = self._exchangers.of(name)
            if found is None:
                return LookUp(name)
            if found.problem:
                return Result(recipient, Verdict.TEMPORARY, found.status, found.problem)
            exchanger = found.hosts[0]
        policy = wanted.of(exchanger)
        if isinstance(policy, Refused):
            return self._refused(recipient, domain, wanted, [(exchanger, policy)])
        made = Peer(peer.host, port, policy.level)
        self._choose(made, domain, exchanger, policy)
        return made

    def _exchanger(self, recipient: str, domain: str, found: Found, *, tls_optional: bool) -> Way:
        # A host's name comes from the DNS: rules about hosts alone do not bind it.
        wanted = DomainPolicy(domain, self._routes.tls_rule(domain, domain), self._site, found.sts,
                              optional=tls_optional)
        policies: dict[Exchanger, LinePolicy] = {}
        refused: list[tuple[Exchanger, Refused]] = []
        for each in found.ordered():
            policy = wanted.of(each)
            if isinstance(policy, Refused):
                refused.append((each, policy))
            else:
                policies[each] = policy
        best = self._exchangers.best([*policies])
        if best is None:
            return self._refused(recipient, domain, wanted, refused)
        peer = Peer(best.host, self._port, policies[best].level)
        if self._routes.peer_limits:
            self._limit(domain, peer)
        self._choose(peer, domain, best, policies[best])
        return peer

    def limit_of(self, peer: str) -> PeerLimit | None:
        """What a peer may have, as `str` names it: by a line for its host, else by those for the
        domains that lead to it and to nobody else's."""
        if not self._routes.peer_limits:
            return None
        known = peer_named(peer)
        if known is None:
            return None
        return self._routes.limit(known.host.lower()) or self._limits.get((known.host, known.port))

    def _limit(self, domain: str, peer: Peer) -> None:
        """A line for a domain counts for the hosts of it: of several the strictest."""
        own = self._routes.limit(domain)
        place = peer.host, peer.port or self._port
        if own is None or self._routes.limit(peer.host.lower()) is not None:
            return
        before = self._limits.pop(place, own)
        while len(self._limits) >= NAMES_KNOWN:
            del self._limits[next(iter(self._limits))]
        both = [each.processes for each in (before, own) if each.processes]
        self._limits[place] = PeerLimit(min(both, default=0), max(before.pause_s, own.pause_s))

    def _choose(self, peer: Peer, domain: str, exchanger: Exchanger, policy: LinePolicy) -> None:
        while len(self._chosen) >= NAMES_KNOWN:  # of plans that were not asked about
            del self._chosen[next(iter(self._chosen))]
        self._chosen.setdefault(peer, {})[domain] = exchanger, policy

    def _refused(self, recipient: str, domain: str, wanted: DomainPolicy,
                 refused: Sequence[tuple[Exchanger, Refused]]) -> Result:
        """Nobody may have it: it waits, and a report counts it."""
        kind = "sts" if wanted.sts is not None and wanted.level not in DANE else "tlsa"
        for host, why in refused:
            self._note(TlsSession(host.host, self._port, level=wanted.level, result=why.result,
                                  reason=why.text), [domain], kind,
                       wanted.sts.lines if kind == "sts" and wanted.sts is not None else ())
        return Result(recipient, Verdict.TEMPORARY, "4.7.5",
                      f"no mail exchanger of {domain} may have its mail: {refused[0][1].text}")

    def addresses(self, peers: Iterable[Peer]) -> dict[str, Sequence[str]]:
        """Of those whose names were looked up."""
        found: dict[str, Sequence[str]] = {}
        for peer in peers:
            for exchanger, _ in self._chosen.get(peer, {}).values():
                if exchanger.addresses:
                    found[str(peer)] = exchanger.addresses
        return found

    def policies(self, peers: Iterable[Peer]) -> dict[str, dict[str, dict[str, Any]]]:
        """What lines to them need besides their level, by domain, where that is something; ends
        what `addresses` began."""
        found: dict[str, dict[str, dict[str, Any]]] = {}
        for peer in peers:
            rows = {domain: policy.row() for domain, (_, policy)
                    in self._chosen.get(peer, {}).items() if policy != LinePolicy(policy.level)}
            if rows:
                found[str(peer)] = rows
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

    def with_another(self, results: Iterable[Result], sender: str = "") -> set[str]:
        """Recipients that had no answer, and whose domain has a host that may give one."""
        return {each.recipient for each in results
                if each.verdict is Verdict.TEMPORARY and self._by_name(each.recipient, sender)
                and self._exchangers.another(split_address(each.recipient)[1])}

    def _by_name(self, recipient: str, sender: str) -> bool:
        domain = split_address(recipient)[1]
        return self._mx and self._smarthost is None and (
            self._routes.peer(domain, sender) is None)


def _never(recipient: str, status: str, text: str) -> Result:
    return Result(recipient, Verdict.PERMANENT, status, text)
