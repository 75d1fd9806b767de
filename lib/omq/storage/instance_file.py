"""`instance.json`: whose spool it is, and what it is of the instance: the one that serves, or a
standby of it (ADR 0120).

    {"format": 1, "uuid": "32 hexadecimal digits"}
    {"format": 2, "uuid": ..., "term": 3, "role": "primary", "member": "b", "primary": ""}

Format 1 is a primary of term 0 without a name, and a spool that never had a standby stays so: an
omq that knows no terms may start it. Format 2 is refused by such an omq, which would serve a
standby, and give its messages the numbers of the primary's.

Invariants: 1. the file appears by rename, whole and synced; 2. `uuid` never changes; 3. `term` only
rises, and it rises only with `role` becoming primary (a promotion: one write) or with another
member's promotion that this one follows; 4. who is not a primary serves nobody.

In the middle of a crash: the file before, or the new one.

Errors: NewerFormat, NeedsRepair of `decode`; DiskError, SpoolFull of `write`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from omq.base.errors import NeedsRepair, NewerFormat
from omq.base.names import escape
from omq.base.paths import SpoolPaths
from omq.storage.files import write_new_file

FORMAT: Final = 2
FORMAT_ALONE: Final = 1
BYTES_MAX: Final = 4096
TERM_MAX: Final = 1 << 12
"""Promotions that numbers have room for: see LEAP."""
LEAP: Final = 1 << 40
"""LSNs and QPoolIds that a new term leaves free after the last number of the one before. Who went
on under the old term would have to write as many frames until two messages had one number: more
than a year at 30,000 frames a second. All terms together stay below 2**53, up to where programs
that keep numbers as doubles count exactly."""
_UUID: Final = re.compile(r"[0-9a-fA-F]{32}")
_MEMBER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")
PRIMARY_MAX: Final = 500
UNNAMED: Final = "former"
"""The name of a former primary that never had one."""


class Role(Enum):
    """What a spool is of its instance."""

    PRIMARY = "primary"  # its queue manager may start
    STANDBY = "standby"  # it follows a primary
    FORMER = "former"  # it was one; another member was promoted since

    @property
    def words(self) -> str:
        """What it is, in a sentence."""
        return "former primary" if self is Role.FORMER else self.value


@dataclass(frozen=True, slots=True)
class Instance:
    """What instance.json says."""

    uuid: bytes  # 16 bytes
    term: int = 0  # promotions so far; 0: there never was a standby
    role: Role = Role.PRIMARY
    member: str = ""  # its name among the members
    primary: str = ""  # where the primary is, for people; empty: not known, or here

    @property
    def alone(self) -> bool:
        """Is it one that never had a standby?"""
        return (self.term, self.role, self.member) == (0, Role.PRIMARY, "")

    def encode(self) -> bytes:
        """The file."""
        found: dict[str, Any] = {"format": FORMAT_ALONE, "uuid": self.uuid.hex()}
        if not self.alone:
            found |= {"format": FORMAT, "term": self.term, "role": self.role.value,
                      "member": self.member, "primary": self.primary}
        data = (json.dumps(found) + "\n").encode()
        assert not _wrong(data, found), _wrong(data, found)
        return data


def is_member_name(name: str) -> bool:
    """May a member be called so?"""
    return _MEMBER.fullmatch(name) is not None


def identity_command(root: Path) -> str:
    """What makes instance.json anew."""
    return f"omqrecover identity {escape(str(root))}"


def write(paths: SpoolPaths, instance: Instance) -> None:
    """From now on the spool is this. One rename, synced: see the module."""
    write_new_file(paths.uuid, [instance.encode()]).close()


def decode(data: bytes, file: Path) -> Instance:
    """What the bytes of `file` say. NewerFormat, NeedsRepair."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    version = found.get("format") if isinstance(found, dict) else None
    if isinstance(version, int) and version > FORMAT:
        raise NewerFormat(file=file, version=version, known=FORMAT)
    wrong = _wrong(data, found)
    if wrong:
        raise NeedsRepair(path=file, reason=wrong, command=identity_command(file.parent))
    uuid = bytes.fromhex(found["uuid"])
    if version == FORMAT_ALONE:
        return Instance(uuid)
    return Instance(uuid, found["term"], Role(found["role"]), found["member"], found["primary"])


def _wrong(data: bytes, found: object) -> str:
    """What is the matter with instance.json; empty for a whole one."""
    if not data.strip(b"\0 \r\n\t"):
        return "it is empty"
    if not isinstance(found, dict):
        return "it is not an instance file (no JSON object)"
    version, text = found.get("format"), found.get("uuid")
    if type(version) is not int or version < 1:
        return "its format is not a version number"
    if not isinstance(text, str) or _UUID.fullmatch(text) is None:
        return "its uuid is not 32 hexadecimal digits"
    return _wrong_member(found) if version >= FORMAT else ""


def _wrong_member(found: dict[str, Any]) -> str:
    term, role, member = found.get("term"), found.get("role"), found.get("member")
    primary = found.get("primary")
    if type(term) is not int or not 0 <= term <= TERM_MAX:
        return f"its term is not a number from 0 to {TERM_MAX}"
    if role not in [each.value for each in Role]:
        return f"its role is not one of {', '.join(each.value for each in Role)}"
    if not isinstance(member, str) or not is_member_name(member):
        return "its member is not a name (letters, digits, _ . -, 32 at most)"
    if not isinstance(primary, str) or len(primary) > PRIMARY_MAX or not primary.isprintable():
        return "its primary is not text"
    return ""
