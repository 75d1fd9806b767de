"""Where an amqp.server is: amqp[s]://USER[:PASSWORD]@HOST[:PORT][,HOST[:PORT]...]/[?KEY=VALUE&...]

Several hosts are those of one instance's members: the first that answers is taken, in their order.

    ca_file        PEM file with the authorities that the server's certificate is verified by,
                   instead of those that the system trusts
    certificate    PEM file with a certificate of this program, and its key in it or in
    key            this one: the user is the certificate's name then, and there is no password

Without a password in it that of the environment counts (OMQ_AMQP_PASSWORD), so that it is in no
list of processes. A password, or a certificate, crosses a line without TLS on loopback only.

Errors: BadArgument.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from omq.ipc.wire import arguments

SCHEMES: Final = {"amqp": 5672, "amqps": 5671}
HOSTS_MAX: Final = 16
PASSWORD: Final = "OMQ_AMQP_PASSWORD"
_KEYS: Final = ("ca_file", "certificate", "key")


@dataclass(frozen=True, slots=True, repr=False)
class Url:
    """See the module. It has no repr: a password belongs in no log."""

    host: str
    port: int
    user: str
    password: str
    tls: ssl.SSLContext | None

    @property
    def shown(self) -> str:
        """For errors and listings."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'amqps' if self.tls else 'amqp'}://{host}:{self.port}"


def hosts(text: str) -> tuple[Url, ...]:
    """Of each host that the URL names, in their order. BadArgument."""
    scheme, mark, rest = text.partition("://")
    where, slash, more = rest.partition("/")
    user, at, listed = where.rpartition("@")
    names = listed.split(",")
    if len(names) > HOSTS_MAX:
        raise arguments.wrong("spool", _shown(text), f"it names {HOSTS_MAX} hosts at most")
    return tuple(parse(f"{scheme}{mark}{user}{at}{name}{slash}{more}") for name in names)


def parse(text: str) -> Url:
    """Of one host. BadArgument."""
    try:
        found = urlsplit(text)
        port, host = found.port or SCHEMES[found.scheme], found.hostname or ""
        more = dict(parse_qsl(found.query, strict_parsing=bool(found.query)))
    except ValueError as error:
        raise arguments.wrong("spool", _shown(text), f"a URL has {error}") from error
    if not host or found.path not in ("", "/") or found.fragment or more.keys() - set(_KEYS):
        raise arguments.wrong("spool", _shown(text), "it is amqp[s]://USER@HOST[:PORT]/, with "
                              "commas between several HOST[:PORT], and ?ca_file=, certificate= "
                              "and key=, if any")
    user, password = unquote(found.username or ""), unquote(found.password or "")
    if user and not password:
        password = os.environ.get(PASSWORD, "")
    secret = password or more
    if found.scheme == "amqp" and secret and not _loopback(host):
        raise arguments.wrong("spool", _shown(text), "others could read the password: use amqps://")
    return Url(host, port, user, password, _context(more) if found.scheme == "amqps" else None)


def _shown(text: str) -> str:
    """Without what precedes the host."""
    scheme, _, rest = text.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _context(more: dict[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=more.get("ca_file"))
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if "certificate" in more:
            context.load_cert_chain(more["certificate"], more.get("key"))
    except OSError as error:
        raise arguments.wrong("spool", ", ".join(more.values()), f"not to be used: {error}"
                              ) from error
    return context
