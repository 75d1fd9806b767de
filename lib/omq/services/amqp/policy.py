"""Who may do what at amqp.server: settings, certificate, users, and the rights of their accounts.

A user is an account of this host, whoever has checked the password: authority.conf says of it what
it says of a local program's user, and nothing is configured twice. The spool's owner and root are
no users here: a password must not open everything.

Replaced whole at a reload. Errors: ConfigError (file, line, key, reason, what is allowed).
"""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from omq.base.authority import Authority, load_authority
from omq.base.settings import Settings
from omq.services.network.accounts import Account, account_of
from omq.services.network.password_file import Users, load_users
from omq.services.network.secret_file import wrong
from omq.services.network.tls import server_context, verify_clients

PLAIN, EXTERNAL, ANONYMOUS = "PLAIN", "EXTERNAL", "ANONYMOUS"


@dataclass(frozen=True, slots=True)
class Policy:
    """See the module."""

    settings: Settings
    authority: Authority
    tls: ssl.SSLContext | None
    users: Users | None

    def mechanisms(self, *, certificate: bool) -> tuple[str, ...]:
        """What a connection is offered; `certificate`: its client has shown one that is good."""
        return (*((EXTERNAL,) if certificate else ()), *((PLAIN,) if self.users else ()),
                *((ANONYMOUS,) if self.settings.amqp_anonymous_user else ()))

    def account(self, name: str) -> Account | None:
        """See account_of."""
        return account_of(name, self.authority)

    def knows(self, user: Account, mechanism: str) -> bool:
        """Whether somebody who came in that way would be let in again; a certificate is asked for
        at its handshake alone."""
        if mechanism == PLAIN:
            return self.users is not None and user.name in self.users.hashes
        if mechanism == ANONYMOUS:
            return user.name == self.settings.amqp_anonymous_user
        return bool(self.settings.amqp_tls_ca_file)

    def allows(self, user: Account, action: str, queues: tuple[str, ...]) -> bool:
        """Whether the user may do this on all of these queues."""
        return all(self.authority.allows(action, queue, user.uid, user.gids) for queue in queues)


def load_policy(settings: Settings, conf_dir: Path, owner_uid: int) -> Policy:
    """Of omq.conf and authority.conf. ConfigError."""
    plain = settings.amqp_listen_port >= 0
    if plain and settings.amqp_plain == "loopback" and not _loopback(settings.amqp_listen_host):
        raise wrong(conf_dir, "amqp_listen_port", "others could read what crosses it",
                    "-1, or amqp_listen_host = 127.0.0.1, or amqp_plain = everywhere")
    tls = _context(settings, conf_dir)
    if settings.amqps_listen_port >= 0 and tls is None:
        raise wrong(conf_dir, "amqps_listen_port", "TLS needs a certificate",
                    "-1, or amqp_tls_certificate set")
    users = (load_users(conf_dir, settings.amqp_users, "amqp_users", "omq-base[amqp]")
             if settings.amqp_users else None)
    policy = Policy(settings, load_authority(conf_dir, owner_uid=owner_uid), tls, users)
    anonymous = settings.amqp_anonymous_user
    if anonymous and policy.account(anonymous) is None:
        raise wrong(conf_dir, "amqp_anonymous_user", f"{anonymous} is not an account of this host, "
                    "or the owner of the spool, or root", "another account, or nothing")
    return policy


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _context(settings: Settings, conf_dir: Path) -> ssl.SSLContext | None:
    context = server_context(settings, conf_dir, "amqp")
    if context is not None and settings.amqp_tls_ca_file:
        verify_clients(context, settings, conf_dir, ssl.CERT_OPTIONAL)
    return context
