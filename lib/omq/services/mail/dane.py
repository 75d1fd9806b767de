"""DANE for SMTP (RFC 7672): which TLSA records count, and whether a chain of certificates has one.

A record travels as (usage, selector, matching type, hexadecimal data).

1. Usages 2 (DANE-TA) and 3 (DANE-EE) count; 0 and 1, which want the public authorities too, do not
   (section 3.1.3), nor does what has another selector, matching type or length.
2. Of several digests for one usage and selector the strongest counts (section 5).
3. DANE-EE: the server's own certificate or key; neither its name nor its time matters (3.1.1).
   DANE-TA: a certificate of the chain, or one that the record holds whole, signed the server's,
   which is for the host's name and is valid now (3.1.2). Python's ssl does not do this; the package
   cryptography verifies the chain, with that certificate as its only anchor.

Errors: NotMatchedError, with what RFC 8460 section 4.3 calls the failure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

Tlsa = tuple[int, int, int, str]

TA: Final = 2
EE: Final = 3
_DIGESTS: Final = {1: (32, hashlib.sha256), 2: (64, hashlib.sha512)}
_WHOLE: Final = 0
RECORDS_MAX: Final = 32
_BYTES_MAX: Final = 16 * 1024


class NotMatchedError(Exception):
    """The certificates are not those of the records; `result` is RFC 8460's word."""

    def __init__(self, result: str, text: str) -> None:
        super().__init__(text)
        self.result = result


def usable(records: Iterable[tuple[int, int, int, bytes]]) -> tuple[Tlsa, ...]:
    """Those that count (rules 1, 2), RECORDS_MAX at most."""
    found = [each for each in records if _counts(*each)]
    strongest: dict[tuple[int, int], int] = {}
    for usage, selector, matching, _ in found:
        if matching != _WHOLE:
            strongest[usage, selector] = max(matching, strongest.get((usage, selector), 0))
    kept = sorted((usage, selector, matching, data.hex())
                  for usage, selector, matching, data in found
                  if matching in (_WHOLE, strongest.get((usage, selector))))
    return tuple(kept[:RECORDS_MAX])


def _counts(usage: int, selector: int, matching: int, data: bytes) -> bool:
    if usage not in (TA, EE) or selector not in (0, 1):
        return False
    if matching == _WHOLE:
        return 0 < len(data) <= _BYTES_MAX
    return matching in _DIGESTS and len(data) == _DIGESTS[matching][0]


def check(chain: Sequence[bytes], host: str, records: Sequence[Tlsa]) -> None:
    """Whether the chain, the server's certificate first, in DER, is that of the records.
    NotMatchedError."""
    from cryptography import x509

    try:
        certificates = [x509.load_der_x509_certificate(each) for each in chain]
    except ValueError as error:
        raise NotMatchedError("validation-failure", f"a certificate is none: {error}") from error
    if not certificates:
        raise NotMatchedError("validation-failure", "there is no certificate")
    if any(_is_of(certificates[0], each) for each in records if each[0] == EE):
        return
    problem = ""
    for anchor in _anchors(certificates, records):
        problem = _problem(certificates, anchor, host)
        if not problem:
            return
    if problem:
        raise NotMatchedError(
            "certificate-host-mismatch" if "subjectAltName" in problem
            else "certificate-not-trusted",
            f"the authority of a TLSA record did not issue a certificate for {host} that is valid "
            f"now: {problem}")
    raise NotMatchedError("validation-failure", f"no TLSA record of {host} matches its certificate")


def _is_of(certificate: Any, record: Tlsa) -> bool:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    _, selector, matching, data = record
    try:
        seen = certificate.public_bytes(Encoding.DER) if selector == 0 else (
            certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
    except ValueError:  # a key of a kind that nobody knows is not the one of a record
        return False
    if matching != _WHOLE:
        seen = _DIGESTS[matching][1](seen).digest()
    return bytes(seen) == bytes.fromhex(data)


def _anchors(certificates: Sequence[Any], records: Sequence[Tlsa]) -> list[Any]:
    """What records of DANE-TA name: of the chain, or whole in the record."""
    from cryptography import x509

    wanted = [each for each in records if each[0] == TA]
    found = [each for each in certificates if any(_is_of(each, record) for record in wanted)]
    for _, selector, matching, data in wanted:
        if selector == 0 and matching == _WHOLE:
            try:
                found.append(x509.load_der_x509_certificate(bytes.fromhex(data)))
            except ValueError:  # the record holds no certificate: another one may match
                continue
    return found


def _problem(certificates: Sequence[Any], anchor: Any, host: str) -> str:
    """Why the server's certificate is not one of this anchor for this host; "": it is."""
    from cryptography import x509
    from cryptography.x509 import verification

    try:
        # The rules of browsers' authorities are not those of an authority that a domain names.
        either = verification.Criticality.AGNOSTIC
        authorities = (verification.ExtensionPolicy.permit_all()
                       .require_present(x509.BasicConstraints, either, _is_authority)
                       .may_be_present(x509.KeyUsage, either, _signs))
        servers = verification.ExtensionPolicy.permit_all().require_present(
            x509.SubjectAlternativeName, either, None)
        builder = verification.PolicyBuilder().store(verification.Store([anchor])) \
            .extension_policies(ca_policy=authorities, ee_policy=servers)
        builder.build_server_verifier(x509.DNSName(host)).verify(
            certificates[0], list(certificates[1:]))
    except (verification.VerificationError, ValueError) as error:
        return str(error) or type(error).__name__
    return ""


def _is_authority(policy: object, certificate: object, extension: Any) -> None:
    del policy, certificate
    if not extension.ca:
        raise ValueError("one of the chain is not an authority's")


def _signs(policy: object, certificate: object, extension: Any) -> None:
    del policy, certificate
    if extension is not None and not extension.key_cert_sign:
        raise ValueError("one of the chain may not sign others")
