"""How the sending side of a channel says who it is, and knows who the other side is.

A password is in the file `channel_passwords`, a line "CHANNEL:user:password" each. A line
without TLS goes to this host alone, unless the channel says `plain = everywhere`: passwords and
messages would be read by others.

Errors: ConfigError (a file), BadChannel (a definition that would show a password).
"""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from omq.base.errors import BadChannel
from omq.base.settings import Settings
from omq.services.channel.definition import Channel
from omq.services.network.secret_file import read_secret, wrong
from omq.services.network.tls import client_context


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """Of one channel. `mechanism`: of SASL."""

    mechanism: str
    user: str
    password: str
    tls: ssl.SSLContext | None


def credentials(channel: Channel, settings: Settings, conf_dir: Path) -> Credentials:
    """Read anew for each connection: files may have changed. ConfigError, BadChannel."""
    user, password = channel.text("user"), ""
    if user:
        password = _password(channel, settings, conf_dir)
    tls = context_for_peers(settings, conf_dir) if channel.tls else None
    if tls is None and channel.text("plain") == "loopback" and not all(
            _loopback(host) for host, _ in channel.addresses):
        raise BadChannel(channel=channel.name, key="tls", reason="others could read the line",
                         allowed="tls=yes, a host that is this one, or plain=everywhere")
    shown = bool(settings.channel_tls_certificate) and tls is not None
    mechanism = "PLAIN" if user else "EXTERNAL" if shown else "ANONYMOUS"
    return Credentials(mechanism, user, password, tls)


def _password(channel: Channel, settings: Settings, conf_dir: Path) -> str:
    path, key = settings.channel_passwords, "channel_passwords"
    if not path:
        raise wrong(conf_dir, key, f"channel {channel.name} has a user, and no file is named",
                    "a file with CHANNEL:user:password")
    for line in read_secret(conf_dir, key, path).splitlines():
        name, _, rest = line.partition(":")
        user, _, password = rest.partition(":")
        if name == channel.name and user == channel.text("user"):
            return password
    raise wrong(conf_dir, key, f"{path} has no line {channel.name}:{channel.text('user')}:...",
                "a line CHANNEL:user:password")


def context_for_peers(settings: Settings, conf_dir: Path) -> ssl.SSLContext:
    """Verifies another instance by `channel_tls_ca_file`, and shows it our certificate.
    ConfigError."""
    context = client_context(settings, conf_dir, "channel_tls_ca_file", verify=True)
    if own := settings.channel_tls_certificate:
        read_secret(conf_dir, "channel_tls_certificate", own)
        try:
            context.load_cert_chain(own, password=lambda: b"")
        except (OSError, ValueError) as error:
            raise wrong(conf_dir, "channel_tls_certificate", f"{own} cannot be used: {error}",
                        "a PEM file with a certificate and its key without a password") from error
    return context


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
