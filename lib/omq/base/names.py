"""Names: which are allowed, and how hostile text is shown on a terminal.

Queue names are upper case as in the original (ROUTER, LOCAL, UNIX), service and instance names
lower case, so that the two are easy to distinguish. All are pure ASCII, fit the fixed-width fields
of the formats and are safe as file names and as command line words: none is made of dots alone, and
service and instance names never start with a dash.

Errors: BadName, BadProperty, BadPriority, BadRequest (a malformed message id).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from omq.base import limits
from omq.base.errors import BadName, BadPriority, BadProperty, BadRequest

ROUTER: Final = "ROUTER"
LOCAL: Final = "LOCAL"
UNIX: Final = "UNIX"
ERRMGR: Final = "ERRMGR"
ERROR: Final = "ERROR"
DEFER: Final = "DEFER"
IDEL_NAME: Final = "IDEL"
POISON_NAME: Final = "POISON"

SPECIAL_NAMES: Final = (IDEL_NAME, POISON_NAME)
EXCHANGES, CHANNELS = "SYSTEM.EXCHANGES", "SYSTEM.CHANNELS"
KEPT_RECORDS: Final = (EXCHANGES, CHANNELS)
"""Their messages are records, which stay: whoever takes one takes an exchange, or what says up to
where a channel has come. So nobody reads them, and no tool is to say that somebody should."""
"""They always exist and only the queue manager puts on them."""
TRACE_PROPERTIES: Final = ("traceparent", "tracestate")
"""The context of a trace, of W3C Trace Context; properties go where their message goes."""

QUEUE_RULE: Final = "1 to 16 of A-Z, 0-9, '_' and '.', not dots alone"
SERVICE_RULE: Final = "1 to 16 of a-z, 0-9, '_', '.' and '-', not dots alone, no '-' first"
INSTANCE_RULE: Final = "1 to 16 of a-z, 0-9 and '-', no '-' first"
CLIENT_RULE: Final = "1 to 16 printable ASCII characters without space"
ID_RULE: Final = "up to 24 bytes, as bytes, as text, or as 48 hexadecimal digits"
PROPERTY_RULE: Final = (
    "1 to 64 of A-Z, a-z, 0-9, '_', '.', ':' and '-', a letter, digit or '_' first")

_QUEUE = re.compile(r"(?!\.+\Z)[A-Z0-9_.]{1,16}")
_SERVICE = re.compile(r"(?!\.+\Z)[a-z0-9_.][a-z0-9_.-]{0,15}")
_INSTANCE = re.compile(r"[a-z0-9][a-z0-9-]{0,15}")
_CLIENT = re.compile(r"[!-~]{1,16}")
_PROPERTY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,63}")
_MESSAGE_ID = re.compile(r"[0-9a-fA-F]{48}")
_TEXT_ID = re.compile(rb"(?![0-9]+\Z)[!-~]{1,24}")  # digits alone would be a QPoolId

_PRIORITY_WORDS: Final = {
    "urgent": limits.PRIORITY_URGENT,
    "normal": limits.PRIORITY_NORMAL,
    "low": limits.PRIORITY_LOW,
}


@lru_cache(1024)  # a client asks four times a request, about few names
def check_queue_name(name: str) -> str:
    """The name itself, or BadName."""
    if _QUEUE.fullmatch(name) is None:
        raise BadName(kind="queue", name=name, rule=QUEUE_RULE)
    return name


def check_schedule_name(name: str) -> str:
    """The name itself, or BadName: a schedule is named as queues are."""
    if _QUEUE.fullmatch(name) is None:
        raise BadName(kind="schedule", name=name, rule=QUEUE_RULE)
    return name


def check_service_name(name: str) -> str:
    """The name itself, or BadName."""
    if _SERVICE.fullmatch(name) is None:
        raise BadName(kind="service", name=name, rule=SERVICE_RULE)
    return name


def check_instance_name(name: str) -> str:
    """The name itself, or BadName."""
    if _INSTANCE.fullmatch(name) is None:
        raise BadName(kind="instance", name=name, rule=INSTANCE_RULE)
    return name


def check_client_name(name: str) -> str:
    """The name itself, or BadName. Clients name themselves for listings only."""
    if _CLIENT.fullmatch(name) is None:
        raise BadName(kind="client", name=name, rule=CLIENT_RULE)
    return name


def check_property_name(name: str) -> str:
    """The name itself, or BadProperty."""
    if not is_property_name(name):
        raise BadProperty(name=escape(name), rule=PROPERTY_RULE)
    return name


def is_property_name(name: str) -> bool:
    """Whether a property may have it."""
    return _PROPERTY.fullmatch(name) is not None


def check_priority(priority: int) -> int:
    """The priority itself, or BadPriority."""
    if not 0 <= priority < limits.PRIORITIES:
        raise BadPriority(priority=priority)
    return priority


def parse_priority(text: str) -> int:
    """A priority as people write it: 0 to 9, or urgent, normal, low."""
    word = _PRIORITY_WORDS.get(text.strip().lower())
    if word is not None:
        return word
    if not re.fullmatch(r"[0-9]", text.strip()):
        raise BadPriority(priority=repr(text))
    return int(text)


def message_id_text(message_id: bytes) -> str:
    """A 24-byte message id for people: the text that it is (printable ASCII without space, filled
    with zeros), else 48 hexadecimal digits. `parse_message_id` makes the same id of it."""
    assert len(message_id) == limits.MESSAGE_ID_BYTES
    raw = message_id.rstrip(b"\0")
    return raw.decode() if _TEXT_ID.fullmatch(raw) else message_id.hex()


def id_bytes(text: str) -> bytes | None:
    """The bytes (24 or fewer) of an id as text, see `message_id_text`; None: it is too long."""
    if _MESSAGE_ID.fullmatch(text):
        return bytes.fromhex(text)
    raw = text.encode()
    return raw if len(raw) <= limits.MESSAGE_ID_BYTES else None


def parse_message_id(text: str) -> bytes:
    """The 24 bytes of a message id written as 48 hexadecimal digits or as the text that it is, or
    BadRequest."""
    raw = id_bytes(text)
    if raw is None or not (_MESSAGE_ID.fullmatch(text) or _TEXT_ID.fullmatch(raw)):
        raise BadRequest(reason=f"message id {escape(text, 64)!r} is neither 48 hexadecimal "
                         "digits nor a text of 1 to 24 characters")
    return raw.ljust(limits.MESSAGE_ID_BYTES, b"\0")


def escape(text: str | bytes, limit: int = 256) -> str:
    """`text` safe for a terminal and for one line: control, bidirectional and undecodable
    characters become \\xNN or \\uNNNN; at most `limit` characters are shown, then '...'."""
    decoded = text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else text
    cut = decoded[:limit]
    shown = cut if cut.isascii() and cut.isprintable() else "".join(map(_visible, cut))
    return shown + ("..." if len(decoded) > limit else "")


def _visible(character: str) -> str:
    # str.isprintable is false for controls, separators other than space, surrogates and the
    # format characters (Cf), among them those that turn the writing direction.
    if character.isprintable():
        return character
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
