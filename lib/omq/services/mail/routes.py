"""Routes: which addresses are local, what aliases stand for, which queue a recipient goes to.

They are read from routes.conf (omq.services.mail.routes_file), once; the router alone resolves, so
that a recipient's way is decided in one place. Resolution of one address, first match wins: a queue
for this very address; an alias (its members are resolved in turn); for a local or relayed domain
what a map names, as an alias would; a local domain (a mailbox, or the rule for unknown users); a
queue for the domain, for a domain above it, for everything else.

Invariants: 1. resolution ends: an alias is expanded once per recipient, so a circle gives nothing,
a recipient with nothing is a failure, never silence, and what maps lead to is bounded; 2. an alias
that names itself keeps a copy for the mailbox of that name; 3. the order of destinations is that of
the file.

Errors: an address that leads nowhere is a Failure, reported to its sender. MapFailed and
MapMissing leave `resolve` where a map has no answer (omq.services.mail.maps).
"""

from __future__ import annotations

import pwd
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, TypeVar

from omq.base import names
from omq.base.errors import BadName
from omq.base.limits import MIB
from omq.services.delivery.rules import PeerLimit
from omq.services.mail.mail_message import Failure, split_address
from omq.services.mail.mailbox_rules import MailboxRules
from omq.services.mail.maildir import mailbox_name
from omq.services.mail.map_errors import MapFailed
from omq.services.mail.smtp_address import literal, plain_local

if TYPE_CHECKING:
    from omq.services.mail.content_checks import Checks
    from omq.services.mail.maps import Maps
    from omq.services.mail.rewriting import Rewriting

PORT_MAX: Final = 65535
MAPPED_MAX: Final = 100  # look-ups with a result, for one recipient
MAPPED_PLACES_MAX: Final = 1000
DEFAULT: Final = "*"
NOBODY: Final = "<>"
REPORT_ERROR: Final = "error"
POSTMASTER: Final = "postmaster"
LOOPBACK: Final = frozenset(("127.0.0.1", "::1"))

_Value = TypeVar("_Value")
Look = Callable[[str], tuple[str, ...] | None]
"""What the maps have for an address."""


def _nothing(key: str) -> None:
    del key


@dataclass(frozen=True, slots=True)
class Destination:
    """Where one recipient goes: a mailbox name on the local queue, an address on another one."""

    queue: str
    address: str
    original: str

    @property
    def key(self) -> tuple[str, str]:
        """Equal for what is the same recipient: domains have no case."""
        local, domain = split_address(self.address)
        local = plain_local(local)
        return self.queue, f"{local}@{domain}" if domain else local.lower()


@dataclass(frozen=True, slots=True)
class Peer:
    """A host that takes mail; port 0 is the general one of omq.conf. `tls`: how a line to it is
    secured, where that is not the site's way. A host that begins with "/" is a UNIX socket."""

    host: str
    port: int = 0
    tls: str = ""
    channel: str = "smtp"  # how it is reached: by SMTP, LMTP, or as a command of [pipes]

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        tls = f"/{self.tls}" if self.tls else ""
        return f"{host}:{self.port}{tls}"


@dataclass(frozen=True, slots=True)
class Pipe:
    """A command that takes mail: whose rights it has, its words."""

    user: str
    words: tuple[str, ...]


TLS_LEVELS: Final = ("none", "may", "encrypt", "verify", "secure", "dane", "dane-only")
_OF_LINES: Final = ("none", "may", "encrypt", "verify", "dane", "testing")
"""What a peer may have instead (omq.services.mail.tls_policy), besides secure=PATTERNS."""


@dataclass(frozen=True, slots=True)
class TlsRule:
    """How mail for a domain, or to a host, is secured; `hosts`: patterns of the names that a host
    may have then."""

    level: str
    hosts: tuple[str, ...] = ()

    def allows(self, host: str, domain: str) -> bool:
        """Whether this host may have mail for the domain: one that is to be verified must have a
        name that somebody other than the DNS knows."""
        patterns = self.hosts or (domain, f"*.{domain}")
        return self.level != "verify" or any(
            fnmatchcase(host.lower().rstrip("."), each) for each in patterns)


