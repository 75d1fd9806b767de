"""A line to a peer: connected, greeted, encrypted and logged in as its rule says.

`Line` is smtplib's client where that is enough. Its own are what a hostile peer is met with:

1. A reply has one deadline, however many pieces and lines it comes in, and a limit in bytes.
2. What came before a handshake is thrown away: it would be read as if it had come encrypted (the
   counterpart of CVE-2011-0411).
3. TLS by level (`Peer.tls`, else the site's: omq.services.mail.tls_policy): `none`; `may`: where it
   is offered, and in plain where the handshake fails, which is logged; `testing`: as `verify`, and
   as `may` where that fails; `encrypt`, `verify`, `secure`, `dane`: nothing is sent in plain but
   EHLO and STARTTLS, and nothing at all to a peer without the right certificate. What became of it
   is noted for each line.
4. A name and password are sent over TLS alone, and to a verified peer unless its rule is `encrypt`.

LMTP (RFC 2033) is the same but for LHLO, and has its lines over a UNIX socket too.

Errors: OSError and smtplib.SMTPException of the network and the peer; NotSecureError.
"""

from __future__ import annotations

import select
import smtplib
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from omq.services.mail.dane import NotMatchedError, Tlsa
from omq.services.mail.peer_certificate import NOT_OFFERED, check_certificate, result_of
from omq.services.mail.routes import Peer
from omq.services.mail.tls_policy import TESTING
from omq.services.mail.tls_sessions import TlsSession, facts_of
from omq.services.network.tls import Secured, secure, secured

REPLY_BYTES_MAX: Final = 64 * 1024
"""RFC 5321 4.5.3.1.5: 512 for a line; an EHLO has a dozen of them."""
_NO_CODE: Final = -1
_SHARE_S_MIN: Final = 0.05


class NotSecureError(Exception):
    """The peer cannot be used as its rule says; `status` is that of RFC 3463."""

    def __init__(self, status: str, text: str, result: str = "") -> None:
        super().__init__(text)
        self.status, self.result = status, result


def note_nothing(session: TlsSession) -> None:
    """For lines that nobody counts."""
    del session


class Tell(Protocol):
    """Who hears how a handshake ended."""

    def __call__(self, text: str, *, failed: bool) -> None: ...


def tell_nobody(text: str, *, failed: bool) -> None:
    """For lines that have no log."""
    del text, failed


@dataclass(frozen=True, slots=True, repr=False)
class Security:
    """What lines need besides the peer: contexts (encrypt, verify, secure), the site's level, names
    and passwords by peer; `tell` hears how handshakes ended, `note` of each line's TLS."""

    contexts: Mapping[str, ssl.SSLContext] = field(default_factory=dict)
    level: str = "none"
    logins: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    handshake_timeout_s: float = 30.0
    tell: Tell = tell_nobody
    note: Callable[[TlsSession], None] = note_nothing

    def login(self, peer: Peer) -> tuple[str, str] | None:
        """Name and password at this peer."""
        return self.logins.get(f"{peer.host}:{peer.port}") or self.logins.get(peer.host)

    def level_of(self, peer: Peer) -> str:
        """How a line to this peer is secured."""
        if self.login(peer) and not peer.tls.startswith(("encrypt", "dane", "secure")):
            return "verify"  # a rule for the domain may be weaker than a password allows
        return peer.tls or self.level


