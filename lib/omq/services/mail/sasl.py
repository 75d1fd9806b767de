"""Who a client says it is: the exchanges of AUTH (RFC 4954), PLAIN (RFC 4616) and LOGIN.

An exchange is a generator: it yields the challenge that 334 carries, is sent what the client
answered, and returns the Credentials. Nothing here looks at a password.

Errors: SaslError with the reply.
"""

from __future__ import annotations

import binascii
from collections.abc import Generator
from dataclasses import dataclass
from typing import Final

MECHANISMS: Final = ("PLAIN", "LOGIN")
_NOT_BASE64: Final = "501 5.5.2 that is not base64"
_NOT_PLAIN: Final = "501 5.5.2 that is not an answer of this mechanism"
_USER: Final = "VXNlcm5hbWU6"  # "Username:", which some clients wait for
_PASSWORD: Final = "UGFzc3dvcmQ6"


class SaslError(Exception):
    """The exchange ends with this reply."""


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """What is to be checked. It has no repr: a password belongs in no log."""

    mechanism: str
    name: str
    password: str


Exchange = Generator[str, bytes, Credentials]


def exchange(mechanism: str, initial: str) -> Exchange:
    """The exchange of one of MECHANISMS, behind an initial response ("": none, "=": empty)."""
    first = None if not initial else b"" if initial == "=" else decoded(initial.encode())
    return _plain(first) if mechanism == "PLAIN" else _login(first)


def decoded(line: bytes) -> bytes:
    """An answer of the client. SaslError: it gave up, or this is no base64."""
    if line == b"*":
        raise SaslError("501 5.7.0 given up")
    try:
        return binascii.a2b_base64(line, strict_mode=True) if line else b""
    except binascii.Error as error:
        raise SaslError(_NOT_BASE64) from error


def _plain(first: bytes | None) -> Exchange:
    answer = first if first is not None else (yield "")
    parts = _text(answer).split("\0")
    if len(parts) != 3 or not parts[1]:
        raise SaslError(_NOT_PLAIN)
    if parts[0] not in ("", parts[1]):
        raise SaslError("535 5.7.8 acting for another user is not allowed here")
    return Credentials("PLAIN", parts[1], parts[2])


def _login(first: bytes | None) -> Exchange:
    name = _text(first if first is not None else (yield _USER))
    password = _text((yield _PASSWORD))
    if not name or "\0" in name + password:
        raise SaslError(_NOT_PLAIN)
    return Credentials("LOGIN", name, password)


def _text(answer: bytes) -> str:
    try:
        return answer.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SaslError(_NOT_PLAIN) from error
