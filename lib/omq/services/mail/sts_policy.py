"""MTA-STS (RFC 8461): the record that a domain has a policy, and the policy.

    _mta-sts.example.org TXT   v=STSv1; id=20260101T000000
    https://mta-sts.example.org/.well-known/mta-sts.txt
        version: STSv1 / mode: enforce / mx: mx.example.org / mx: *.example.net / max_age: 604800

Errors: NotAPolicyError says what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from omq.services.mail.smtp_address import domain_problem

MODES: Final = ("none", "testing", "enforce")
BYTES_MAX: Final = 64 * 1024
"""RFC 8461 section 3.3: a policy may be refused beyond this."""
AGE_S_MAX: Final = 31_557_600
PATTERNS_MAX: Final = 100
_ID: Final = re.compile(r"[A-Za-z0-9]{1,32}")
_VERSION: Final = "STSv1"
_LINE: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,31})[ \t]*:[ \t]*(.*?)[ \t]*")


class NotAPolicyError(Exception):
    """This is not a policy."""


@dataclass(frozen=True, slots=True)
class StsPolicy:
    """What a domain wants; `identity`: of the record under which it was fetched."""

    identity: str
    mode: str
    mx: tuple[str, ...]
    max_age_s: int

    def allows(self, host: str) -> bool:
        """Whether the host is an exchanger by the policy: a "*" takes the place of one label."""
        name = host.lower().rstrip(".")
        return any(name == each or (each.startswith("*.") and name.partition(".")[2] == each[2:])
                   for each in self.mx)

    @property
    def lines(self) -> list[str]:
        """As a report shows it (RFC 8460)."""
        return [f"version: {_VERSION}", f"mode: {self.mode}",
                *(f"mx: {each}" for each in self.mx), f"max_age: {self.max_age_s}"]


def identity_of(texts: Iterable[bytes]) -> str:
    """The id that the TXT records name; "": there is no policy. Not exactly one record of this
    version means that there is none (section 3.1)."""
    found = [each for each in texts if each.split(b";")[0].strip() == b"v=" + _VERSION.encode()]
    if len(found) != 1:
        return ""
    for part in found[0].decode("ascii", "replace").split(";")[1:]:
        key, _, value = part.strip().partition("=")
        if key.strip() == "id" and _ID.fullmatch(value.strip()):
            return value.strip()
    return ""


def policy_of(data: bytes, identity: str) -> StsPolicy:
    """What was fetched. NotAPolicyError."""
    try:
        lines = data.decode("utf-8").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        raise NotAPolicyError("it is not UTF-8") from error
    fields: dict[str, str] = {}
    patterns: list[str] = []
    for line in lines:
        if not line.strip():
            continue
        matched = _LINE.fullmatch(line)
        if matched is None:
            raise NotAPolicyError(f"a line is none: {line[:60]!r}")
        key, value = matched.groups()
        if key == "mx":
            patterns.append(_pattern(value))
        else:
            fields.setdefault(key, value)  # the first counts (section 3.2)
    if fields.get("version") != _VERSION:
        raise NotAPolicyError(f"its version is not {_VERSION}")
    mode, age = fields.get("mode", ""), fields.get("max_age", "")
    if mode not in MODES:
        raise NotAPolicyError(f"its mode is not one of {', '.join(MODES)}")
    if not (age.isascii() and age.isdigit() and len(age) <= 10):
        raise NotAPolicyError("max_age is not a number of seconds")
    if not patterns and mode != "none":
        raise NotAPolicyError("it names no mx")
    if len(patterns) > PATTERNS_MAX:
        raise NotAPolicyError(f"it has more than {PATTERNS_MAX} lines of mx")
    return StsPolicy(identity, mode, tuple(patterns), min(int(age), AGE_S_MAX))


def _pattern(text: str) -> str:
    name = text.lower().rstrip(".")
    problem = domain_problem(name.removeprefix("*."))
    if problem:
        raise NotAPolicyError(f"mx {text[:60]!r} is not a name of hosts: {problem}")
    return name
