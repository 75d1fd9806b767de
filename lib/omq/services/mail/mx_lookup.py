"""Which hosts take mail for a domain: MX, A and AAAA records, asked of the DNS by dnspython.

RFC 5321 section 5.1: the exchangers by preference; a domain without MX records is its own
exchanger, if it has an address. RFC 7505: a single MX with the name "." says that there is no mail.
Hosts that are this one, and those after them in preference, are left out, so that mail does not
run in a circle.

Bounds: all questions for a domain have `dns_timeout_s` together; of thousands of records the
HOSTS_MAX most preferred count, of a host's addresses ADDRESSES_MAX. What was found is good for the
time that the DNS says, between TTL_MIN_S and `dns_ttl_max_s`. The DNS takes any bytes for a name:
what is not a host name is left out, for `Peer` would read a "/" at its beginning as a UNIX socket.

With `dns_validates` the AD bit of an answer counts, for the name servers verify signatures and the
way to them is safe. Then TLSA records are asked of each exchanger of a domain whose mail is to be
secured by DANE, if its MX records and its addresses are signed (RFC 7672 section 2.2). A question
for TLSA that has no answer is not an answer that there are none: such a host is not used.

A domain "=host:port" is a host that routes.conf names, of which the same is asked but for MX.

No errors: `Found.problem` says what is wrong, and `permanent` whether for good. A name that does
not exist is for good; a server that does not answer, or wrongly, is for now.
"""

from __future__ import annotations

import ipaddress
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from omq.services.delivery.worker import PEER, RECIPIENTS, Report
from omq.services.mail.dane import usable
from omq.services.mail.exchanger import Exchanger
from omq.services.mail.mail_host import mail_hostname
from omq.services.mail.smtp_address import domain_problem
from omq.services.mail.smtp_reply import Verdict
from omq.services.mail.sts_policy import StsPolicy
from omq.services.mail.tls_policy import DANE, UNUSABLE, USABLE
from omq.services.network.secret_file import wrong

if TYPE_CHECKING:
    import dns.resolver

    from omq.base.settings import Settings
    from omq.services.mail.routes import Routes
    from omq.services.mail.sts_domains import StsDomains

HOSTS_MAX: Final = 10
ADDRESSES_MAX: Final = 8
TTL_MIN_S: Final = 30.0
NAMES_KNOWN: Final = 10_000
DNS_PORT: Final = 53
NAMED: Final = "="
"""Before a host that is not looked up by MX records."""
_EDNS_BYTES: Final = 1232
_REASON_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class _Answer:
    """Of one question: `secure`: signed, and verified by the name server."""

    records: Sequence[Any]
    ttl_s: float
    secure: bool
    name: str  # where aliases led


