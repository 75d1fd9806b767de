"""How lines to peers are secured, from omq.conf, routes.conf and the file of passwords.

    # a comment, on a line of its own           unix_auth_file
    smart.example.org:587 alice:secret
    other.example.org bob:more secret

Errors: ConfigError; what a line to a peer would meet later is found here.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Final

from omq.base.errors import ConfigError
from omq.services.mail.peer_line import Security
from omq.services.mail.routes import peer_of
from omq.services.mail.tls_policy import DANE
from omq.services.network.secret_file import read_secret, wrong
from omq.services.network.tls import client_context

if TYPE_CHECKING:
    import ssl

    from omq.base.settings import Settings
    from omq.services.mail.routes import Routes

_KEY: Final = "unix_auth_file"
_LINE: Final = "host name:password, or host:port name:password"


def load_security(settings: Settings, conf_dir: Path, routes: Routes) -> Security:
    """What is set. ConfigError."""
    logins = _logins(settings, conf_dir, routes)
    levels = {each.level for each in routes.tls.values()} | {settings.unix_tls}
    if levels & set(DANE):
        _check_dane(settings, conf_dir)
        levels |= {"may"}
    if logins or settings.unix_mta_sts:
        levels |= {"verify", "may"}
    contexts = {each: client_context(settings, conf_dir, "unix_tls_ca_file",
                                     verify=each != "encrypt")
                for each, names in (("encrypt", {"may", "encrypt"}), ("verify", {"verify"}),
                                    ("secure", {"secure"}))
                if levels & names}
    if "secure" in contexts:
        contexts["secure"].check_hostname = False  # its names are compared with the rule's
    return Security(contexts, settings.unix_tls, logins, settings.tls_handshake_timeout_s)


def _check_dane(settings: Settings, conf_dir: Path) -> None:
    if not settings.dns_validates:
        raise wrong(conf_dir, "dns_validates", "TLS by DANE is wanted, and the name servers are "
                    "not said to verify signatures",
                    "yes, with a validating resolver of this host in dns_servers; or no dane in "
                    "unix_tls and [tls]")
    for package in ("cryptography", "dns"):
        if importlib.util.find_spec(package) is None:
            raise wrong(conf_dir, "unix_tls", f"DANE needs the package {package}, which is missing",
                        "pip install 'omq-base[mail]'")


def sts_context(settings: Settings, conf_dir: Path) -> ssl.SSLContext | None:
    """How servers of policies of MTA-STS are verified; None: they are not asked. ConfigError."""
    if not settings.unix_mta_sts:
        return None
    if not settings.unix_mx:
        raise wrong(conf_dir, "unix_mta_sts", "without unix_mx no exchanger is looked up that a "
                    "policy could name", "no, or unix_mx = yes")
    return client_context(settings, conf_dir, "unix_tls_ca_file", verify=True)


def _logins(settings: Settings, conf_dir: Path, routes: Routes) -> dict[str, tuple[str, str]]:
    path = settings.unix_auth_file
    found: dict[str, tuple[str, str]] = {}
    text = read_secret(conf_dir, _KEY, path) if path else ""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        host, _, login = line.strip().partition(" ")
        name, colon, password = login.strip().partition(":")
        peer = peer_of(host)
        if peer is None or not name or not colon:
            raise ConfigError(file=Path(path), line=number, key=_KEY, reason="this says nothing",
                              allowed=_LINE)
        rule = routes.tls_rule(peer.host, peer.host)
        if rule is not None and rule.level in ("none", "may"):
            raise ConfigError(file=Path(path), line=number, key=_KEY,
                              reason=f"[tls] of routes.conf lets {peer.host} be used in plain",
                              allowed="encrypt or verify there, for a peer with a password")
        found[f"{peer.host}:{peer.port}" if peer.port else peer.host] = name, password
    return found
