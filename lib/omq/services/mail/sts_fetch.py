"""Fetching a policy of MTA-STS: one GET over HTTPS, with one deadline for all of it.

The certificate must be for mta-sts.DOMAIN, by an authority of `unix_tls_ca_file` or the system's;
redirections are not followed (RFC 8461 section 3.3); the answer is read up to its bound. Another
thread cuts the line when the time is over, so a server that sends a byte now and then has no more
time than others.

Errors: FetchError, with what RFC 8460 section 4.3 calls the failure.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from omq.services.mail.sts_policy import BYTES_MAX
from omq.services.network.tls import secure

PORT: Final = 443
PATH: Final = "/.well-known/mta-sts.txt"
FETCH_FAILED: Final = "sts-policy-fetch-error"
NOT_TRUSTED: Final = "sts-webpki-invalid"
_SHARE_S_MIN: Final = 0.05


class FetchError(Exception):
    """There is no policy to be had; `result` is RFC 8460's word."""

    def __init__(self, result: str, text: str) -> None:
        super().__init__(text)
        self.result = result


def fetch(host: str, addresses: Sequence[str], port: int, context: ssl.SSLContext,
          timeout_s: float) -> bytes:
    """The text of the policy. FetchError."""
    ends = time.monotonic() + timeout_s
    try:
        plain = _connected(addresses, port, ends)
    except OSError as error:
        raise FetchError(FETCH_FAILED, f"{host} cannot be reached: {error}") from error
    try:
        line = secure(plain, context, host, _left(ends))
    except ssl.SSLCertVerificationError as error:
        raise FetchError(NOT_TRUSTED, f"{host}: {error.verify_message}") from error
    except (OSError, ValueError) as error:
        raise FetchError(FETCH_FAILED, f"TLS with {host} failed: {error}") from error
    cutting = threading.Timer(_left(ends), _cut, (line,))
    cutting.start()
    try:
        line.settimeout(_left(ends))
        # An end that TLS does not know is a cut.
        line.suppress_ragged_eofs = False  # type: ignore[attr-defined]
        data = _asked(host, line)
        if time.monotonic() >= ends:
            raise FetchError(FETCH_FAILED, f"https://{host}{PATH}: it took too long")
        return data
    except (OSError, http.client.HTTPException, ValueError) as error:
        late = ": it took too long" if time.monotonic() >= ends else f": {error}"
        raise FetchError(FETCH_FAILED, f"https://{host}{PATH}{late}") from error
    finally:
        cutting.cancel()
        cutting.join()
        line.close()


def _asked(host: str, line: socket.socket) -> bytes:
    asking = http.client.HTTPConnection(host)
    asking.sock = line
    asking.request("GET", PATH, headers={"Connection": "close", "User-Agent": "omq"})
    answer = asking.getresponse()
    if answer.status != http.client.OK:
        raise FetchError(FETCH_FAILED, f"https://{host}{PATH}: HTTP status {answer.status}")
    kind = answer.headers.get_content_type()
    if kind != "text/plain":
        raise FetchError(FETCH_FAILED, f"https://{host}{PATH} is {kind[:60]}, not text/plain")
    data = answer.read(BYTES_MAX + 1)
    if answer.length:
        raise FetchError(FETCH_FAILED, f"https://{host}{PATH} was cut off")
    if len(data) > BYTES_MAX:
        raise FetchError(FETCH_FAILED, f"https://{host}{PATH} has more than {BYTES_MAX} bytes")
    return data


def _connected(addresses: Sequence[str], port: int, ends: float) -> socket.socket:
    problem: OSError = ConnectionError("it has no address")
    for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
        try:
            return socket.create_connection(
                (address, port), max(_SHARE_S_MIN, _left(ends) / left))
        except OSError as error:
            problem = error
    raise problem


def _left(ends: float) -> float:
    return max(_SHARE_S_MIN, ends - time.monotonic())


def _cut(line: socket.socket) -> None:
    with suppress(OSError):  # it has ended meanwhile
        line.shutdown(socket.SHUT_RDWR)
