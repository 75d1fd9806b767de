"""Who may come in to omq-web: settings, certificate, users, tokens, proxy, rights of accounts.

Replaced whole at a reload. Errors: ConfigError (file, line, key, reason, what is allowed).
"""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hmac import compare_digest
from pathlib import Path

from omq.base.access import user_name
from omq.base.authority import Authority, load_authority
from omq.base.settings import Settings
from omq.cli.web.caller import Caller
from omq.cli.web.tokens import Token, digest, load_tokens
from omq.services.network.accounts import account_of
from omq.services.network.password_file import Users, load_users
from omq.services.network.secret_file import read_secret, wrong
from omq.services.network.tls import server_context

_LOCAL = "localhost"


@dataclass(frozen=True, slots=True, repr=False)
class Policy:
    """See the module. It has no repr: a secret belongs in no log."""

    settings: Settings
    authority: Authority
    tls: ssl.SSLContext | None
    users: Users | None
    tokens: Mapping[str, Token]
    proxy_secret: bytes  # empty: no proxy is believed
    hosts: frozenset[str]

    def caller(self, name: str, peer: str, token: Token | None = None) -> Caller | None:
        """Who is after a name that was proved; None as account_of, and not for an event loop."""
        found = account_of(name, self.authority)
        if found is None:
            return None
        return Caller(name, found.uid, found.gids, self.authority.role(found.uid, found.gids),
                      self.authority, peer, "" if token is None else token.name,
                      None if token is None else token.scopes)

    def local(self, uid: int, gid: int, peer: str) -> Caller | None:
        """Who the kernel says is at the Unix socket: also the owner and root, for nobody can guess
        that. It may ask a directory: not for an event loop."""
        name = user_name(uid)
        try:
            gids = frozenset(os.getgrouplist(name, gid))
        except (KeyError, OSError):  # no account of this host
            gids = frozenset({gid})
        return Caller(name, uid, gids, self.authority.role(uid, gids), self.authority, peer)

    def token(self, text: str) -> Token | None:
        """The token, if it is known and its time is not over."""
        found = self.tokens.get(digest(text))
        return None if found is None or found.over(datetime.now(UTC)) else found

    def from_proxy(self, secret: str) -> bool:
        """Whether a request comes through our proxy."""
        return bool(self.proxy_secret) and compare_digest(
            secret.encode("utf-8", "surrogateescape"), self.proxy_secret)

    def knows_host(self, host: str) -> bool:
        """Whether a browser may call us by this name (the header Host): a page of somebody else's
        whose name was led to our address is not answered."""
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        name = name.strip("[]").lower()
        return name in self.hosts or _address(name)


def load_policy(settings: Settings, conf_dir: Path, owner_uid: int) -> Policy:
    """Of omq.conf and authority.conf. ConfigError."""
    tls = server_context(settings, conf_dir, "web")
    if tls is None and settings.web_plain == "loopback" and not _loopback(settings.web_listen_host):
        raise wrong(conf_dir, "web_listen_host", "others could read what crosses it",
                    "127.0.0.1, or web_tls_certificate set, or web_plain = everywhere")
    users = (load_users(conf_dir, settings.web_users, "web_users", "omq-suite[web]")
             if settings.web_users else None)
    tokens = load_tokens(conf_dir, settings.web_tokens) if settings.web_tokens else {}
    secret = b""
    if settings.web_proxy_secret:
        secret = read_secret(conf_dir, "web_proxy_secret", settings.web_proxy_secret
                             ).strip().encode()
        if len(secret) < 16:
            raise wrong(conf_dir, "web_proxy_secret", "it can be guessed", "16 bytes or more")
    if settings.web_proxy_user_header and not secret:
        raise wrong(conf_dir, "web_proxy_user_header", "anybody could send it",
                    "nothing, or web_proxy_secret set")
    named = {socket.gethostname().lower(), _LOCAL}
    return Policy(settings, load_authority(conf_dir, owner_uid=owner_uid), tls, users, tokens,
                  secret, frozenset(named | set(settings.web_hosts.lower().split())))


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == _LOCAL


def _address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