@dataclass(frozen=True, slots=True)
class Routes:
    """routes.conf, checked."""

    domains: tuple[str, ...] = ("localhost",)
    hostname: str = ""  # of this host: its postmaster is ours (RFC 5321 4.5.1), whatever `domains`
    literals: frozenset[str] = LOOPBACK  # addresses of this host: mail for user@[address] is local
    users: tuple[str, ...] = (DEFAULT,)
    users_listed: frozenset[str] = frozenset()  # in the files
    users_of_system: bool = False
    unknown_user: str = REPORT_ERROR
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    queues: Mapping[str, str] = field(default_factory=dict)
    peers: Mapping[str, Peer] = field(default_factory=dict)
    tls: Mapping[str, TlsRule] = field(default_factory=dict)
    pipes: Mapping[str, Pipe] = field(default_factory=dict)
    mailboxes: MailboxRules = field(default_factory=MailboxRules)
    senders: Mapping[str, frozenset[str]] = field(default_factory=dict)  # by login
    relayed: frozenset[str] = frozenset()  # domains of others that mail is taken for
    delimiter: str = ""  # between a user's name and what he puts after it
    hops_max: int = 50
    blind_copies_max: int = 100
    blind_bytes_max: int = 64 * MIB
    languages: Mapping[str, str] = field(default_factory=dict)  # of senders, for reports
    recipient_maps: Maps | None = None
    sender_maps: Maps | None = None
    rewriting: Rewriting | None = None
    checks: Checks | None = None
    sender_peers: Mapping[str, Peer] = field(default_factory=dict)  # by address or domain
    peer_limits: Mapping[str, PeerLimit] = field(default_factory=dict)  # by host or domain

    def close(self) -> None:
        """No more look-ups."""
        for each in (self.recipient_maps, self.sender_maps, self.rewriting):
            if each is not None:
                each.close()

    def is_local(self, address: str) -> bool:
        """Whether the address, or its bare name, is one of this host."""
        local, domain = split_address(address)
        return not domain or domain in self.domains or self._is_postmaster(local, domain) or (
            domain[0] == "[" and literal(domain) in self.literals)

    def _is_postmaster(self, local: str, domain: str) -> bool:
        return domain == self.hostname and plain_local(local).lower() == POSTMASTER

    def is_named(self, user: str) -> bool:
        """Whether a user has a mailbox by name: in a list, of this system, postmaster, or the one
        who has the mail of unknown users."""
        return (user in self.users or user in self.users_listed
                or user == self.unknown_user or user.partition("@")[0] == POSTMASTER
                or (self.users_of_system and _of_system(user)))

    def is_user(self, user: str) -> bool:
        """Whether a user has a mailbox, by name or by a pattern."""
        return (any(fnmatchcase(user, pattern) for pattern in self.users)
                or self.is_named(user))

    def accepts(self, address: str) -> bool:
        """Whether a stranger may send to it: local, or routed by its very address or an alias."""
        key = self._key(address)
        return (self.is_local(address) or key in self.queues or key in self.aliases
                or self._is_relayed(split_address(address)[1]))

    def _is_relayed(self, domain: str) -> bool:
        """Whether mail for the domain, or one above it, is taken from anybody."""
        found, rest = domain in self.relayed, domain
        while not found and rest:
            rest = rest.partition(".")[2]
            found = bool(rest) and f".{rest}" in self.relayed
        return found

    def resolve(self, recipient: str, look: Look = _nothing
                ) -> tuple[list[Destination], list[Failure]]:
        """Every destination of a recipient; failures name the recipient as it was given. `look`
        asks the maps; without it they are not asked. MapFailed, MapMissing."""
        found: dict[tuple[str, str], Destination] = {}
        failures: list[Failure] = []
        waiting, expanded, mapped = deque([recipient]), set[str](), 0
        while waiting:
            address = waiting.popleft()
            key = self._key(address)
            if key in expanded:
                continue
            members = self._members(key)
            if members is None and key not in self.queues:
                members = self._mapped(key, look)
                mapped += members is not None
                if mapped > MAPPED_MAX or len(waiting) + len(found) > MAPPED_PLACES_MAX:
                    # For now: what they lead to is not known, so it is not refused for good.
                    raise MapFailed("[recipient_maps]", "they lead on without end")
            if key in self.queues or members is None:
                self._place(address, recipient, found, failures)
            else:
                expanded.add(key)
                others = [each for each in members if self._key(each) != key]
                if len(others) < len(members):
                    self._place(address, recipient, found, failures)
                waiting.extendleft(reversed(others))
        if not found and not failures:
            failures.append(Failure(recipient, "5.4.6", "the alias leads back to itself"))
        return list(found.values()), failures[:1]

    def peer(self, domain: str, sender: str = "") -> Peer | None:
        """Where mail for a domain is sent: by the domain's own line, by the sender's, by the line
        for all; None where routes.conf names nobody."""
        found = _above(self.peers, domain)
        if found is None and self.sender_peers:
            found = of_address(self.sender_peers, sender)
        return self.peers.get(DEFAULT) if found is None else found

    def own_peer(self, domain: str) -> Peer | None:
        """The peer that a line for this domain, or one above it, names."""
        return _above(self.peers, domain)

    def limit(self, name: str) -> PeerLimit | None:
        """What a host, or the hosts of a domain, may have by a line for it, or one above it."""
        return _above(self.peer_limits, name)

    def tls_rule(self, domain: str, host: str) -> TlsRule | None:
        """How mail for a domain to this host is secured; None: the site's way."""
        return _above(self.tls, domain) or _above(self.tls, host) or self.tls.get(DEFAULT)

    def qualified(self, address: str) -> str:
        """The address with a domain, in lower case: the same for what is the same recipient (the
        local part keeps its case where it belongs to another host)."""
        local, domain = split_address(address)
        return (f"{plain_local(local)}@{domain}" if not self.is_local(address)
                else self._key(address))

    def _key(self, address: str) -> str:
        local, domain = split_address(address)
        if not domain or self._is_postmaster(local, domain) or (
                domain[0] == "[" and literal(domain) in self.literals):
            domain = self.domains[0]
        return f"{plain_local(local).lower()}@{domain}"

    def _members(self, key: str) -> tuple[str, ...] | None:
        local, domain = split_address(key)
        for name in dict.fromkeys((local, self.without_extension(local))):
            members = self.aliases.get(f"{name}@{domain}")
            if members is None and self.is_local(key):
                members = self.aliases.get(name)
            if members is not None:
                return members
        return None

    def _mapped(self, key: str, look: Look) -> tuple[str, ...] | None:
        """What a map has for the address, or for the user before the delimiter. Only domains of
        ours are asked about: a stranger's recipients elsewhere are not asked about."""
        local, domain = split_address(key)
        if not (self.is_local(key) or self._is_relayed(domain)):
            return None
        for name in dict.fromkeys((local, self.without_extension(local))):
            if (found := look(f"{name}@{domain}")) is not None:
                return found
        return None

    def without_extension(self, local: str) -> str:
        """The user's name in a local part (RFC 5233): what precedes the delimiter, if there
        is one after a first character."""
        at = local.find(self.delimiter, 1) if self.delimiter else -1
        return local[:at] if at > 0 else local

    def _place(self, address: str, original: str, found: dict[tuple[str, str], Destination],
               failures: list[Failure]) -> None:
        place = self._destination(address, original)
        if isinstance(place, Failure):
            failures.append(place)
        else:
            found.setdefault(place.key, place)

    def _destination(self, address: str, original: str) -> Destination | Failure:
        queue = self.queues.get(self._key(address))
        if queue is not None:
            return Destination(queue, address, original)
        if self.is_local(address):
            return self._mailbox(address, original)
        queue = _by_domain(self.queues, split_address(address)[1])
        return Destination(queue or names.UNIX, address, original)

    def _mailbox(self, address: str, original: str) -> Destination | Failure:
        local, domain = split_address(self._key(address))
        try:
            user = mailbox_name(local)
        except BadName:
            user = ""
        box = self.mailboxes.mailbox(user, domain)
        if user and not self.is_named(box):  # a user whose name has the delimiter is himself
            box = self.mailboxes.mailbox(self.without_extension(user), domain)
        if user and self.is_user(box):
            return Destination(names.LOCAL, box, original)
        if self.unknown_user != REPORT_ERROR:
            return Destination(names.LOCAL, self.unknown_user, original)
        return Failure(original, "5.1.1", "there is no such user here")


