"""Addresses written anew: canonical and masquerade when a mail comes, generic when it goes.

    [rewriting]                                      of routes.conf
    headers = own                    whose headers: own (users, smtp_relay_networks, programs of
                                     this host), all, or none
    masquerade_domains = !dev.example.org, example.org
    masquerade_exceptions = root, mailer-daemon
    masquerade_classes, canonical_classes, sender_canonical_classes, recipient_canonical_classes

    [canonical_maps], [sender_canonical_maps], [recipient_canonical_maps], [generic_maps]
    name = source                    as in [recipient_maps]; a value is an address, or @domain,
                                     which keeps the local part

The classes are Postfix's: envelope_sender, envelope_recipient, header_sender, header_recipient.

Rules:
1. The maps for senders or recipients are asked, then [canonical_maps] about what came out, each
   once: what a map names is not looked up there again. Then the domain is masked.
2. Nothing of a mail changes but the bytes of an address that has another form now
   (omq.services.mail.header_addresses). Beyond ADDRESSES_MAX different ones in a header the rest
   of it stays as it is.
3. A map without an answer has the mail wait, whole: MapFailed; MapMissing where it is to be
   fetched first (omq.services.mail.maps).
4. A value is ASCII: a mail that needs no SMTPUTF8 does not begin to need it here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from omq.base.names import escape
from omq.services.mail.header_addresses import RECIPIENT_FIELDS, SENDER_FIELDS, addresses_in
from omq.services.mail.mail_message import address_problem, header_fields, split_address
from omq.services.mail.map_errors import MapFailed
from omq.services.mail.smtp_address import domain_problem, grammar_problem, plain_local

if TYPE_CHECKING:
    from omq.services.mail.maps import Maps

ADDRESSES_MAX: Final = 1000
"""Of one header: as many recipients as a mail may have."""


class Class(Enum):
    """Which addresses are meant."""

    ENVELOPE_SENDER = "envelope_sender"
    ENVELOPE_RECIPIENT = "envelope_recipient"
    HEADER_SENDER = "header_sender"
    HEADER_RECIPIENT = "header_recipient"


SENDERS: Final = frozenset((Class.ENVELOPE_SENDER, Class.HEADER_SENDER))
RECIPIENTS: Final = frozenset((Class.ENVELOPE_RECIPIENT, Class.HEADER_RECIPIENT))
Look = Callable[["Maps", str], tuple[str, ...] | None]
"""What a map has for a key. MapFailed, MapMissing."""


def asked(maps: Maps, key: str) -> tuple[str, ...] | None:
    """For who may wait."""
    return maps.ask(key)


def known(maps: Maps, key: str) -> tuple[str, ...] | None:
    """For who may not."""
    return maps.known(key)


def rewrite_problem(value: str) -> str:
    """Why nothing can be rewritten to this."""
    if value.startswith("@"):
        return "" if value.isascii() and not domain_problem(value[1:]) else "no domain follows @"
    if "@" not in value or " " in value:
        return "neither user@domain nor @domain"
    return address_problem(value, smtputf8=False) or grammar_problem(value) or ""


@dataclass(frozen=True, slots=True)
class Masquerade:
    """Hosts whose name is hidden behind their domain's. `domains` in order: the first that a domain
    is, or is below of, counts; with "!" it stays."""

    domains: tuple[str, ...] = ()
    exceptions: frozenset[str] = frozenset()  # users
    classes: frozenset[Class] = SENDERS | {Class.HEADER_RECIPIENT}

    def of(self, address: str, kind: Class) -> str:
        """The address as others see it."""
        local, domain = split_address(address)
        if kind not in self.classes or not domain or plain_local(local).lower() in self.exceptions:
            return address
        for each in self.domains:
            name = each.removeprefix("!")
            if domain == name or domain.endswith(f".{name}"):
                return address if domain == name or each != name else f"{local}@{name}"
        return address


@dataclass(frozen=True, slots=True)
class Rewriting:
    """What routes.conf says of it."""

    headers: str = "own"  # whose: own, all, none
    canonical: Maps | None = None
    sender: Maps | None = None
    recipient: Maps | None = None
    generic: Maps | None = None
    canonical_classes: frozenset[Class] = frozenset(Class)
    sender_classes: frozenset[Class] = SENDERS
    recipient_classes: frozenset[Class] = RECIPIENTS
    masquerade: Masquerade = field(default_factory=Masquerade)
    time_s: float = 100.0  # for all look-ups of a mail

    def __bool__(self) -> bool:
        return any(each is not None for each in (self.canonical, self.sender, self.recipient)
                   ) or bool(self.masquerade.domains)

    def close(self) -> None:
        """No more look-ups."""
        for each in (self.canonical, self.sender, self.recipient, self.generic):
            if each is not None:
                each.close()

    def of(self, address: str, kind: Class, look: Look) -> str:
        """An address of a mail that comes. MapFailed, MapMissing."""
        if not address:
            return address
        found = address
        if kind in self.sender_classes:
            found = _mapped(self.sender, found, look)
        if kind in self.recipient_classes:
            found = _mapped(self.recipient, found, look)
        if kind in self.canonical_classes:
            found = _mapped(self.canonical, found, look)
        return self.masquerade.of(found, kind)

    def outside(self, address: str, look: Look = asked) -> str:
        """An address of a mail that goes to another host. MapFailed."""
        return _mapped(self.generic, address, look) if address else address


def _mapped(maps: Maps | None, address: str, look: Look) -> str:
    local, domain = split_address(address)
    if maps is None or not domain:
        return address
    found = look(maps, f"{plain_local(local).lower()}@{domain}")
    if not found:
        return address
    if len(found) > 1:
        raise MapFailed(maps.names, f"{escape(address)!r} would be several addresses")
    value = found[0]
    return f"{local}{value}" if value.startswith("@") else value


def header_addresses(text: bytes, scan_bytes: int) -> dict[tuple[Class, str], None]:
    """The different addresses of a header, in their order, ADDRESSES_MAX at most."""
    found: dict[tuple[Class, str], None] = {}
    for kind, start, end in _fields(text, scan_bytes):
        for each in addresses_in(text[start:end]):
            if len(found) < ADDRESSES_MAX:
                found[kind, each.address] = None
    return found


def with_addresses(text: bytes, answers: Mapping[tuple[Class, str], str], scan_bytes: int) -> bytes:
    """The text with these in place of those of its header; the very same object without any."""
    pieces: list[bytes] = []
    at = 0
    for kind, start, end in _fields(text, scan_bytes):
        for each in addresses_in(text[start:end]):
            new = answers.get((kind, each.address), each.address)
            if new != each.address:
                pieces += [text[at : start + each.start], new.encode()]
                at = start + each.end
    return b"".join([*pieces, text[at:]]) if pieces else text


def _fields(text: bytes, scan_bytes: int) -> list[tuple[Class, int, int]]:
    found = []
    for name, start, end in header_fields(text, scan_bytes):
        if name in SENDER_FIELDS:
            found.append((Class.HEADER_SENDER, start, end))
        elif name in RECIPIENT_FIELDS:
            found.append((Class.HEADER_RECIPIENT, start, end))
    return found
