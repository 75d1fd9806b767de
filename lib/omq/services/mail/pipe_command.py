"""A command of routes.conf that mail is piped to, or that answers for a map. Errors: none."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pipe:
    """A command that takes mail: whose rights it has, its words."""

    user: str
    words: tuple[str, ...]