def _of_system(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def peer_of(text: str) -> Peer | None:
    """`host`, `host:port` or `[address]:port`; None when it is none of them."""
    host, port = text, "0"
    if not text.endswith("]"):
        front, colon, back = text.rpartition(":")
        host, port = (front, back) if colon else (text, "0")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if not host or not set(host).isdisjoint(" []" if bracketed else " []:"):
        return None
    if not port.isascii() or not port.isdigit() or int(port) > PORT_MAX:
        return None
    return Peer(host, int(port))


def peer_named(name: str) -> Peer | None:
    """A peer of SMTP or LMTP as `str` writes it."""
    text, _, tls = name.rpartition("/")
    if tls not in _OF_LINES and not tls.startswith("secure="):
        text, tls = name, ""
    host, _, port = text.rpartition(":")
    if host.startswith("/") and port.isdigit():
        return Peer(host, int(port), tls)
    found = peer_of(text)
    return Peer(found.host, found.port, tls) if found else None


def language_of(languages: Mapping[str, str], address: str) -> str:
    """The language of whom a report is for: of the address, its domain, one above it, or all; the
    null sender has that of all."""
    return (of_address(languages, address) if address else languages.get(DEFAULT)) or ""


def of_address(table: Mapping[str, _Value], address: str) -> _Value | None:
    """What stands for an address, its domain, one above it, or all; "<>" is the null sender's."""
    if not address:
        return table.get(NOBODY)
    local, domain = split_address(address)
    found = table.get(f"{plain_local(local).lower()}@{domain}")
    return _by_domain(table, domain) if found is None else found


def _by_domain(table: Mapping[str, _Value], domain: str) -> _Value | None:
    found = _above(table, domain)
    return table.get(DEFAULT) if found is None else found


def _above(table: Mapping[str, _Value], domain: str) -> _Value | None:
    """The table's value for the domain, or for one above it."""
    found, rest = table.get(domain), domain
    while found is None and rest:
        rest = rest.partition(".")[2]
        found = table.get(f".{rest}") if rest else None
    return found
