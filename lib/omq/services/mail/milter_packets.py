"""The milter protocol, version 6: its packets. Pure: bytes in, values out.

    length (u32, big endian: of what follows)   command (1 byte)   data

Sources: the protocol as Sendmail's libmilter speaks it (include/libmilter/mfdef.h names and numbers
everything here), its description in Todd Vierling's "milter-protocol.txt".

Invariants: 1. what a filter says is believed only in its length limit, in the form that its command
has, and at a stage that has it; 2. nothing of it that goes into a header or a reply can end a line
there.

Errors: MilterWrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntFlag
from typing import Final

from omq.base.limits import MIB

VERSION: Final = 6
VERSION_MIN: Final = 2
PACKET_BYTES_MAX: Final = MIB
"""Of a filter; libmilter sends 64 KiB of a body at once."""
CHUNK_BYTES: Final = 65535
CHANGES_MAX: Final = 1000
"""Of a mail by a filter; all pieces of a new body are one."""
REPLY_CHARACTERS_MAX: Final = 1000

CONNECT, HELO, MAIL, RCPT, DATA, HEADER, END_OF_HEADER, BODY, END_OF_BODY = b"CHMRTLNBE"
NEGOTIATE, MACROS, ABORT, QUIT = b"ODAQ"
ACCEPT, CONTINUE, DISCARD, REJECT, TEMPFAIL, REPLY, SKIP, PROGRESS = b"acdrtysp"
ADD_HEADER, INSERT_HEADER, CHANGE_HEADER, REPLACE_BODY, CHANGE_FROM = b"himbe"
ADD_RCPT, ADD_RCPT_ARGS, DELETE_RCPT, QUARANTINE = b"+2-q"

ACTIONS: Final = 0x1FF
"""All changes that there are, and to name the macros that are wanted."""
VERDICTS: Final = frozenset((ACCEPT, CONTINUE, DISCARD, REJECT, TEMPFAIL, REPLY))


class Steps(IntFlag):
    """What a filter wants left out (NO_...), or does not answer (NR_...)."""

    NONE = 0x0
    NO_CONNECT = 0x1
    NO_HELO = 0x2
    NO_MAIL = 0x4
    NO_RCPT = 0x8
    NO_BODY = 0x10
    NO_HEADERS = 0x20
    NO_END_OF_HEADER = 0x40
    NR_HEADER = 0x80
    NO_UNKNOWN = 0x100
    NO_DATA = 0x200
    SKIP = 0x400  # it may have had enough of the body
    NR_CONNECT = 0x1000
    NR_HELO = 0x2000
    NR_MAIL = 0x4000
    NR_RCPT = 0x8000
    NR_DATA = 0x10000
    NR_UNKNOWN = 0x20000
    NR_END_OF_HEADER = 0x40000
    NR_BODY = 0x80000
    LEADING_SPACE = 0x100000  # of a header's value is kept


OFFERED: Final = Steps(sum(Steps))
LEFT_OUT: Final = {CONNECT: Steps.NO_CONNECT, HELO: Steps.NO_HELO, MAIL: Steps.NO_MAIL,
                   RCPT: Steps.NO_RCPT, DATA: Steps.NO_DATA, HEADER: Steps.NO_HEADERS,
                   END_OF_HEADER: Steps.NO_END_OF_HEADER, BODY: Steps.NO_BODY}
UNANSWERED: Final = {CONNECT: Steps.NR_CONNECT, HELO: Steps.NR_HELO, MAIL: Steps.NR_MAIL,
                     RCPT: Steps.NR_RCPT, DATA: Steps.NR_DATA, HEADER: Steps.NR_HEADER,
                     END_OF_HEADER: Steps.NR_END_OF_HEADER, BODY: Steps.NR_BODY}

_NAME: Final = re.compile(rb"[\x21-\x39\x3b-\x7e]{1,200}")
_REPLY: Final = re.compile(r"([45])[0-9][0-9](?:[ -]|\Z)")
_ENHANCED: Final = re.compile(r"[45]\.[0-9]{1,3}\.[0-9]{1,3}(?: |\Z)")


class MilterWrong(Exception):
    """What a filter said that cannot be; its text says what."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change that a filter wants. `index`: of a header, as its command counts; `name` and `value`
    of a header; `value` is otherwise the address, the part of a body, the reason."""

    command: int
    value: bytes
    name: bytes = b""
    index: int = 0


@dataclass(frozen=True, slots=True)
class Negotiated:
    """What both sides do."""

    version: int
    actions: int
    steps: Steps


def packet(command: int, data: bytes = b"") -> bytes:
    """A packet of ours."""
    return _u32(len(data) + 1) + bytes((command,)) + data


def number(data: bytes, at: int = 0) -> int:
    """The u32 there."""
    return int.from_bytes(data[at : at + 4], "big")


def _u32(value: int) -> bytes:
    return value.to_bytes(4, "big")


def strings(parts: Iterable[str | bytes]) -> bytes:
    """Each with its zero byte."""
    return b"".join(_raw(each).replace(b"\0", b"") + b"\0" for each in parts)


def _raw(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")


def offer() -> bytes:
    """Our first packet."""
    return packet(NEGOTIATE, _u32(VERSION) + _u32(ACTIONS) + _u32(OFFERED))


def negotiated(data: bytes) -> Negotiated:
    """What a filter answers to it. MilterWrong."""
    if len(data) < 12:
        raise MilterWrong("its answer to the negotiation is too short")
    version, actions, steps = (number(data, at) for at in (0, 4, 8))
    if not VERSION_MIN <= version <= VERSION:
        raise MilterWrong(f"it speaks version {version}, and here are {VERSION_MIN} to {VERSION}")
    if actions & ~ACTIONS or steps & ~OFFERED:
        raise MilterWrong("it wants what was not offered")
    return Negotiated(version, actions, Steps(steps))


def macros(command: int, values: dict[str, str]) -> bytes:
    """The macros that are sent before a stage; those without a value are left out."""
    pairs = [each for name, value in values.items() if value
             for each in (name if len(name) == 1 else f"{{{name}}}", value)]
    return packet(MACROS, bytes((command,)) + strings(pairs))


def connect(peer: str) -> bytes:
    """The client, by its address; its name is not looked up."""
    if not peer:
        return packet(CONNECT, strings(["localhost"]) + b"U")
    family = b"6" if ":" in peer else b"4"
    return packet(CONNECT, strings([f"[{peer}]"]) + family + b"\0\0" + strings([peer]))


def header(field: bytes, steps: Steps) -> bytes:
    """A field with its folded lines, as the text has it."""
    name, _, value = field.partition(b":")
    value = value.replace(b"\r\n", b"\n").rstrip(b"\n")
    if not steps & Steps.LEADING_SPACE and value[:1] in (b" ", b"\t"):
        value = value[1:]
    return packet(HEADER, strings([name.rstrip(b" \t"), value]))


def change(command: int, data: bytes) -> Change:
    """What a filter wants changed, but for pieces of a body. MilterWrong."""
    if command in (ADD_RCPT, ADD_RCPT_ARGS, DELETE_RCPT, CHANGE_FROM, QUARANTINE):
        value, zero, _ = data.partition(b"\0")
        if not zero:
            raise MilterWrong(f"command {chr(command)} has no end")
        return Change(command, value)
    index = 0
    if command != ADD_HEADER:
        if len(data) < 4:
            raise MilterWrong(f"command {chr(command)} has no index")
        index, data = number(data), data[4:]
    parts = data.split(b"\0")
    if len(parts) != 3 or parts[2] or _NAME.fullmatch(parts[0]) is None:
        raise MilterWrong(f"command {chr(command)} has no name and value of a header")
    return Change(command, parts[1], parts[0], index)


def field(name: bytes, value: bytes, steps: Steps) -> bytes:
    """A field as a filter wants it, fit for a text: folded lines begin with white space, so that no
    value can begin another field, or the body."""
    lines = value.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\0", b"").split(b"\n")
    first, *more = [line.rstrip() if not line.strip() else line for line in lines]
    folded = b"".join(b"\r\n" + (line if line[:1] in (b" ", b"\t") else b"\t" + line)
                      for line in more if line)
    space = b"" if steps & Steps.LEADING_SPACE else b" "
    return name + b":" + space + first + folded + b"\r\n"


def reply(data: bytes) -> str:
    """The SMTP reply that a filter gives, lines ended by CR LF. MilterWrong: it is none, or says
    neither "never" nor "later"."""
    text = data.partition(b"\0")[0].decode("utf-8", "replace").replace("%%", "%")
    lines = [line for line in re.split(r"\r\n|\n|\r", text[:REPLY_CHARACTERS_MAX]) if line]
    if not lines or _REPLY.match(lines[0]) is None:
        raise MilterWrong("its reply is neither 4xx nor 5xx")
    code, found = lines[0][:3], []
    for line in lines:
        words = line[4:] if line[:3] == code and line[3:4] in (" ", "-", "") else line
        words = "".join(each if each.isprintable() else "?" for each in words)
        if not (_ENHANCED.match(words) and words[0] == code[0]):
            words = f"{code[0]}.7.1 {words or 'refused'}"
        found.append(words)
    return "\r\n".join([*(f"{code}-{each}" for each in found[:-1]), f"{code} {found[-1]}"])
