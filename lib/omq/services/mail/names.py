"""Which hosts take mail for a domain: MX, A and AAAA records, asked of the DNS by dnspython.

RFC 5321 section 5.1: the exchangers by preference; a domain without MX records is its own
exchanger, if it has an address. RFC 7505: a single MX with the name "." says that there is no mail.
Hosts that are this one, and those behind them in preference, are left out, so that mail does not
run in a circle.

Bounds: all questions for a domain have `dns_timeout_s` together; of thousands of records the
HOSTS_MAX most preferred count, of a host's addresses ADDRESSES_MAX. What was found is good for the
time that the DNS says, between TTL_MIN_S and `dns_ttl_max_s`. The DNS takes any bytes for a name:
what is no host name is left out, for `Peer` would read a "/" at its beginning as a UNIX socket.

No errors: `Found.problem` says what is wrong, and `permanent` whether for good. A name that does
not exist is for good; a server that does not answer, or wrongly, is for now.
"""

from __future__ import annotations

import ipaddress
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from omq.services.delivery.worker import PEER, RECIPIENTS, Report
from omq.services.mail.mail_host import mail_hostname
from omq.services.mail.smtp_address import domain_problem
from omq.services.mail.smtp_reply import Verdict
from omq.services.network.secret_file import wrong

if TYPE_CHECKING:
    import dns.resolver

    from omq.base.settings import Settings
    from omq.services.mail.routes import Routes

HOSTS_MAX: Final = 10
ADDRESSES_MAX: Final = 8
TTL_MIN_S: Final = 30.0
NAMES_KNOWN: Final = 10_000
DNS_PORT: Final = 53


@dataclass(frozen=True, slots=True)
class Exchanger:
    """One host; smaller preferences come first."""

    preference: int
    host: str
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """The hosts of a domain, or why there are none: RFC 3463 status and words."""

    hosts: tuple[Exchanger, ...] = ()
    ttl_s: float = 0.0
    status: str = ""
    problem: str = ""
    permanent: bool = False

    def ordered(self) -> list[Exchanger]:
        """By preference, equals by chance (RFC 5321 section 5.1)."""
        return sorted(self.hosts, key=lambda each: (each.preference, random.random()))


def check_names(settings: Settings, conf_dir: Path) -> None:
    """Whether names can be looked up, where that is wanted. ConfigError."""
    if not settings.unix_mx:
        return
    try:
        import dns.resolver
    except ImportError as error:
        raise wrong(conf_dir, "unix_mx", "the package dnspython is missing",
                    "no, or pip install 'omq-base[mail]'") from error
    try:
        _servers(settings.dns_servers)
        if not settings.dns_servers:
            dns.resolver.Resolver()
    except (ValueError, dns.resolver.NoResolverConfiguration) as error:
        raise wrong(conf_dir, "dns_servers", str(error), "addresses of name servers") from error