@dataclass(frozen=True, slots=True)
class Found:
    """The hosts of a domain, or why there are none: RFC 3463 status and words."""

    hosts: tuple[Exchanger, ...] = ()
    ttl_s: float = 0.0
    status: str = ""
    problem: str = ""
    permanent: bool = False
    sts: StsPolicy | None = None

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

    def __init__(self, settings: Settings, routes: Routes, sts: StsDomains | None = None) -> None:
        import dns.flags
        import dns.resolver

        self._resolver: dns.resolver.Resolver = dns.resolver.Resolver(
            configure=not settings.dns_servers)
        if settings.dns_servers:
            self._resolver.nameservers = _servers(settings.dns_servers)
        self._resolver.cache = dns.resolver.LRUCache(NAMES_KNOWN)
        self._validates = settings.dns_validates
        if self._validates:
            self._resolver.use_edns(0, dns.flags.DO, _EDNS_BYTES)
            self._resolver.flags = dns.flags.RD | dns.flags.AD
        self._routes, self._site, self._port = routes, settings.unix_tls, settings.unix_port
        self._sts = sts
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
        """The end."""
        if self._sts is not None:
            self._sts.close()

    def look_up(self, domain: str) -> Found:
        """The hosts that take mail for the domain."""
        import dns.exception
        import dns.resolver

        self._deadline = time.monotonic() + self._timeout_s
        try:
            if domain.startswith(NAMED):
                return self._host(domain.removeprefix(NAMED))
            found = self._exchangers(domain)
            if self._sts is not None and found.hosts and self._may_have_sts(domain):
                # Afterwards: no answer about a policy holds up what is known of the hosts.
                found = replace(found, sts=self._sts.of(domain.lower(), self._texts,
                                                        self._addresses))
            return found
        except dns.resolver.NXDOMAIN:
            return _never(TTL_MIN_S, "5.1.2", f"the domain {domain} does not exist")
        except (dns.exception.Timeout, dns.resolver.NoNameservers, OSError) as error:
            return Found(status="4.4.3", problem=f"looking up {domain} failed: {error}")
        except (dns.exception.DNSException, ValueError) as error:  # no name for the DNS
            return _never(TTL_MIN_S, "5.1.2", f"{domain} is not a domain: {error}")

    def texts(self, name: str) -> list[bytes] | None:
        """The TXT records of a name, none where there are none; None: there was no answer."""
        self._deadline = time.monotonic() + self._timeout_s
        return self._texts(name)

    def _exchangers(self, domain: str) -> Found:
        if problem := domain_problem(domain):
            return _never(TTL_MIN_S, "5.1.2", f"{domain} is not a domain: {problem}")
        answer = self._ask(domain, "MX")
        records, ttl_s = answer.records, answer.ttl_s
        listed = [(each.preference, str(each.exchange).rstrip(".").lower()) for each in records]
        if len(listed) == 1 and not listed[0][1]:
            return _never(ttl_s, "5.1.10", f"{domain} takes no mail (null MX)")
        named = [each for each in listed if each[1] and not domain_problem(each[1])]
        if listed and not named:
            return _never(ttl_s, "5.4.4", f"no mail exchanger of {domain} has the name of a host")
        wanted = answer.secure and self._level(domain) in DANE
        hosts = self._reached(sorted(named)[:HOSTS_MAX] or [(0, domain.lower())],
                              self._port if wanted else 0)
        limit = min((each.preference for each in hosts if self._is_ours(each)), default=None)
        if limit is not None:
            hosts = [each for each in hosts if each.preference < limit]
            if not hosts:
                return _never(ttl_s, "5.4.6", f"mail for {domain} comes back to this host")
        hosts = [each for each in hosts if each.addresses]
        if not hosts:
            return _never(ttl_s, "5.4.4", f"no host that takes mail for {domain} has an address")
        return Found(tuple(hosts), ttl_s)

    def _host(self, name: str) -> Found:
        """A host that routes.conf names, host:port."""
        host, _, port = name.rpartition(":")
        hosts = self._reached([(0, host)], int(port))
        if not hosts[0].addresses:
            return Found(status="4.4.4", problem=f"{host} has no address")
        return Found(tuple(hosts), TTL_MIN_S)

    def _reached(self, listed: Iterable[tuple[int, str]], port: int = 0) -> list[Exchanger]:
        """With their addresses; with a port, what DANE says of it. A host that is not known for now
        is left out while others are."""
        import dns.exception
        import dns.resolver

        hosts: list[Exchanger] = []
        failed: Exception | None = None
        for preference, host in listed:
            addresses: list[str] = []
            signed, led = True, host
            for kind in self._kinds:
                try:
                    answer = self._ask(host, kind)
                    addresses += [str(each) for each in answer.records][:ADDRESSES_MAX]
                    signed = signed and answer.secure
                    led = answer.name if answer.records else led
                except dns.resolver.NXDOMAIN:
                    break
                except (dns.exception.Timeout, dns.resolver.NoNameservers) as error:
                    failed = error
            found = Exchanger(preference, host, tuple(addresses))
            hosts.append(self._with_tlsa(found, led, port) if port and signed and addresses
                         else found)
        if failed is not None and not any(each.addresses for each in hosts):
            raise failed
        return hosts

    def _with_tlsa(self, host: Exchanger, led: str, port: int) -> Exchanger:
        """With its TLSA records, of where its aliases lead or else of its own name (RFC 7672
        section 2.2.2)."""
        import dns.exception
        import dns.resolver

        for name in dict.fromkeys((led, host.host)):
            try:
                answer = self._ask(f"_{port}._tcp.{name}", "TLSA")
            except dns.resolver.NXDOMAIN:
                continue
            except (dns.exception.DNSException, OSError) as error:
                return replace(host, dane=f"no answer that can be trusted: {error}"[:_REASON_MAX])
            if answer.records and answer.secure:
                counting = usable((each.usage, each.selector, each.mtype, each.cert)
                                     for each in answer.records)
                return replace(host, dane=USABLE if counting else UNUSABLE, tlsa=counting)
        return host

    def _level(self, domain: str) -> str:
        rule = self._routes.tls_rule(domain, domain)
        return rule.level if rule is not None else self._site

    def _may_have_sts(self, domain: str) -> bool:
        """Whether a policy could change anything."""
        rule = self._routes.tls_rule(domain, domain)
        return not domain.startswith("[") and (rule is None or rule.level == "dane")

    def _texts(self, name: str) -> list[bytes] | None:
        import dns.exception
        import dns.resolver

        try:
            return [b"".join(each.strings) for each in self._ask(name, "TXT").records]
        except (dns.resolver.NXDOMAIN, ValueError):
            return []
        except (dns.exception.DNSException, OSError):
            return None

    def _addresses(self, host: str) -> list[str]:
        import dns.exception

        found: list[str] = []
        for kind in self._kinds:
            try:
                found += [str(each) for each in self._ask(host, kind).records][:ADDRESSES_MAX]
            except (dns.exception.DNSException, OSError):
                continue  # of the other kind there may be some; without any, it has no address
        return found

    def _ask(self, name: str, kind: str) -> _Answer:
        """The records, none if there are none of this kind, and for how long they are good."""
        import dns.flags

        left_s = max(0.01, self._deadline - time.monotonic())
        answer = self._resolver.resolve(name, kind, raise_on_no_answer=False, search=False,
                                        lifetime=left_s)
        secure = self._validates and bool(answer.response.flags & dns.flags.AD)
        led = str(answer.canonical_name).rstrip(".").lower()
        rrset = answer.rrset
        if rrset is None:
            return _Answer((), TTL_MIN_S, secure, led)
        ttl_s = min(max(float(rrset.ttl), TTL_MIN_S), self._ttl_max_s)
        return _Answer(list(rrset), ttl_s, secure, led)

    def _is_ours(self, host: Exchanger) -> bool:
        return host.host == self._ours or leads_here(host.addresses, self._own_addresses)


