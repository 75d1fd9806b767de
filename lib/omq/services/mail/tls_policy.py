"""How a line to one exchanger of a domain has to be secured, decided before it is opened.

The first that says something counts: [tls] of routes.conf, by the domain; DANE, where that or
`unix_tls` says so; MTA-STS, with `unix_mta_sts`; `unix_tls`. DANE that fails is never made good by
MTA-STS (RFC 8461 section 2).

    level       what the line needs
    none        nothing, and nothing is tried
    may         TLS where it is offered and works, else plain
    encrypt     TLS, whatever the certificate
    verify      a certificate for the host's name
    secure=P,P  a certificate for one of these patterns: the domain's name, whatever the host's
    dane        what TLSA records say, which travel with the mail
    testing     verify, and where that fails, as `may`: a domain that tests its policy of MTA-STS

A sender may say that TLS is optional (RFC 8689): then DANE of `unix_tls` and MTA-STS, which the
recipient's domain publishes, do not bind; [tls] and the other levels of `unix_tls`, which are this
host's own, do.

`dane` falls back to `encrypt` where no record is usable, and to what comes after it where there are
none; `dane-only` to nothing. Neither does where the DNS has no answer that can be trusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from omq.services.mail.dane import Tlsa

if TYPE_CHECKING:
    from omq.services.mail.exchanger import Exchanger
    from omq.services.mail.routes import TlsRule
    from omq.services.mail.sts_policy import StsPolicy

DANE: Final = ("dane", "dane-only")
SECURE: Final = "secure"
TESTING: Final = "testing"
NO_POLICY: Final = "no-policy-found"
USABLE: Final = "usable"
UNUSABLE: Final = "unusable"
UNCOUNTED: Final = ""
"""In place of a kind of policy: the line is in no report."""


@dataclass(frozen=True, slots=True)
class LinePolicy:
    """Of a line: its level as `Peer.tls` has it, "" for the site's; RFC 8460's kind of policy and
    its lines; TLSA records; `noted`: RFC 8460's word for what is known to be wrong already."""

    level: str = ""
    kind: str = NO_POLICY
    lines: tuple[str, ...] = ()
    tlsa: tuple[Tlsa, ...] = ()
    noted: str = ""

    def row(self) -> dict[str, Any]:
        """As it travels."""
        return {"kind": self.kind, "lines": self.lines, "tlsa": self.tlsa, "noted": self.noted}


def of_row(level: str, row: dict[str, Any] | None) -> LinePolicy:
    """The other way."""
    if row is None:
        return LinePolicy(level)
    records = tuple((usage, selector, matching, data)
                    for usage, selector, matching, data in row["tlsa"])
    return LinePolicy(level, row["kind"], tuple(row["lines"]), records, row["noted"])


@dataclass(frozen=True, slots=True)
class Refused:
    """No line to this host may carry the domain's mail: RFC 8460's word and ours."""

    result: str
    text: str


@dataclass(frozen=True, slots=True)
class DomainPolicy:
    """What counts for a domain's mail before its hosts are known."""

    domain: str
    rule: TlsRule | None
    site: str
    sts: StsPolicy | None = None
    named: bool = False  # the host is named by routes.conf, not by the DNS
    optional: bool = False  # the sender said so: what the domain publishes does not bind

    @property
    def level(self) -> str:
        """The rule's, else the site's."""
        if self.rule is not None:
            return self.rule.level
        return "may" if self.optional and self.site in DANE else self.site

    def of(self, host: Exchanger) -> LinePolicy | Refused:
        """For this host. One of mail whose sender said that TLS is optional has no kind: it is in
        no report (RFC 8460 section 3)."""
        found = self._of(host)
        if not self.optional or isinstance(found, Refused):
            return found
        return replace(found, kind=UNCOUNTED)

    def _of(self, host: Exchanger) -> LinePolicy | Refused:
        level = self.level
        if level in DANE:
            by_dane = self._by_dane(host)
            if by_dane is not None:
                return by_dane
            level = "may"
        sts = None if self.optional else self.sts
        if sts is not None and (self.rule is None or self.rule.level == "dane") and (
                level in ("none", "may", "encrypt")):
            return _by_sts(sts, host, self.domain)
        if self.rule is not None and level == "verify" and not self.named and (
                not self.rule.allows(host.host, self.domain)):
            return Refused("validation-failure",
                           f"{host.host} has a name that the TLS rule of {self.domain} does not "
                           "allow")
        if level == SECURE:
            patterns = self.rule.hosts if self.rule is not None else ()
            level = secure_level(self.domain, patterns or ((host.host,) if self.named else ()))
        return LinePolicy(level if self.rule is not None or level != self.site else "")

    def _by_dane(self, host: Exchanger) -> LinePolicy | Refused | None:
        """None: DANE has nothing to say."""
        if host.dane == USABLE:
            return LinePolicy("dane", "tlsa", _tlsa_lines(host.tlsa), host.tlsa)
        if host.dane not in ("", UNUSABLE):
            return Refused("dnssec-invalid", f"TLSA records of {host.host}: {host.dane}")
        if self.level == "dane-only":
            what = "usable" if host.dane else "signed"
            return Refused("dane-required", f"{host.host} has no {what} TLSA record, and the TLS "
                                            f"rule of {self.domain} is dane-only")
        if host.dane == UNUSABLE:
            return LinePolicy("encrypt", "tlsa")
        return None


def secure_level(domain: str, patterns: Sequence[str]) -> str:
    """The level `secure` with its patterns."""
    return f"{SECURE}={','.join(patterns or (domain, f'*.{domain}'))}"


def _by_sts(sts: StsPolicy, host: Exchanger, domain: str) -> LinePolicy | Refused:
    lines = tuple(sts.lines)
    if sts.allows(host.host):
        return LinePolicy("verify" if sts.mode == "enforce" else TESTING, "sts", lines)
    text = f"{host.host} is not an exchanger by the MTA-STS policy of {domain}"
    if sts.mode == "enforce":
        return Refused("validation-failure", text)
    return LinePolicy("may", "sts", lines, noted=text)


def _tlsa_lines(records: Sequence[Tlsa]) -> tuple[str, ...]:
    return tuple(f"{usage} {selector} {matching} {data[:128]}"
                 for usage, selector, matching, data in records)
