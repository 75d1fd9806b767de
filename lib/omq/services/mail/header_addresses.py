"""Where the addresses in the fields of a header stand, to the byte, so that one can be replaced and
nothing else of the mail changes: neither folding nor comments, names of people, 8-bit characters.

A field whose grammar is broken (a quote or a comment without an end, brackets that do not match)
has no addresses here: it stays as it is. So does an address with white space or a comment in its
middle, a name without a domain, and what is not UTF-8.

Invariants: 1. linear in the length of the field, whatever it holds; 2. no errors.

Source: RFC 5322 section 3.4, with the routes and the liberties of section 4.4.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

SENDER_FIELDS: Final = frozenset((
    b"from", b"sender", b"reply-to", b"resent-from", b"resent-sender", b"resent-reply-to",
    b"errors-to", b"disposition-notification-to", b"return-receipt-to", b"mail-followup-to"))
RECIPIENT_FIELDS: Final = frozenset((
    b"to", b"cc", b"bcc", b"resent-to", b"resent-cc", b"resent-bcc", b"apparently-to"))

_TOKEN: Final = re.compile(
    rb'(?P<space>[ \t\r\n]+)|(?P<quoted>"(?:[^"\\]|\\.)*")|(?P<literal>\[(?:[^\[\]\\]|\\.)*\])'
    rb'|(?P<atom>[^\s()<>\[\]:;@\\,."]+)|(?P<special>[(<>,;:@.])', re.DOTALL)
_IN_COMMENT: Final = re.compile(rb"\\.|[()]", re.DOTALL)
_WORD: Final = ("atom", "quoted")


@dataclass(frozen=True, slots=True)
class Found:
    """An address from `start` to `end` of the field."""

    start: int
    end: int
    address: str


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # the special character itself, or the group of _TOKEN
    start: int
    end: int


def addresses_in(field: bytes) -> tuple[Found, ...]:
    """Those of a field, its name included; () where its grammar is broken."""
    found: list[Found] = []
    piece: list[_Token] = []  # of one address, without comments
    inner: list[_Token] | None = None  # in its angle brackets
    done = False  # the brackets were closed
    for token in _tokens(field, field.find(b":") + 1):
        kind = token.kind
        if kind == "wrong":
            return ()
        if inner is not None:
            if kind == ">":
                found += _address(field, _without_route(inner))
                inner, done = None, True
            elif kind in "<;" or (kind == "," and (not inner or inner[0].kind != "@")):
                return ()
            else:
                inner.append(token)
        elif kind in (",", ";", ":"):
            if not done and kind != ":":  # what is before a colon is the name of a group
                found += _address(field, piece)
            piece, done = [], False
        elif kind == "<":
            if done:
                return ()
            inner = []
        elif kind == ">":
            return ()
        elif not done:
            piece.append(token)
    if inner is not None:
        return ()
    return (*found, *(() if done else _address(field, piece)))


def _tokens(field: bytes, at: int) -> Iterator[_Token]:
    """What means something; "wrong" where it does not go on."""
    while at < len(field):
        match = _TOKEN.match(field, at)
        if match is None:
            yield _Token("wrong", at, at)
            return
        kind, start, at = match.lastgroup or "", at, match.end()
        if kind == "space":
            continue
        if kind != "special":
            yield _Token(kind, start, at)
        elif field[start : start + 1] == b"(":
            at = _comment_end(field, at)
            if not at:
                yield _Token("wrong", start, start)
                return
        else:
            yield _Token(chr(field[start]), start, at)


def _comment_end(field: bytes, at: int) -> int:
    """After the comment that is open at `at`; 0: it has no end."""
    depth = 1
    for match in _IN_COMMENT.finditer(field, at):
        depth += {b"(": 1, b")": -1}.get(match[0], 0)
        if not depth:
            return match.end()
    return 0


def _without_route(tokens: list[_Token]) -> list[_Token]:
    """What follows `@one,@two:`."""
    if tokens and tokens[0].kind == "@":
        colon = next((number for number, each in enumerate(tokens) if each.kind == ":"), -1)
        return tokens[colon + 1 :]
    return tokens


def _address(field: bytes, tokens: list[_Token]) -> Iterator[Found]:
    """The address that these are, if they are one."""
    kinds = [each.kind for each in tokens]
    at = kinds.index("@") if "@" in kinds else 0
    if not at or at + 1 == len(kinds):
        return
    local, domain = kinds[:at], kinds[at + 1 :]
    if not all(each == "." or each in _WORD for each in local) or not (
            domain == ["literal"] or all(each in (".", "atom") for each in domain)):
        return
    if any(tokens[number].end != tokens[number + 1].start for number in range(len(tokens) - 1)):
        return
    try:
        text = field[tokens[0].start : tokens[-1].end].decode("utf-8")
    except UnicodeDecodeError:
        return
    if "\n" not in text and "\r" not in text:
        yield Found(tokens[0].start, tokens[-1].end, text)
