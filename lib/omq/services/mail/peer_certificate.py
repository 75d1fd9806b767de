"""Whether a peer's certificate is the one that the level of its line wants, beyond what OpenSSL has
checked in the handshake; and what RFC 8460 calls a failure of TLS.

    secure    verified by OpenSSL but for its name: one of the certificate's is one of the patterns
    dane      not verified by OpenSSL: the TLSA records decide (omq.services.mail.dane)

Errors: NotMatchedError.
"""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from omq.services.mail import dane
from omq.services.mail.dane import NotMatchedError, Tlsa

NOT_OFFERED: Final = "starttls-not-supported"
_EXPIRED: Final = 10  # X509_V_ERR_CERT_HAS_EXPIRED of OpenSSL
_MISMATCHES: Final = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH


def check_certificate(line: ssl.SSLSocket, host: str, level: str, tlsa: Sequence[Tlsa]) -> None:
    """After the handshake, before anything is sent. NotMatchedError."""
    name, _, patterns = level.partition("=")
    if name == "dane":
        dane.check(_chain_of(line), host, tlsa)
    elif name == "secure":
        _check_names(line.getpeercert() or {}, patterns.split(","))


def result_of(error: Exception) -> str:
    """RFC 8460 section 4.3."""
    if isinstance(error, NotMatchedError):
        return error.result
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code == _EXPIRED:
            return "certificate-expired"
        return ("certificate-host-mismatch" if error.verify_code in _MISMATCHES
                else "certificate-not-trusted")
    if isinstance(error, smtplib.SMTPException):
        return NOT_OFFERED
    return "validation-failure"


def _check_names(certificate: Any, patterns: Sequence[str]) -> None:
    names = [str(value).lower() for kind, value in certificate.get("subjectAltName", ())
             if kind in ("DNS", "IP Address")]
    for name in names:
        for pattern in patterns:
            if fnmatchcase(name, pattern) or _wildcard(name, pattern):
                return
    raise NotMatchedError("certificate-host-mismatch",
                          f"the certificate is for {', '.join(names[:5]) or 'nobody'}, the rule "
                          f"wants {', '.join(patterns)}")


def _wildcard(name: str, pattern: str) -> bool:
    """Whether a name with "*" for its first label covers a pattern that is a name."""
    return name.startswith("*.") and "*" not in pattern and pattern.partition(".")[2] == name[2:]


def _chain_of(line: ssl.SSLSocket) -> list[bytes]:
    """What the peer sent, its own certificate first, in DER."""
    public = getattr(line, "get_unverified_chain", None)
    if public is not None:  # Python 3.13
        return [bytes(each) for each in public()]
    import _ssl

    sent = line._sslobj.get_unverified_chain()  # type: ignore[attr-defined]
    return [each.public_bytes(_ssl.ENCODING_DER) for each in sent or ()]
