"""Who may do what at smtp.server: settings, routes, networks that may relay, certificate, users.

Errors: ConfigError (file, line, key, reason, what is allowed).
"""

from __future__ import annotations

import ipaddress
import ssl
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from omq.base import names
from omq.base.errors import ConfigError
from omq.base.settings import Settings
from omq.base.settings_file import FILE_NAME, conf_path
from omq.services.mail.mail_host import mail_hostname
from omq.services.mail.mail_message import Failure
from omq.services.mail.mailboxes import Mailboxes
from omq.services.mail.peer_security import load_security
from omq.services.mail.recipient_probes import Probes
from omq.services.mail.routes import Destination, Peer, Routes, peer_of
from omq.services.mail.routes_file import load_routes
from omq.services.network.password_file import Users, load_users
from omq.services.network.secret_file import wrong
from omq.services.network.tls import server_context

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolved = tuple[list[Destination], list[Failure]]
RECIPIENTS_KNOWN_MAX: Final = 1000
"""Recipients that are remembered, each with one destination at most."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What the configuration says; replaced whole at a reload."""

    settings: Settings
    routes: Routes
    hostname: str
    networks: tuple[Network, ...]
    mailboxes: Mailboxes
    tls: ssl.SSLContext | None = None  # None: not offered
    users: Users | None = None
    filter: Peer | None = None  # that is asked about each text before it is taken
    probes: Probes | None = None  # None: recipients are not verified at the next host
    known: dict[str, tuple[bool, Resolved]] = field(default_factory=dict, compare=False)

    def may_relay(self, peer: str) -> bool:
        """Whether this client may send to anybody."""
        try:
            address = ipaddress.ip_address(peer.partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self.networks)

    def resolved(self, address: str) -> tuple[bool, Resolved]:
        """Whether strangers may send to this recipient, and where its mail goes by `routes`. What
        they alone decide is remembered: users of the system come and go without a reload. Lists
        are not: after a delimiter a stranger finds names for one without end. Maps have a memory
        of their own. MapMissing, MapFailed."""
        found = self.known.get(address)
        if found is None:
            maps = self.routes.recipient_maps
            found = self.routes.accepts(address), (
                self.routes.resolve(address, maps.known) if maps else self.routes.resolve(address))
            if not (maps or self.routes.users_of_system) and len(found[1][0]) <= 1:
                if len(self.known) >= RECIPIENTS_KNOWN_MAX:
                    self.known.clear()
                self.known[address] = found
        return found

    def unreachable(self, address: str, resolved: Resolved, size: int = 0,
                    promised: list[str] | None = None) -> Failure | None:
        """Why no delivery can reach this recipient, as `routes` resolve it, or none that has room
        for `size` bytes; None when one can, of all that an alias names. `promised`: the mailboxes
        that are to be made for him are added to it."""
        destinations, failures = resolved
        found: tuple[str, str] | None = None
        for each in destinations:
            if each.queue != names.LOCAL:
                return None
            problem, new = self.mailboxes.promise(each.address, time.monotonic())
            if new and promised is not None:
                promised.append(each.address)
            found = ("5.1.1", problem) if problem else self.mailboxes.full(each.address, size)
            if found is None:
                return None
        return failures[0] if found is None else Failure(address, *found)


def load_policy(settings: Settings, conf_dir: Path, spool: Path) -> Policy:
    """What sessions may do, from omq.conf and routes.conf. ConfigError."""
    routes = load_routes(conf_dir, mail_hostname(settings))
    try:
        return _checked(settings, conf_dir, spool, routes)
    except BaseException:
        routes.close()
        raise


def _checked(settings: Settings, conf_dir: Path, spool: Path, routes: Routes) -> Policy:
    hostname, tls = mail_hostname(settings), server_context(settings, conf_dir, "smtp")
    if tls is None and settings.smtp_starttls == "require":
        raise wrong(conf_dir, "smtp_tls_certificate", "it is empty, and TLS is asked for",
                    "a PEM file")
    users = load_users(conf_dir, settings.submission_users) if settings.submission_users else None
    for key in ("submission_port", "submissions_port"):
        if getattr(settings, key) >= 0 and (tls is None or users is None):
            raise wrong(conf_dir, key, "passwords need TLS, and a file of users",
                        "-1, or smtp_tls_certificate and submission_users set")
    asked = peer_of(settings.smtp_filter) if settings.smtp_filter else None
    if settings.smtp_filter and (asked is None or not asked.port):
        raise wrong(conf_dir, "smtp_filter", "this is not a host and port", "host:port, or nothing")
    if asked is not None and settings.smtp_filter_return_port < 0:
        raise wrong(conf_dir, "smtp_filter_return_port", "the filter could give nothing back",
                    "a port of this host, which the filter must know")
    return Policy(settings, routes, hostname,
                  _networks(settings.smtp_relay_networks, conf_dir),
                  Mailboxes.of(settings, spool, routes), tls, users, asked,
                  _probes(settings, conf_dir, routes))


def _probes(settings: Settings, conf_dir: Path, routes: Routes) -> Probes | None:
    """Without passwords: smtp.server has no business with those of unix.out."""
    if not settings.smtp_verify:
        return None
    return Probes(settings, routes,
                  load_security(replace(settings, unix_auth_file=""), conf_dir, routes))


def _networks(text: str, conf_dir: Path) -> tuple[Network, ...]:
    try:
        return tuple(ipaddress.ip_network(word) for word in text.split())
    except ValueError as error:
        raise ConfigError(file=conf_path(conf_dir, FILE_NAME), line=0, key="smtp_relay_networks",
                          reason=str(error), allowed="networks like 192.0.2.0/24") from error
