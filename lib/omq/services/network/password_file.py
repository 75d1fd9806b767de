"""A file of those who have a password here: `submission_users`, `amqp_users`.

    # a comment, on a line of its own
    alice:$argon2id$v=19$m=65536,t=3,p=4$...$...
    bob@example.org:{ARGON2ID}$argon2id$...          as `doveadm pw -s ARGON2ID` prints it

The library is argon2-cffi (the extras omq[mail] and omq[amqp]): its hashes say by themselves how
they are checked. The time for a name that is not there is that of one that is. It is read whole at
the start and at a reload.

Errors: ConfigError with file and line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from omq.base.errors import ConfigError
from omq.services.network.secret_file import read_secret, wrong

if TYPE_CHECKING:
    from collections.abc import Mapping

_SCHEME: Final = re.compile(r"\{ARGON2I?D?\}", re.IGNORECASE)
_LINE: Final = "name:hash, the hash one of argon2 ($argon2id$...)"


@dataclass(frozen=True, slots=True, repr=False)
class Users:
    """Names and hashes."""

    hashes: Mapping[str, str]

    def check(self, name: str, password: str) -> bool:
        """Whether this is the password. It takes its time, on purpose, and no lock.
        argon2.exceptions.Argon2Error: it could not be looked at (no memory for it): no answer."""
        import argon2

        known = self.hashes.get(name)
        one_of_them = next(iter(self.hashes.values()))
        try:
            argon2.PasswordHasher().verify(known or one_of_them, password)
        except argon2.exceptions.VerifyMismatchError:
            return False
        return known is not None


def load_users(conf_dir: Path, path: str, setting: str = "submission_users",
               extra: str = "omq-base[mail]") -> Users:
    """The users in the file that `setting` names. ConfigError."""
    try:
        import argon2
    except ImportError as error:
        raise wrong(conf_dir, setting, "the package argon2-cffi is missing",
                    f"pip install '{extra}'") from error
    found: dict[str, str] = {}
    for number, line in enumerate(read_secret(conf_dir, setting, path).splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, given = line.strip().partition(":")
        text = _SCHEME.sub("", given, count=1)
        try:
            argon2.extract_parameters(text)
        except argon2.exceptions.InvalidHashError as error:
            raise ConfigError(file=Path(path), line=number, key=name or setting,
                              reason="there is no hash after the colon", allowed=_LINE) from error
        if not name or name in found:
            raise ConfigError(file=Path(path), line=number, key=name or setting,
                              reason="the name is missing, or is there twice", allowed=_LINE)
        found[name] = text
    if not found:
        raise wrong(conf_dir, setting, f"{path} has no users", _LINE)
    return Users(found)
