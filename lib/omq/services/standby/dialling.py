"""How a standby reaches its primary: by a command, or over TLS.

    ssh east omq standby send         any command that connects standard input and output
    tls://east.example.org:9817       `omq standby listen` there (services.standby.listener)

Over TLS both sides are verified, as on a channel: the primary's certificate must be for the host of
the address, by an authority of `channel_tls_ca_file`; the standby shows `channel_tls_certificate`,
whose common name is an account of the primary's host that may follow. Files are read anew for each
connection, so what was renewed counts at the next one.

Errors: StreamBroken: it cannot be reached; ConfigError: a file; BadArgument: the address.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import ssl
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from omq.base.errors import BadArgument, StreamBroken
from omq.base.settings import Settings
from omq.format.standby import Piece, PieceKind
from omq.services.channel.security import context_for_peers
from omq.services.network.secret_file import wrong
from omq.services.network.tls import secure
from omq.services.standby.line import Command, Connection, Line, Secured
from omq.storage.instance_file import PRIMARY_MAX

SCHEME: Final = "tls://"
PORT: Final = 9817
PROBE_S: Final = 10.0  # for a primary to answer, before a promotion
_ADDRESS: Final = re.compile(r"tls://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")


def parse(words: Sequence[str]) -> tuple[str, int] | None:
    """Host and port of an address; None: it is a command. BadArgument."""
    if len(shlex.join(words)) > PRIMARY_MAX:
        raise BadArgument(argument="the primary", value=shlex.join(words)[:50] + "...",
                          rule=f"at most {PRIMARY_MAX} characters: put a longer command into a "
                          "script")
    if not words or not words[0].startswith(SCHEME):
        return None
    found = _ADDRESS.fullmatch(words[0])
    port = int(found[2] or PORT) if found else 0
    if found is None or len(words) > 1 or not 0 < port < 65536:
        raise BadArgument(argument="the primary", value=" ".join(words),
                          rule="tls://HOST[:PORT], or a command")
    return found[1].strip("[]"), port


def dial(words: Sequence[str], settings: Settings, conf_dir: Path, silence_s: float) -> Connection:
    """A line to the primary. The errors of the module."""
    address = parse(words)
    if address is None:
        return Command(words, silence_s)
    if not settings.channel_tls_certificate:
        raise wrong(conf_dir, "channel_tls_certificate", "a standby identifies itself by its "
                    "certificate", "a PEM file with a certificate and its key")
    return _Dialled(address, context_for_peers(settings, conf_dir),
                    settings.channel_connect_timeout_s, silence_s)


def answers(words: Sequence[str], term: int) -> bool:
    """Is there anything of the primary? Over TLS whatever takes a connection is: a certificate that
    has run out since, ours or its own, says nothing about who is there. BadArgument."""
    address = parse(words)
    if not words:
        return False
    if address is not None:
        try:
            socket.create_connection(address, PROBE_S).close()
        except OSError:
            return False
        return True
    try:
        command = Command(words, PROBE_S)
    except StreamBroken:
        return False
    try:
        command.line.send(Piece(PieceKind.DURABLE, term))
        deadline = time.monotonic() + PROBE_S
        while time.monotonic() < deadline:
            for _ in command.line.receive(0.5):
                return True
    except StreamBroken:
        return False
    finally:
        command.close()
    return False


class _Dialled:
    """A connection over TLS."""

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext, timeout_s: float,
                 silence_s: float) -> None:
        peer = "{} port {}".format(*address)
        try:
            plain = socket.create_connection(address, timeout_s)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(silence_s * 1000))
            self._line = secure(plain, context, address[0], timeout_s)
        except OSError as error:
            raise StreamBroken(peer=peer, reason=_said(error)) from error
        self.line = Line(Secured(self._line), peer, silence_s)

    def close(self) -> None:
        """At once: what was not acknowledged is sent again."""
        self._line.close()


def _said(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not believed: {error.verify_message}"
    return (os.strerror(error.errno) if error.errno and error.errno > 0
            and not isinstance(error, ssl.SSLError | socket.gaierror) else str(error))
