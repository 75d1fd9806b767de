"""A mail as content checks look at it: fields of its header, of the headers of its parts and of
attached messages, and lines of its body. It is taken apart for looking alone, never put together.

What is found is what readers of mail find, with Postfix's liberties: a boundary is known by its
beginning; beyond NESTING_MAX levels what follows is text.

Invariants: 1. pieces come in their order, and do not overlap; 2. no errors, on any bytes; 3. of the
lines of each part SEGMENT_BYTES_MAX are seen, of all together BODY_BYTES_MAX; what follows is only
searched for the next part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from omq.base.limits import KIB, MIB
from omq.services.mail.mail_message import header_fields

NESTING_MAX: Final = 100
SEGMENT_BYTES_MAX: Final = 50 * KIB  # as Postfix's body_checks_size_limit
BODY_BYTES_MAX: Final = 1 * MIB
_TYPE_BYTES_MAX: Final = 8 * KIB
_BOUNDARY: Final = re.compile(rb';\s*boundary\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))', re.I)
_MULTIPART: Final = re.compile(rb"\s*multipart\s*/", re.I)
_MESSAGE: Final = re.compile(rb"\s*message\s*/\s*(?:rfc822|global|news)\b", re.I)
_EMPTY: Final = re.compile(rb"\r?\n")


class Kind(Enum):
    """What a piece is."""

    HEADER = "header"
    MIME_HEADER = "mime_header"
    NESTED_HEADER = "nested_header"
    BODY = "body"


@dataclass(frozen=True, slots=True)
class Piece:
    """A field with its folded lines, or a line; with its line end."""

    kind: Kind
    start: int
    end: int


class Pieces:
    """Of one text."""

    def __init__(self, text: bytes, scan_bytes: int) -> None:
        self._text, self._scan_bytes = text, scan_bytes
        self._boundaries: list[bytes] = []
        self._at = 0

    def __iter__(self) -> Iterator[Piece]:
        yield from self._header(Kind.HEADER)
        text, whole = self._text, BODY_BYTES_MAX
        segment = SEGMENT_BYTES_MAX
        while self._at < len(text):
            if min(segment, whole) <= 0 and not self._skip():
                return
            end = text.find(b"\n", self._at) + 1 or len(text)
            if self._boundaries and text.startswith(b"--", self._at) and (
                    is_part := self._ends_part(end)) is not None:
                self._at, segment = end, SEGMENT_BYTES_MAX
                if is_part:
                    yield from self._header(Kind.MIME_HEADER)
                continue
            if min(segment, whole) > 0:
                yield Piece(Kind.BODY, self._at, end)
            segment, whole, self._at = segment - end + self._at, whole - end + self._at, end

    def _skip(self) -> bool:
        """To the next line that may be a boundary."""
        found = self._text.find(b"\n--", self._at - 1) + 1 if self._boundaries else 0
        self._at = found
        return bool(found)

    def _ends_part(self, end: int) -> bool | None:
        """Whether another part follows this line; None: it is not a boundary."""
        for depth in reversed(range(len(self._boundaries))):
            boundary = self._boundaries[depth]
            if self._text.startswith(boundary, self._at, end):
                last = self._text.startswith(b"--", self._at + len(boundary), end)
                del self._boundaries[depth + (not last) :]
                return not last
        return None

    def _header(self, kind: Kind) -> Iterator[Piece]:
        """The fields from here on, and those of a message that follows."""
        text = self._text
        for _ in range(NESTING_MAX):
            message = False
            for name, start, end in header_fields(text, self._scan_bytes, self._at):
                yield Piece(kind, start, end)
                self._at = end
                if name == b"content-type":
                    value = text[start : min(end, start + _TYPE_BYTES_MAX)].partition(b":")[2]
                    message = message or _MESSAGE.match(value) is not None
                    self._begin(value)
            empty = _EMPTY.match(text, self._at)
            if empty is not None:
                self._at = empty.end()
            if not message:
                return
            kind = Kind.NESTED_HEADER

    def _begin(self, value: bytes) -> None:
        """A Content-Type may say where its parts begin."""
        found = _BOUNDARY.search(value) if _MULTIPART.match(value) else None
        if found is not None and len(self._boundaries) < NESTING_MAX:
            quoted = re.sub(rb"\\(.)", rb"\1", found[1], flags=re.DOTALL) if found[1] else b""
            name = (quoted or found[2] or b"").rstrip()
            if name:
                self._boundaries.append(b"--" + name)
