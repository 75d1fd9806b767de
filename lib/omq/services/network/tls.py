"""TLS: what is offered to clients, what is wanted of mail peers, what came of it.

The library is Python's ssl (OpenSSL). Its settings here: nothing older than `tls_version_min`, no
renegotiation (a client could make the server work without end), OpenSSL's own ciphers.

A handshake has one deadline, however many pieces it comes in: a peer that sends a byte now and then
holds nobody. Its size is bounded by OpenSSL (a chain of certificates: 100 KiB).

Errors: ConfigError with the key; of a handshake OSError (ssl.SSLError is one), TimeoutError.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
import time
from asyncio import sslproto
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from omq.services.network.secret_file import read_secret, wrong

if TYPE_CHECKING:
    from omq.base.settings import Settings

BUFFER_BYTES: Final = 20 * 1024
"""A record, its header and its tag."""

_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True)
class Secured:
    """What a handshake agreed on."""

    version: str
    cipher: str
    bits: int
    verified: bool = False

    def __str__(self) -> str:
        return f"{self.version} with cipher {self.cipher} ({self.bits}/{self.bits} bits)"


def secured(line: ssl.SSLObject | ssl.SSLSocket, *, verified: bool = False) -> Secured:
    """What this line is secured by."""
    cipher = line.cipher()
    return Secured(line.version() or "?", cipher[0] if cipher else "?", cipher[2] if cipher else 0,
                   verified)


def server_context(settings: Settings, conf_dir: Path, server: str) -> ssl.SSLContext | None:
    """For clients of ours, by the keys `server`_tls_certificate and `server`_tls_key; None: no
    certificate is set. ConfigError."""
    of_certificate, of_key = f"{server}_tls_certificate", f"{server}_tls_key"
    certificate, key = getattr(settings, of_certificate), getattr(settings, of_key)
    if not certificate:
        if key:
            raise wrong(conf_dir, of_certificate, "it is empty, and there is a key", "a PEM file")
        return None
    read_secret(conf_dir, of_key if key else of_certificate, key or certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.tls_version_min]
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        # A key with a password would ask for it on a terminal.
        context.load_cert_chain(certificate, key or None, password=lambda: b"")
    except (OSError, ValueError) as error:
        raise wrong(conf_dir, of_certificate, f"{certificate} cannot be used: {error}",
                    "a PEM file with a certificate, and its key without a password") from error
    return context


def verify_clients(context: ssl.SSLContext, settings: Settings, conf_dir: Path,
                   mode: ssl.VerifyMode) -> None:
    """Certificates of clients are verified by `amqp_tls_ca_file`, as `mode` wants them.
    ConfigError."""
    authorities = settings.amqp_tls_ca_file
    try:
        context.load_verify_locations(authorities)
    except OSError as error:
        raise wrong(conf_dir, "amqp_tls_ca_file", f"{authorities} cannot be used: {error}",
                    "a PEM file with certificates of authorities, and their lists") from error
    context.verify_mode = mode
    if context.cert_store_stats()["crl"]:
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF


def common_name(certificate: object) -> str:
    """Of what ssl tells of a verified certificate; "": none."""
    if isinstance(certificate, dict):
        for row in certificate.get("subject", ()):
            for key, value in row:
                if key == "commonName":
                    return str(value)
    return ""


def bound_buffers() -> None:
    """asyncio gives each TLS session a buffer of 256 KiB, all of it resident: a thousand idle ones
    would hold 278 MB (reckoned from 20). A record of TLS has 16 KiB at most. (The attribute is as
    old as Python 3.11's rewrite of this module; where it goes away, this does nothing.)"""
    sslproto.SSLProtocol.max_size = BUFFER_BYTES


async def accepted(protocol: asyncio.Protocol, transport: asyncio.Transport,
                   context: ssl.SSLContext | None, timeout_s: float, shutdown_s: float
                   ) -> asyncio.Transport | Exception:
    """A client's handshake over a transport that is not being read: what takes its place, or why
    there is none; the line is cut then."""
    problem: Exception = ConnectionResetError("the client is gone")
    try:
        if context is not None:  # a reload may have taken the certificate away
            found = await asyncio.get_running_loop().start_tls(
                transport, protocol, context, server_side=True, ssl_handshake_timeout=timeout_s,
                ssl_shutdown_timeout=shutdown_s)
            if found is not None:  # the client was still there
                return found
    except OSError as error:
        problem = error
    transport.abort()
    return problem


def client_context(settings: Settings, conf_dir: Path, key: str, *, verify: bool
                   ) -> ssl.SSLContext:
    """For peers; `verify`: their certificate must be for their name, by an authority of the file
    that the conf `key` names, of the system's if it names none. ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = _VERSIONS[settings.tls_version_min]
    context.options |= ssl.OP_NO_RENEGOTIATION
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    path = getattr(settings, key)
    try:
        if path:
            context.load_verify_locations(path)
        else:
            context.load_default_certs()
    except OSError as error:
        raise wrong(conf_dir, key, f"{path} cannot be used: {error}",
                    "a PEM file with certificates of authorities") from error
    return context


def secure(line: socket.socket, context: ssl.SSLContext, name: str, timeout_s: float
           ) -> ssl.SSLSocket:
    """A client's handshake over a connected line, within this time. OSError; the line is closed
    then."""
    return _shake_hands(context.wrap_socket(line, server_hostname=name or None,
                                            do_handshake_on_connect=False), timeout_s)


def secure_server(line: socket.socket, context: ssl.SSLContext, timeout_s: float) -> ssl.SSLSocket:
    """The same of a server."""
    return _shake_hands(context.wrap_socket(line, server_side=True,
                                            do_handshake_on_connect=False), timeout_s)


def _shake_hands(wrapped: ssl.SSLSocket, timeout_s: float) -> ssl.SSLSocket:
    deadline = time.monotonic() + timeout_s
    wrapped.settimeout(0.0)
    try:
        while True:
            try:
                wrapped.do_handshake()
                return wrapped
            except ssl.SSLWantReadError:
                awaited = select.POLLIN
            except ssl.SSLWantWriteError:
                awaited = select.POLLOUT
            poll = select.poll()
            poll.register(wrapped, awaited)
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise TimeoutError("the TLS handshake took too long")
    except OSError:
        wrapped.close()
        raise
