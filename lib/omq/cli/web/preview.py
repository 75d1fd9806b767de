"""A body for people: as text, JSON, the header of a mail, or bytes. Never as what it may be else.

Invariants: 1. no more than `most` bytes are looked at and shown, and a note says when there are
more; 2. what comes out is lines of visible characters (base.names.escape); 3. nothing is decoded
that could grow: no archive, no encoding of a transfer, JSON only as deep as NESTED_MAX.
"""

from __future__ import annotations

import email.policy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from email.errors import MessageError
from email.parser import BytesHeaderParser
from typing import Final

from omq.base.names import escape
from omq.core.select.mail import header

KINDS: Final = {"text": "Text", "json": "JSON", "mail": "Mail header", "hex": "Bytes"}
LINES_MAX: Final = 2000
NESTED_MAX: Final = 50
"""An indentation grows with the depth, and precedes each element: that of a few thousand bytes
would be gigabytes."""
_LINE_MAX: Final = 2000
_HEX_BYTES: Final = 16
_SNIFFED: Final = 4096


@dataclass(frozen=True, slots=True)
class Preview:
    """`note`: what the reader should know of it."""

    kind: str
    lines: tuple[str, ...]
    note: str = ""


def guess(body: bytes, properties: dict[str, str]) -> str:
    """How it is best shown."""
    head = body[:_SNIFFED]
    if any(name.startswith("mail.") for name in properties):
        return "mail"
    if head.lstrip()[:1] in (b"{", b"["):
        return "json"
    odd = sum(each < 9 or 13 < each < 32 for each in head)
    return "hex" if odd > len(head) // 20 else "text"


def preview(body: bytes, kind: str, most: int) -> Preview:
    """The body as this kind; what is not of the kind is shown as text, with a note."""
    cut = body[:most]
    note = f"the first {most:,} of {len(body):,} bytes" if len(body) > most else ""
    if kind == "hex":
        return Preview(kind, _bounded(_hex_lines(cut)), note)
    if kind == "json":
        try:
            found = json.loads(body if len(body) <= most else cut)
            if _nested(found) > NESTED_MAX:
                return Preview(kind, _bounded(_text_lines(cut)), _both(
                    f"nested deeper than {NESTED_MAX}: shown as it is", note))
            text = json.dumps(found, indent=2, ensure_ascii=False)
            return Preview(kind, _bounded(_text_lines(text.encode())), note)
        except (ValueError, RecursionError) as error:
            return Preview("text", _bounded(_text_lines(cut)), _both(
                f"this is not JSON ({escape(str(error), 100)})", note))
    if kind == "mail":
        return Preview(kind, _bounded(_mail_lines(cut)), note)
    return Preview("text", _bounded(_text_lines(cut)), note)


def _nested(found: object) -> int:
    """How deep lists and objects lie in one another; up to one more than what is indented."""
    depth, level = 0, [found]
    while depth <= NESTED_MAX and (level := [each for each in level if isinstance(
            each, list | dict)]):
        depth += 1
        level = [part for each in level for part in (
            each.values() if isinstance(each, dict) else each)]
    return depth


def _both(*notes: str) -> str:
    return "; ".join(filter(None, notes))


def _bounded(lines: Iterator[str]) -> tuple[str, ...]:
    found: list[str] = []
    for line in lines:
        if len(found) == LINES_MAX:
            found.append("...")
            break
        found.append(line)
    return tuple(found)


def _text_lines(data: bytes) -> Iterator[str]:
    for line in data.split(b"\n"):
        yield "\t".join(escape(part, _LINE_MAX) for part in line.removesuffix(b"\r").split(b"\t"))


def _mail_lines(data: bytes) -> Iterator[str]:
    try:
        found = BytesHeaderParser(policy=email.policy.compat32).parsebytes(data)
    except (MessageError, ValueError):
        yield from _text_lines(data)
        return
    for name in dict.fromkeys(found.keys()):
        for value in found.get_all(name, [])[:20]:
            text = header(found, name) if name.lower() in ("subject", "from", "to", "cc") else (
                " ".join(str(value).split()))
            yield f"{escape(name, 100)}: {escape(text, _LINE_MAX)}"


def _hex_lines(data: bytes) -> Iterator[str]:
    for at in range(0, len(data), _HEX_BYTES):
        some = data[at : at + _HEX_BYTES]
        text = "".join(chr(each) if 32 <= each < 127 else "." for each in some)
        yield f"{at:08x}  {some.hex(' '):<47}  {text}"
