"""Who may do what at smtp.server: the settings, the routes and the networks that may relay.

Errors: ConfigError (file, line, key, reason, what is allowed).
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from omq.base import names
from omq.base.errors import ConfigError
from omq.base.settings import Settings
from omq.base.settings_file import FILE_NAME, conf_path
from omq.services.mail.mail_host import mail_hostname
from omq.services.mail.mail_message import Failure
from omq.services.mail.mailboxes import Mailboxes
from omq.services.mail.routes import Routes
from omq.services.mail.routes_file import load_routes

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Policy:
    """What the configuration says; replaced whole at a reload."""

    settings: Settings
    routes: Routes
    hostname: str
    networks: tuple[Network, ...]
    mailboxes: Mailboxes

    def may_relay(self, peer: str) -> bool:
        """Whether this client may send to anybody."""
        try:
            address = ipaddress.ip_address(peer.partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self.networks)


    def unreachable(self, address: str) -> Failure | None:
        """Why no delivery can reach this recipient; None when one can, of all that an alias names.
        """
        destinations, failures = self.routes.resolve(address)
        problem = ""
        for each in destinations:
            problem = self.mailboxes.problem(each.address) if each.queue == names.LOCAL else ""
            if not problem:
                return None
        return failures[0] if failures and not problem else Failure(address, "5.1.1", problem)


def load_policy(settings: Settings, conf_dir: Path, spool: Path) -> Policy:
    """What sessions may do, from omq.conf and routes.conf. ConfigError."""
    routes = load_routes(conf_dir)
    return Policy(settings, routes, mail_hostname(settings),
                  _networks(settings.smtp_relay_networks, conf_dir),
                  Mailboxes.of(settings, spool, routes))


def _networks(text: str, conf_dir: Path) -> tuple[Network, ...]:
    try:
        return tuple(ipaddress.ip_network(word) for word in text.split())
    except ValueError as error:
        raise ConfigError(file=conf_path(conf_dir, FILE_NAME), line=0, key="smtp_relay_networks",
                          reason=str(error), allowed="networks like 192.0.2.0/24") from error
