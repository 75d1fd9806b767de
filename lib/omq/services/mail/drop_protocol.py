"""What omq-sendmail and mail.drop say to each other over run/drop.sock, once or several times.

    client: {...} LF, then `size` bytes: a draft (mail.drafts)
            sender   the envelope's; null: the user at this host; "": the null sender
            to       recipients, as they were given     read     also those of To, Cc and Bcc
            name     of a person, for a From field
            notify, ret, envid                          as in RFC 3461; "": no wish
    server: {"id": "48 hexadecimal digits"} LF: the mail is safe
            {"status": N, "fields": {...}} LF: it is not taken; the error of omq.base.errors. The
            server closes then, but after an error of this mail alone (BadRequest).

Nothing that a client says of itself is believed: who it is says the kernel.

Errors: BadRequest.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from omq.base.errors import BadRequest, OmqError
from omq.base.limits import KIB

HEAD_BYTES_MAX: Final = 256 * KIB
ANSWER_BYTES_MAX: Final = 4 * KIB
TEXT_CHARACTERS_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class Request:
    """One mail that is handed in; see the module."""

    size: int
    sender: str | None = None
    to: tuple[str, ...] = ()
    read: bool = False
    name: str = ""
    notify: str = ""
    ret: str = ""
    envid: str = ""

    def encode(self) -> bytes:
        """The line."""
        return json.dumps(asdict(self)).encode("ascii") + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Request:
        """What the line says. BadRequest."""
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadRequest(reason="this is not a request of omq-sendmail") from error
        if not isinstance(found, dict):
            raise BadRequest(reason="this is not a request of omq-sendmail")
        to = found.get("to", ())
        if not isinstance(to, list | tuple) or not all(type(each) is str for each in to):
            raise BadRequest(reason="its recipients are not a list")
        if any(not each.isprintable() for each in to):
            raise BadRequest(reason="a recipient has a control character")
        sender = found.get("sender")
        if sender is not None and type(sender) is not str:
            raise BadRequest(reason="its sender is not text")
        size = found.get("size")
        if type(size) is not int or size < 0:
            raise BadRequest(reason="it does not say how long the mail is")
        return cls(size, sender, tuple(to), found.get("read") is True,
                   **{key: _text(found, key) for key in ("name", "notify", "ret", "envid")})


def _text(found: dict[str, Any], key: str) -> str:
    value = found.get(key, "")
    if type(value) is not str:
        raise BadRequest(reason=f"its {key} is not text")
    return value


def taken(mail_id: str) -> bytes:
    """The answer to a mail that is safe."""
    return json.dumps({"id": mail_id}).encode() + b"\n"


def refused(error: OmqError) -> bytes:
    """The answer to one that is not taken."""
    fields = {key: value if isinstance(value, int | float) else str(value)[:TEXT_CHARACTERS_MAX]
              for key, value in error.fields.items()}
    return json.dumps({"status": error.status, "fields": fields}).encode() + b"\n"