def leads_here(addresses: Iterable[str], own: frozenset[str]) -> bool:
    """Whether one of them is this host, of which `own` are addresses. Anybody may give his
    exchanger an address that leads back here: all of 127.0.0.0/8, not those alone that are named
    as this host's, and the one that means none."""
    listed = tuple(addresses)
    return not own.isdisjoint(listed) or (
        any(map(_within_host, own)) and any(map(_within_host, listed)))


def is_address(host: str) -> bool:
    """Whether a host is named by its address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _within_host(text: str) -> bool:
    """Whether this address never leaves the host that asks for it."""
    address = ipaddress.ip_address(text)
    inner = getattr(address, "ipv4_mapped", None) or address
    return bool(inner.is_loopback or inner.is_unspecified)


def _never(ttl_s: float, status: str, problem: str) -> Found:
    return Found((), ttl_s, status, problem, permanent=True)


def _servers(text: str) -> list[Any]:
    """Name servers: addresses, with a port after it where it is another one. ValueError."""
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
            "hosts": [[each.preference, each.host, each.addresses, each.dane, each.tlsa]
                      for each in found.hosts],
            "sts": found.sts and [found.sts.identity, found.sts.mode, found.sts.mx,
                                  found.sts.max_age_s]}


def of_result(row: dict[str, Any]) -> Found:
    """The other way."""
    hosts = tuple(Exchanger(preference, host, tuple(addresses), by_dane,
                            tuple((usage, selector, matching, data)
                                  for usage, selector, matching, data in tlsa))
                  for preference, host, addresses, by_dane, tlsa in row["hosts"])
    sts = row["sts"]
    policy = StsPolicy(sts[0], sts[1], tuple(sts[2]), sts[3]) if sts else None
    return Found(hosts, row["ttl_s"], row["status"], row["problem"], row["permanent"], policy)