class Line(smtplib.SMTP):
    """One connection. `reply_timeout_s` may be changed between two commands."""

    def __init__(self, hostname: str, *, lmtp: bool = False) -> None:
        super().__init__(local_hostname=hostname)
        self.reply_timeout_s = 300.0
        self.secured: Secured | None = None
        if lmtp:
            self.ehlo_msg = "lhlo"
        self._came = b""

    def reach(self, peer: Peer, addresses: Sequence[str], timeout_s: float) -> None:
        """Connect to the first of these that answers; without any, to what the host's name means,
        or its socket."""
        self.sock = _connected(peer, addresses, timeout_s)
        if self.sock.family != socket.AF_UNIX:
            # Each command waits for its reply anyway; Nagle's algorithm only adds the peer's
            # delayed acknowledgement (40 ms) to the last segment of a message.
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def greeted(self) -> None:
        """Wait for the greeting. SMTPConnectError: it is none."""
        code, text = self.getreply()
        if code != 220:
            raise smtplib.SMTPConnectError(code, text)

    def introduce(self) -> None:
        """EHLO, or HELO for who does not know it; LHLO."""
        if self.ehlo_msg != "lhlo":
            self.ehlo_or_helo_if_needed()
            return
        code, text = self.ehlo()
        if not 200 <= code <= 299:
            raise smtplib.SMTPHeloError(code, text)

    def encrypt(self, context: ssl.SSLContext, name: str, timeout_s: float,
                check: Callable[[ssl.SSLSocket], None]) -> None:
        """STARTTLS was answered with 220: the handshake, and EHLO anew to whose certificate `check`
        lets pass. OSError, and what `check` raises."""
        assert self.sock is not None
        self._came = b""
        line, self.sock = self.sock, None
        self.sock = wrapped = secure(line, context, name, timeout_s)
        self.secured = secured(wrapped, verified=context.verify_mode is ssl.CERT_REQUIRED)
        check(wrapped)
        self.helo_resp = self.ehlo_resp = None
        self.esmtp_features.clear()
        self.does_esmtp = False
        self.introduce()

    def getreply(self) -> tuple[int, bytes]:
        """smtplib's, with a deadline and a limit; a code of -1: that was no SMTP."""
        deadline, texts, read = time.monotonic() + self.reply_timeout_s, list[bytes](), 0
        try:
            while True:
                line = self._line(deadline, REPLY_BYTES_MAX - read)
                read += len(line)
                code = int(line[:3]) if line[:3].isdigit() else _NO_CODE
                if code == _NO_CODE or line[3:4] not in (b"", b" ", b"-", b"\r", b"\n"):
                    return _NO_CODE, line.strip(b" \t\r\n")
                texts.append(line[4:].strip(b" \t\r\n"))
                if line[3:4] != b"-":
                    return code, b"\n".join(texts)
        except (OSError, smtplib.SMTPException):
            self.close()
            raise

    def _line(self, deadline: float, room: int) -> bytes:
        while (end := self._came.find(b"\n") + 1) == 0:
            if len(self._came) > room:
                raise smtplib.SMTPServerDisconnected("a reply without end")
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("the reply took too long")
            if self.sock is None:
                raise smtplib.SMTPServerDisconnected("the connection is closed")
            self.sock.settimeout(left_s)
            more = self.sock.recv(16 * 1024)
            if not more:
                raise smtplib.SMTPServerDisconnected("the connection was closed")
            self._came += more
        line, self._came = self._came[:end], self._came[end:]
        return line

    def has_surplus(self) -> bool:
        """Whether something came that nobody asked for, or the end, while no reply is due. Over
        TLS what is not decrypted yet may be the library's own, and is not looked at."""
        if self._came or self.sock is None:
            return True
        if isinstance(self.sock, ssl.SSLSocket):
            return self.sock.pending() > 0
        looking = select.poll()
        looking.register(self.sock, select.POLLIN)
        return bool(looking.poll(0))

    def patience(self, seconds: float) -> None:
        """How long sending, and from now on a reply, may take."""
        self.reply_timeout_s = seconds
        if self.sock is not None:
            self.sock.settimeout(seconds)

    def close(self) -> None:
        """Without a word."""
        self._came = b""
        super().close()


@dataclass(frozen=True, slots=True)
class Opening:
    """How lines are opened."""

    hostname: str
    connect_timeout_s: float
    reply_timeout_s: float
    security: Security
    lmtp: bool = False


def opened(peer: Peer, addresses: Sequence[str], how: Opening, tlsa: Sequence[Tlsa] = ()) -> Line:
    """A line that may carry mail; `tlsa`: what it must have for the level `dane`."""
    level = how.security.level_of(peer)
    if how.lmtp or peer.host.startswith("/"):
        level = peer.tls or "none"
    if level == TESTING:
        return _tested(peer, addresses, how)
    try:
        return _opened(peer, addresses, how, level, tlsa)
    except _HandshakeError as error:
        if level != "may":
            raise NotSecureError("4.7.5", f"TLS failed: {error}") from error
        how.security.tell(f"warning: TLS with {peer} failed: {error}; it is used in plain",
                          failed=True)
        return _opened(peer, addresses, how, "none")


def _tested(peer: Peer, addresses: Sequence[str], how: Opening) -> Line:
    """As its policy will want it; where that fails, as if there were none yet."""
    try:
        return _opened(peer, addresses, how, "verify")
    except (_HandshakeError, NotSecureError) as error:
        if isinstance(error, NotSecureError) and not error.result:
            raise  # a password was refused: TLS is not what is wrong
        how.security.tell(f"warning: {peer} does not meet the MTA-STS policy that its domain "
                          f"tests: {error}", failed=False)
    weaker = replace(how.security, note=note_nothing)  # one line is counted once
    return opened(replace(peer, tls="may"), addresses, replace(how, security=weaker))


