"""The few calls of etcd (v3, 3.4 and later) that a lease needs, over its JSON gateway.

A call is one connection: a request of HTTP/1.0, so the answer is not chunked and ends with the
connection. It has one deadline for all of it (but for the look-up of a host's name, which nobody
can bound: use addresses), and an answer has ANSWER_MAX bytes at most. Members are asked in turn,
the one that answered last first.

    answers      what etcd says, as a dict
    CallFailed   this call came to no answer: nobody knows whether etcd carried it out

Numbers of 64 bits come as strings of digits, keys and values in base64; what is not so is no
answer. Nothing of an answer is believed but these.

The gateway knows a client by name and password alone, not by its certificate: etcd does not pass
that on. A token that etcd has forgotten is fetched anew.

Errors: CallFailed; LeaseRefused: etcd answers and says no (a password, a right); ConfigError: a
file that the configuration names; BadArgument: an address.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import time
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from omq.base.errors import BadArgument, ConfigError, LeaseRefused
from omq.base.settings import Settings
from omq.services.network.secret_file import read_secret, wrong

ANSWER_MAX: Final = 1 << 20
_READ_BYTES: Final = 1 << 16
_URL: Final = re.compile(r"(https?)://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})/?")
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3}) ")
_FORBIDDEN: Final = (401, 403)
_UNAUTHENTICATED, _NO_RIGHT, _INVALID = 16, 7, 3  # codes of gRPC
_SAID_MAX: Final = 200


class CallFailed(Exception):
    """This call came to no answer; handled by who keeps the lease."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One member of etcd."""

    tls: bool
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def endpoints(text: str) -> list[Endpoint]:
    """Those of `standby_lease`. BadArgument."""
    found = []
    for each in (part.strip() for part in text.split(",")):
        match = _URL.fullmatch(each)
        if match is None or not 0 < int(match[3]) < 65536:
            raise BadArgument(argument="standby_lease", value=each,
                              rule="https://HOST:PORT of members of etcd, with commas between them")
        found.append(Endpoint(match[1] == "https", match[2].strip("[]"), int(match[3])))
    return found


