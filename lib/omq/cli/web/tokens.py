"""Tokens of programs: a file, a line each. The file has no token, only its SHA-256.

    # a comment, on a line of its own
    backup:5f7c...(64 digits):alice:look browse:2027-01-31

name, SHA-256 of the token, the account whose rights it has, its scopes, and the day after which it
is worth nothing (UTC; empty: it has no end). A token is 256 random bits, so a hash that takes its
time would protect nothing. Errors: ConfigError with file and line.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from omq.base.errors import ConfigError
from omq.cli.web.caller import SCOPES
from omq.services.network.secret_file import read_secret

PREFIX: Final = "omqt_"
"""So that a token that lies about is known for what it is."""
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_LINE: Final = f"name:sha256:user:scopes[:YYYY-MM-DD], scopes of {' '.join(SCOPES)}"


@dataclass(frozen=True, slots=True)
class Token:
    """One line."""

    name: str
    user: str
    scopes: frozenset[str]
    until: date | None

    def over(self, now: datetime) -> bool:
        """Whether its last day has passed."""
        return self.until is not None and now.astimezone(UTC).date() > self.until


def digest(token: str) -> str:
    """What the file keeps of a token; of any bytes of a header, too."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def make(name: str, user: str, scopes: Sequence[str], until: str = "") -> tuple[str, str]:
    """(a new token, its line for the file)."""
    token = PREFIX + secrets.token_urlsafe(32)
    return token, f"{name}:{digest(token)}:{user}:{' '.join(scopes)}{':' + until if until else ''}"


def load_tokens(conf_dir: Path, path: str) -> Mapping[str, Token]:
    """By what the file keeps of each. ConfigError."""
    found: dict[str, Token] = {}
    names: set[str] = set()
    for number, line in enumerate(read_secret(conf_dir, "web_tokens", path).splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split(":")]
        token = read_line(parts)
        if token is None or token.name in names or parts[1] in found:
            raise ConfigError(file=Path(path), line=number, key="web_tokens",
                              reason="it is not a token, or is there twice", allowed=_LINE)
        names.add(token.name)
        found[parts[1]] = token
    return found


def read_line(parts: Sequence[str]) -> Token | None:
    """The token of a line that was split; None: it is none."""
    if len(parts) not in (4, 5) or not _NAME.fullmatch(parts[0]) or not _HASH.fullmatch(parts[1]):
        return None
    scopes = frozenset(parts[3].replace(",", " ").split())
    if not parts[2] or not scopes or not scopes <= set(SCOPES):
        return None
    try:
        until = date.fromisoformat(parts[4]) if len(parts) == 5 and parts[4] else None
    except ValueError:
        return None
    return Token(parts[0], parts[2], scopes, until)