class _HandshakeError(Exception):
    """TLS was begun and failed: of this line nothing is left."""


def _opened(peer: Peer, addresses: Sequence[str], how: Opening, level: str,
            tlsa: Sequence[Tlsa] = ()) -> Line:
    line = Line(how.hostname, lmtp=how.lmtp)
    try:
        line.reply_timeout_s = how.connect_timeout_s
        line.reach(peer, addresses, how.connect_timeout_s)
        line.greeted()
        line.patience(how.reply_timeout_s)
        line.introduce()
        if level != "none":
            _secure(line, peer, how.security, level, tlsa)
        login = how.security.login(peer)
        if login is not None:
            _log_in(line, login)
    except BaseException:
        line.close()
        raise
    line.command_encoding = "utf-8"  # ASCII stays ASCII; addresses of SMTPUTF8 are UTF-8
    return line


def _secure(line: Line, peer: Peer, security: Security, level: str, tlsa: Sequence[Tlsa]) -> None:
    seen = TlsSession(peer.host, peer.port, _address(line), level.partition("=")[0])
    facts: dict[str, str] = {}

    def check(wrapped: ssl.SSLSocket) -> None:
        facts.update(facts_of(wrapped.getpeercert(binary_form=True)))
        check_certificate(wrapped, peer.host, level, tlsa)

    try:
        offered = line.has_extn("starttls")
        code, text = line.docmd("STARTTLS") if offered else (502, b"it was not offered")
        if code == 220:
            context = security.contexts[{"verify": "verify", "secure": "secure"}.get(
                seen.level, "encrypt")]
            line.encrypt(context, peer.host, security.handshake_timeout_s, check)
    except (OSError, smtplib.SMTPException, ValueError, NotMatchedError) as error:
        # ValueError: no name for TLS
        reason = f"{type(error).__name__}: {error}"
        security.note(replace(seen, result=result_of(error), reason=reason, certificate=facts))
        raise _HandshakeError(reason) from error
    if code == 220:
        trust = "Verified" if seen.level in ("verify", "secure", "dane") else "Untrusted"
        security.tell(f"{trust} TLS connection established to {peer}: {line.secured}",
                      failed=False)
        agreed = line.secured
        security.note(replace(seen, certificate=facts, version=agreed.version if agreed else "",
                              cipher=agreed.cipher if agreed else ""))
        return
    words = text.decode("utf-8", "replace")
    security.note(replace(seen, result=NOT_OFFERED, reason=f"{code} {words}"))
    if level != "may":
        raise NotSecureError("4.7.4", f"TLS is required here: {code} {words}", NOT_OFFERED)
    if code == 421:
        raise _HandshakeError("the peer closed at STARTTLS")


def _address(line: Line) -> str:
    with suppress(OSError, AttributeError):  # it has gone meanwhile
        name = line.sock.getpeername() if line.sock is not None else ""
        return str(name[0]) if isinstance(name, tuple) else ""
    return ""


def _log_in(line: Line, login: tuple[str, str]) -> None:
    if line.secured is None:
        raise NotSecureError("4.7.10", "no password is sent without TLS")
    try:
        line.login(*login)
    except smtplib.SMTPResponseException as error:
        text = error.smtp_error
        words = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
        raise NotSecureError("4.7.8", f"AUTH: {error.smtp_code} {words}") from error
    except smtplib.SMTPNotSupportedError as error:
        raise NotSecureError("4.7.8", "AUTH was not offered, in no way known here") from error


def _connected(peer: Peer, addresses: Sequence[str], timeout_s: float) -> socket.socket:
    if peer.host.startswith("/"):
        local = socket.socket(socket.AF_UNIX)
        try:
            local.settimeout(timeout_s)
            local.connect(peer.host)
        except OSError:
            local.close()
            raise
        return local
    problem: OSError = ConnectionError("it has no address")
    hosts = addresses or (peer.host,)
    deadline = time.monotonic() + timeout_s
    for left, host in zip(range(len(hosts), 0, -1), hosts, strict=True):
        # They share the time: a host may have many, and one that is silent must not hold a process
        # for each. Who refuses at once leaves his part to the others.
        share_s = max(_SHARE_S_MIN, (deadline - time.monotonic()) / left)
        with suppress(UnicodeError):  # no name for the resolver
            try:
                return socket.create_connection((host, peer.port), share_s)
            except OSError as error:
                problem = error
    raise problem