class Etcd:
    """See the module. `timeout_s`: for one member to answer one call."""

    def __init__(self, settings: Settings, conf_dir: Path, timeout_s: float) -> None:
        self._members = endpoints(settings.standby_lease)
        self._timeout_s = timeout_s
        self._user = settings.standby_lease_user
        self._password = ""
        if self._user:
            key = "standby_lease_password_file"
            if not settings.standby_lease_password_file:
                raise wrong(conf_dir, key, "standby_lease_user has a password", "a file")
            self._password = read_secret(conf_dir, key,
                                         settings.standby_lease_password_file).rstrip("\r\n")
        self._token = ""
        self._tls: ssl.SSLContext | None = None
        if any(each.tls for each in self._members):
            self._tls = _context(settings, conf_dir)

    def call(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of the first member that has one. The errors of the module."""
        why = []
        for _ in range(len(self._members)):
            member = self._members[0]
            try:
                return self._ask(member, path, body)
            except (OSError, ValueError) as error:
                why.append(f"{member}: {_reason(error)}")
                self._members.append(self._members.pop(0))
        raise CallFailed("; ".join(why))

    def _ask(self, member: Endpoint, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        if self._user and not self._token:
            self._authenticate(member)
        status, answer = self._post(member, path, body, self._token)
        code = answer.get("code")
        if self._user and (status in _FORBIDDEN or code == _UNAUTHENTICATED):
            self._authenticate(member)  # it has forgotten the token, as after a restart
            status, answer = self._post(member, path, body, self._token)
            code = answer.get("code")
        if status in _FORBIDDEN or code in (_NO_RIGHT, _UNAUTHENTICATED) or (
                not self._user and "user name is empty" in _said(answer)):
            raise LeaseRefused(reason=f"{member}: {_said(answer)}")
        if status != 200:
            raise ValueError(f"HTTP status {status}: {_said(answer)}")
        return answer

    def _authenticate(self, member: Endpoint) -> None:
        self._token = ""
        status, answer = self._post(member, "/v3/auth/authenticate",
                                    {"name": self._user, "password": self._password}, "")
        token = answer.get("token")
        if status == 200 and isinstance(token, str) and re.fullmatch(r"[!-~]{1,4096}", token):
            self._token = token
            return
        if answer.get("code") in (_INVALID, _NO_RIGHT, _UNAUTHENTICATED) or status in _FORBIDDEN:
            raise LeaseRefused(reason=f"{member}: user {self._user}: {_said(answer)}")
        raise ValueError(f"HTTP status {status}: {_said(answer)}")

    def _post(self, member: Endpoint, path: str, body: Mapping[str, Any], token: str
              ) -> tuple[int, dict[str, Any]]:
        """Status and answer. OSError, ValueError: there is none that can be read."""
        data = json.dumps(body).encode()
        named = f"Authorization: {token}\r\n" if token else ""
        head = (f"POST {path} HTTP/1.0\r\nHost: {member}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(data)}\r\n{named}\r\n").encode()
        deadline = time.monotonic() + self._timeout_s
        line = socket.create_connection((member.host, member.port), self._timeout_s)
        try:
            line.settimeout(_left(deadline))
            if member.tls:
                assert self._tls is not None
                line = self._tls.wrap_socket(line, server_hostname=member.host)
            line.sendall(head + data)
            raw = _read(line, deadline)
        finally:
            line.close()
        return _parse(raw)


def _read(line: socket.socket, deadline: float) -> bytes:
    """Up to the end of the connection."""
    found = bytearray()
    while True:
        line.settimeout(_left(deadline))
        part = line.recv(_READ_BYTES)
        if not part:
            return bytes(found)
        found += part
        if len(found) > ANSWER_MAX:
            raise ValueError(f"an answer of more than {ANSWER_MAX} bytes")


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("no answer in time")
    return left


def _parse(raw: bytes) -> tuple[int, dict[str, Any]]:
    head, _, body = raw.partition(b"\r\n\r\n")
    status = _STATUS.match(head)
    if status is None:
        raise ValueError("no answer of HTTP")
    try:
        found = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"HTTP status {int(status[1])}, and no JSON object")
    return int(status[1]), found


def _said(answer: Mapping[str, Any]) -> str:
    text = answer.get("message") or answer.get("error") or "it says nothing"
    return "".join(each if each.isprintable() else "?" for each in str(text)[:_SAID_MAX])


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error)[:_SAID_MAX] or type(error).__name__


def _context(settings: Settings, conf_dir: Path) -> ssl.SSLContext:
    key = "standby_lease_ca_file"
    try:
        made = ssl.create_default_context(cafile=settings.standby_lease_ca_file or None)
        key = "standby_lease_certificate"
        if settings.standby_lease_certificate:
            made.load_cert_chain(settings.standby_lease_certificate)
    except (OSError, ValueError) as error:
        raise _unusable(conf_dir, key, error) from error
    return made


def _unusable(conf_dir: Path, key: str, error: Exception) -> ConfigError:
    return wrong(conf_dir, key, f"it cannot be used: {error}", "a PEM file")


# what etcd says


def text64(text: str) -> str:
    """As keys and values go."""
    return b64encode(text.encode()).decode()


def number(answer: Mapping[str, Any], name: str) -> int:
    """A number of 64 bits; one that is absent is 0, as in JSON of protobuf. ValueError."""
    found = answer.get(name, 0)
    if type(found) is int and found >= 0:
        return found
    if isinstance(found, str) and re.fullmatch(r"[0-9]{1,19}", found):
        return int(found)
    raise ValueError(f"{name} is not a number")


@dataclass(frozen=True, slots=True)
class Stored:
    """A key: its value, and at which revisions it was made and changed; 0: there is none."""

    value: str = ""
    created: int = 0
    changed: int = 0


def stored(answer: Mapping[str, Any]) -> Stored:
    """What a range of one key gives. ValueError."""
    found = answer.get("kvs") or []
    if not isinstance(found, list) or len(found) > 1:
        raise ValueError("not the answer to a question for one key")
    if not found:
        return Stored()
    value = found[0].get("value", "") if isinstance(found[0], dict) else None
    if not isinstance(value, str):
        raise ValueError("a key without a value")
    return Stored(b64decode(value, validate=True).decode("utf-8"),
                  number(found[0], "create_revision"), number(found[0], "mod_revision"))