class NamesWorker:
    """The worker of the channel that looks names up; a peer is a domain."""

    def __init__(self, settings: Settings, routes: Routes) -> None:
        import dns.resolver

        self._resolver: dns.resolver.Resolver = dns.resolver.Resolver(
            configure=not settings.dns_servers)
        if settings.dns_servers:
            self._resolver.nameservers = _servers(settings.dns_servers)
        self._resolver.cache = dns.resolver.LRUCache(NAMES_KNOWN)
        self._timeout_s = float(settings.dns_timeout_s)
        self._ttl_max_s = float(settings.dns_ttl_max_s)
        self._kinds = {"any": ("AAAA", "A"), "ipv6": ("AAAA",), "ipv4": ("A",)}[settings.unix_ip]
        self._ours = mail_hostname(settings).lower()
        self._own_addresses = routes.literals
        self._deadline = 0.0

    def send(self, head: dict[str, Any], body: bytes) -> Report:
        """Look up `head["peer"]`: a result that says what was found, or one a recipient that it was
        not known for now."""
        del body
        domain: str = head[PEER]
        found = self.look_up(domain)
        if found.problem and not found.permanent:
            rows = [[each, Verdict.TEMPORARY.value, found.status, found.problem, ""]
                    for each in head[RECIPIENTS]]
            return Report(rows, reached=False, reason=found.problem)
        return Report([as_result(domain, found)])

    def idle(self) -> None:
        """There is nothing to give back."""

    def close(self) -> None:
        """Nor at the end."""

    def look_up(self, domain: str) -> Found:
        """The hosts that take mail for the domain."""
        import dns.exception
        import dns.resolver

        self._deadline = time.monotonic() + self._timeout_s
        try:
            return self._exchangers(domain)
        except dns.resolver.NXDOMAIN:
            return _never(TTL_MIN_S, "5.1.2", f"the domain {domain} does not exist")
        except (dns.exception.Timeout, dns.resolver.NoNameservers, OSError) as error:
            return Found(status="4.4.3", problem=f"looking up {domain} failed: {error}")
        except (dns.exception.DNSException, ValueError) as error:  # no name for the DNS
            return _never(TTL_MIN_S, "5.1.2", f"{domain} is no domain: {error}")

    def _exchangers(self, domain: str) -> Found:
        if problem := domain_problem(domain):
            return _never(TTL_MIN_S, "5.1.2", f"{domain} is no domain: {problem}")
        records, ttl_s = self._ask(domain, "MX")
        listed = [(each.preference, str(each.exchange).rstrip(".").lower()) for each in records]
        if len(listed) == 1 and not listed[0][1]:
            return _never(ttl_s, "5.1.10", f"{domain} takes no mail (null MX)")
        usable = [each for each in listed if each[1] and not domain_problem(each[1])]
        if listed and not usable:
            return _never(ttl_s, "5.4.4", f"no mail exchanger of {domain} has the name of a host")
        hosts = self._reached(sorted(usable)[:HOSTS_MAX] or [(0, domain.lower())])
        limit = min((each.preference for each in hosts if self._is_ours(each)), default=None)
        if limit is not None:
            hosts = [each for each in hosts if each.preference < limit]
            if not hosts:
                return _never(ttl_s, "5.4.6", f"mail for {domain} comes back to this host")
        hosts = [each for each in hosts if each.addresses]
        if not hosts:
            return _never(ttl_s, "5.4.4", f"no host that takes mail for {domain} has an address")
        return Found(tuple(hosts), ttl_s)

    def _reached(self, listed: Iterable[tuple[int, str]]) -> list[Exchanger]:
        """With their addresses. A host that is not known for now is left out while others are."""
        import dns.exception
        import dns.resolver

        hosts: list[Exchanger] = []
        failed: Exception | None = None
        for preference, host in listed:
            addresses: list[str] = []
            for kind in self._kinds:
                try:
                    addresses += [str(each) for each in self._ask(host, kind)[0]][:ADDRESSES_MAX]
                except dns.resolver.NXDOMAIN:
                    break
                except (dns.exception.Timeout, dns.resolver.NoNameservers) as error:
                    failed = error
            hosts.append(Exchanger(preference, host, tuple(addresses)))
        if failed is not None and not any(each.addresses for each in hosts):
            raise failed
        return hosts

    def _ask(self, name: str, kind: str) -> tuple[Sequence[Any], float]:
        """The records, none if there are none of this kind, and for how long they are good."""
        left_s = max(0.01, self._deadline - time.monotonic())
        answer = self._resolver.resolve(name, kind, raise_on_no_answer=False, search=False,
                                        lifetime=left_s)
        rrset = answer.rrset
        if rrset is None:
            return (), TTL_MIN_S
        return list(rrset), min(max(float(rrset.ttl), TTL_MIN_S), self._ttl_max_s)

    def _is_ours(self, host: Exchanger) -> bool:
        return host.host == self._ours or leads_here(host.addresses, self._own_addresses)


def leads_here(addresses: Iterable[str], own: frozenset[str]) -> bool:
    """Whether one of them is this host, of which `own` are addresses. Anybody may give his
    exchanger an address that leads back here: all of 127.0.0.0/8, not those alone that are named
    as this host's, and the one that means none."""
    listed = tuple(addresses)
    return not own.isdisjoint(listed) or (
        any(map(_within_host, own)) and any(map(_within_host, listed)))


def _within_host(text: str) -> bool:
    """Whether this address never leaves the host that asks for it."""
    address = ipaddress.ip_address(text)
    inner = getattr(address, "ipv4_mapped", None) or address
    return bool(inner.is_loopback or inner.is_unspecified)


def _never(ttl_s: float, status: str, problem: str) -> Found:
    return Found((), ttl_s, status, problem, permanent=True)


def _servers(text: str) -> list[Any]:
    """Name servers: addresses, with a port behind it where it is another one. ValueError."""
    import dns.nameserver

    found = []
    for word in text.split():
        host, _, port = word.rpartition(":") if word.count(":") == 1 or "]" in word else (
            word, "", "")
        address = str(ipaddress.ip_address((host or word).strip("[]")))
        found.append(dns.nameserver.Do53Nameserver(address, int(port or DNS_PORT)))
    return found


def as_result(domain: str, found: Found) -> dict[str, Any]:
    """As it travels."""
    return {"domain": domain, "ttl_s": found.ttl_s, "status": found.status,
            "problem": found.problem, "permanent": found.permanent,
            "hosts": [[each.preference, each.host, each.addresses] for each in found.hosts]}


def of_result(row: dict[str, Any]) -> Found:
    """The other way."""
    hosts = tuple(Exchanger(preference, host, tuple(addresses))
                  for preference, host, addresses in row["hosts"])
    return Found(hosts, row["ttl_s"], row["status"], row["problem"], row["permanent"])
