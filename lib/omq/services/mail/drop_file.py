"""A file of the maildrop: one mail that a program of this host handed in, before it is on a queue.

    maildrop/TIME-ID.mail    TIME: when it came, wall clock ns since 1970, 20 digits;
                             ID: the mail's own, 48 hexadecimal digits

    OMQDROP1 CRC LF          CRC: CRC-32C of all that follows, 8 hexadecimal digits
    {...} LF                 "id", "uid" (who handed it in, as the kernel says), "arrival" (TIME),
                             "priority", "properties" (those of the message to put)
    the text                 as it will be put: CRLF, with its Received field

Invariants: 1. a file is made whole and durable under its name (storage.files.write_new_file), and
never changed; 2. nothing of it is believed before the CRC is right.

Errors: DropDamaged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from omq.base import limits
from omq.base.checksum import crc32c
from omq.base.errors import DropDamaged

MAGIC: Final = b"OMQDROP1 "
NAME: Final = re.compile(r"([0-9]{20})-([0-9a-f]{48})\.mail")
_START_BYTES: Final = len(MAGIC) + 8 + 1
HEAD_BYTES_MAX: Final = 256 * limits.KIB
"""Properties: 32 KiB of recipients at most, and what their senders want to be told."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """One mail."""

    mail_id: str  # 48 hex digits
    uid: int
    arrival_ns: int  # wall clock
    priority: int
    properties: Mapping[str, str]
    body: bytes

    @property
    def name(self) -> str:
        """Of its file: in the order of arrival."""
        return f"{self.arrival_ns:020d}-{self.mail_id}.mail"


def encode(mail: Dropped) -> bytes:
    """The bytes of its file."""
    head = json.dumps({"id": mail.mail_id, "uid": mail.uid, "arrival": mail.arrival_ns,
                       "priority": mail.priority, "properties": dict(mail.properties)})
    rest = head.encode() + b"\n" + mail.body
    return b"%s%08x\n%s" % (MAGIC, crc32c(rest), rest)


def decode(data: bytes, name: str) -> Dropped:
    """What the bytes of the file `name` say. DropDamaged."""
    start, rest = data[:_START_BYTES], data[_START_BYTES:]
    if not start.startswith(MAGIC):
        raise DropDamaged(file=name, reason="it does not begin as a file of the maildrop does")
    if start != b"%s%08x\n" % (MAGIC, crc32c(rest)):
        raise DropDamaged(file=name, reason="its checksum is wrong")
    head, newline, body = rest.partition(b"\n")
    try:
        found = _decoded(json.loads(head), body)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DropDamaged(file=name, reason=f"its head cannot be read: {error}") from error
    if not newline or found.name != name:
        raise DropDamaged(file=name, reason="it has another name than it was given")
    return found


def _decoded(head: dict[str, Any], body: bytes) -> Dropped:
    properties = head["properties"]
    if not all(type(value) is str for value in properties.values()):
        raise ValueError("a property is not text")
    return Dropped(str(head["id"]), int(head["uid"]), int(head["arrival"]), int(head["priority"]),
                   properties, body)
