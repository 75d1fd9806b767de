"""The words of a selector: identifiers, texts, numbers, operators; each with its place.

Invariants: 1. every character is looked at once; 2. a selector has at most BYTES_MAX bytes and
TOKENS_MAX words. Errors: BadSelector.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from omq.base.errors import BadSelector
from omq.base.names import escape

BYTES_MAX: Final = 4096
TOKENS_MAX: Final = 1000
INTEGER_MAX: Final = (1 << 63) - 1
KEYWORDS: Final = frozenset(
    ("AND", "OR", "NOT", "IN", "LIKE", "ESCAPE", "BETWEEN", "IS", "NULL", "TRUE", "FALSE"))
_SPACE: Final = re.compile(r"\s*")
_TOKEN: Final = re.compile(
    r"(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![A-Za-z_$]))"
    r"|(?P<text>'(?:[^']|'')*')"
    r'|(?P<quoted>"(?:[^"]|"")+")'
    r"|(?P<word>(?:property|header):[^\s=<>!~()'\",]+|[^\W\d][\w$.]*|\$[\w$.]*)"
    r"|(?P<operator><>|!=|<=|>=|[=<>()+*/,-])")


class Kind(Enum):
    """What a word is."""

    NUMBER = "a number"
    TEXT = "a text"
    NAME = "a name"
    KEYWORD = "a keyword"
    OPERATOR = "an operator"
    END = "the end"


@dataclass(frozen=True, slots=True)
class Token:
    """A word; `at`: where it begins, `end`: what is after it."""

    kind: Kind
    value: str | int | float
    at: int
    end: int


def unquoted(text: str, at: int) -> Iterator[tuple[int, str]]:
    """(place, character) of all from `at` on that are in no quotes, nor are some."""
    quote = ""
    for place in range(at, len(text)):
        each = text[place]
        if quote:
            quote = "" if each == quote else quote
        elif each in "'\"":
            quote = each
        else:
            yield place, each


class Tokens:
    """The words of `text`, one ahead."""

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text.encode("utf-8", "replace")) > BYTES_MAX:
            raise BadSelector(selector=escape(text), position=BYTES_MAX,
                              reason=f"longer than {BYTES_MAX} bytes")
        self._count = 0
        self.now = self._token(0)

    def wrong(self, reason: str, at: int | None = None) -> BadSelector:
        """The error for the word that stands here (or at another place)."""
        place = self.now.at if at is None else at
        return BadSelector(selector=escape(self.text), position=place + 1, reason=reason)

    def step(self) -> Token:
        """The word that stands here; then the next one stands here."""
        token = self.now
        self.jump(token.end)
        return token

    def jump(self, at: int) -> None:
        """Go on with the word at this place."""
        self._count += 1
        if self._count > TOKENS_MAX:
            raise self.wrong(f"more than {TOKENS_MAX} words")
        self.now = self._token(at)

    def has(self, *words: str) -> bool:
        """Whether one of these keywords or operators stands here."""
        return self.now.kind in (Kind.KEYWORD, Kind.OPERATOR) and self.now.value in words

    def take(self, *words: str) -> str | None:
        """The one of these keywords or operators that stands here, and past it."""
        return str(self.step().value) if self.has(*words) else None

    def want(self, word: str) -> None:
        """It must stand here."""
        if self.take(word) is None:
            raise self.wrong(f"here stands {word}")

    def _token(self, at: int) -> Token:
        begin = _SPACE.match(self.text, at).end()  # type: ignore[union-attr]
        if begin == len(self.text):
            return Token(Kind.END, "", begin, begin)
        match = _TOKEN.match(self.text, begin)
        if match is None:
            reason = "this text has no end" if self.text[begin] in "'\"" else (
                f"{escape(self.text[begin : begin + 12])!r} means nothing here")
            raise BadSelector(selector=escape(self.text), position=begin + 1, reason=reason)
        raw, end = match[0], match.end()
        kind = match.lastgroup
        if kind == "number":
            return Token(Kind.NUMBER, self._number(raw, begin), begin, end)
        if kind == "text":
            return Token(Kind.TEXT, raw[1:-1].replace("''", "'"), begin, end)
        if kind == "quoted":
            return Token(Kind.NAME, raw[1:-1].replace('""', '"'), begin, end)
        if kind == "operator":
            return Token(Kind.OPERATOR, "<>" if raw == "!=" else raw, begin, end)
        if raw.upper() in KEYWORDS:
            return Token(Kind.KEYWORD, raw.upper(), begin, end)
        return Token(Kind.NAME, raw, begin, end)

    def _number(self, raw: str, at: int) -> int | float:
        if raw.isdigit():
            value = int(raw) if len(raw) < 20 else INTEGER_MAX + 1
            if value > INTEGER_MAX:
                raise BadSelector(selector=escape(self.text), position=at + 1,
                                  reason="a whole number has 64 bits at most")
            return value
        return float(raw)
