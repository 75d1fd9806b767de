"""Who may do what at smtp.server: the settings, the routes and the networks that may relay.

Errors: ConfigError (file, line, key, reason, what is allowed).
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from omq.base.errors import ConfigError
from omq.base.settings import Settings
from omq.base.settings_file import FILE_NAME, conf_path
from omq.services.mail.mail_host import mail_hostname
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

    def may_relay(self, peer: str) -> bool:
        """Whether this client may send to anybody."""
        try:
            address = ipaddress.ip_address(peer.partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self.networks)


def load_policy(settings: Settings, conf_dir: Path) -> Policy:
    """What sessions may do, from omq.conf and routes.conf. ConfigError."""
    return Policy(settings, load_routes(conf_dir), mail_hostname(settings),
                  _networks(settings.smtp_relay_networks, conf_dir))


def _networks(text: str, conf_dir: Path) -> tuple[Network, ...]:
    try:
        return tuple(ipaddress.ip_network(word) for word in text.split())
    except ValueError as error:
        raise ConfigError(file=conf_path(conf_dir, FILE_NAME), line=0, key="smtp_relay_networks",
                          reason=str(error), allowed="networks like 192.0.2.0/24") from error
