"""The grammar of selectors, the one of JMS (Java Message Service 1.1, 3.8.1.1) and a little more.

    condition  := and {OR and}
    and        := not {AND not}          (a word of --where needs no AND next to it)
    not        := [NOT] primary
    primary    := ( condition ) | word | comparison
    comparison := sum (= | <> | != | < | <= | > | >=) sum
                | sum [NOT] BETWEEN sum AND sum
                | name [NOT] IN ( value {, value} )
                | name [NOT] LIKE text [ESCAPE character]
                | name IS [NOT] NULL
    sum        := product {(+ | -) product}      product := sign {(* | /) sign}
    sign       := [+ | -] ( sum ) | number | text | TRUE | FALSE | name

Texts are in single quotes ('it''s'), names in none or in double ones ("my-name"). `word`, if
there is one, says what else a primary may be (core.look.selection: the words of --where).

Invariants: nesting is at most DEPTH_MAX deep, so neither parsing nor testing can use up the stack;
chains of AND, OR, + and * are lists. Errors: BadSelector, with the place.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from omq.core.select.sums import Sum, Sums
from omq.core.select.tokens import Kind, Token, Tokens, unquoted
from omq.core.select.values import (
    COMPARE,
    Lookup,
    Test,
    Truth,
    Value,
    all_of,
    compare,
    not_,
    pattern,
)

T = TypeVar("T")
_GOES_ON: Final = re.compile(r"\s*(?:[=<>+*/-]|!=|(?:NOT\s+)?BETWEEN\b)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Both(Generic[T]):
    """AND or OR of several, or NOT of one."""

    kind: str
    parts: tuple[Both[T] | Condition | T, ...]


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison. `names`: what it asks of a message; `plain`: (name, operator, constant) if it
    is no more than that."""

    test: Test
    names: frozenset[str]
    plain: tuple[str, str, Value] | None = None


class Parser(Sums, Generic[T]):
    """Of one selector."""

    def __init__(self, text: str, word: Callable[[str, int], tuple[T, int] | None] | None = None
                 ) -> None:
        super().__init__(Tokens(text))
        self._word = word

    def parse(self) -> Both[T] | Condition | T:
        """The whole of it. BadSelector."""
        found = self._any()
        if self.tokens.now.kind is not Kind.END:
            raise self.tokens.wrong("a ) without its (" if self.tokens.has(")")
                                     else "here stand AND, OR or the end")
        return found

    def _any(self) -> Both[T] | Condition | T:
        parts = [self._all()]
        while self.tokens.take("OR"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else Both("OR", tuple(parts))

    def _all(self) -> Both[T] | Condition | T:
        parts = [self._not()]
        while self.tokens.take("AND") or self._beside(parts[-1]):
            parts.append(self._not())
        return parts[0] if len(parts) == 1 else Both("AND", tuple(parts))

    def _beside(self, last: Both[T] | Condition | T) -> bool:
        """Does a word begin here, or something behind one, without AND?"""
        tokens = self.tokens
        if self._word is None or tokens.now.kind is Kind.END or tokens.has("OR", ")"):
            return False
        return not isinstance(last, Condition) or self._word(tokens.text, tokens.now.at) is not None

    def _not(self) -> Both[T] | Condition | T:
        if not self.tokens.take("NOT"):
            return self._primary()
        with self.deeper():
            return Both("NOT", (self._not(),))

    def _primary(self) -> Both[T] | Condition | T:
        tokens = self.tokens
        if self._word is not None:
            found = self._word(tokens.text, tokens.now.at)
            if found is not None:
                tokens.jump(found[1])
                return found[0]
        if tokens.has("(") and not self._is_sum():
            tokens.step()
            with self.deeper():
                inner = self._any()
            tokens.want(")")
            return inner
        return self._comparison()

    def _is_sum(self) -> bool:
        """Whether the parenthesis that opens here is part of a calculation: what is behind its end
        decides."""
        text, depth = self.tokens.text, 0
        for at, each in unquoted(text, self.tokens.now.at):
            depth += (each == "(") - (each == ")")
            if not depth:
                return _GOES_ON.match(text, at + 1) is not None
        return False

    # comparisons

    def _comparison(self) -> Condition:
        tokens = self.tokens
        at = tokens.now.at
        left = self.sum()
        operator = tokens.take(*COMPARE)
        if operator is not None:
            return self._compared(left, operator, self.sum(), at)
        negated = tokens.take("NOT") is not None
        if tokens.take("BETWEEN"):
            low = self.sum()
            tokens.want("AND")
            found = self._between(left, low, self.sum())
        elif tokens.take("IN"):
            found = self._in(self._named(left, "IN", at))
        elif tokens.take("LIKE"):
            found = self._like(self._named(left, "LIKE", at))
        elif tokens.take("IS"):
            if negated:
                raise tokens.wrong("it is written IS NOT NULL")
            negated = tokens.take("NOT") is not None
            tokens.want("NULL")
            name = self._named(left, "IS NULL", at)
            found = Condition(lambda lookup: lookup(name) is None, frozenset((name,)))
        else:
            raise tokens.wrong("here stands a comparison: = <> < <= > >= BETWEEN IN LIKE IS")
        if not negated:
            return found
        test = found.test
        return Condition(lambda lookup: not_(test(lookup)), found.names)

    def _compared(self, left: Sum, operator: str, right: Sum, at: int) -> Condition:
        for side in (left, right):
            if isinstance(side.constant, str | bool) and operator not in ("=", "<>"):
                raise self.tokens.wrong("texts and truth are compared by = and <>", at)
        one, other = left.evaluate, right.evaluate
        plain = (left.name, operator, right.constant) if (
            left.name and right.constant is not None) else None
        return Condition(lambda lookup: compare(operator, one(lookup), other(lookup)),
                         left.names | right.names, plain)

    def _between(self, value: Sum, low: Sum, high: Sum) -> Condition:
        def test(lookup: Lookup) -> Truth:
            found = value.evaluate(lookup)
            above = compare(">=", found, low.evaluate(lookup))
            below = compare("<=", found, high.evaluate(lookup))
            return all_of((above, below))
        return Condition(test, value.names | low.names | high.names)

    def _in(self, name: str) -> Condition:
        tokens = self.tokens
        tokens.want("(")
        listed: list[Value] = []
        while True:
            sign = -1 if tokens.take("-") else 1
            token = tokens.step()
            if token.kind is Kind.NUMBER and not isinstance(token.value, str):
                listed.append(sign * token.value)
            elif token.kind is Kind.TEXT and sign > 0:
                listed.append(token.value)
            else:
                raise tokens.wrong("here stands a text or a number", token.at)
            if not tokens.take(","):
                break
        tokens.want(")")

        def test(lookup: Lookup) -> Truth:
            value = lookup(name)
            if value is None:
                return None
            return any(compare("=", value, each) for each in listed)
        return Condition(test, frozenset((name,)))

    def _like(self, name: str) -> Condition:
        tokens = self.tokens
        token = self._text("LIKE")
        escape = ""
        if tokens.take("ESCAPE"):
            said = self._text("ESCAPE")
            escape = str(said.value)
            if len(escape) != 1:
                raise tokens.wrong("ESCAPE is one character", said.at)
        try:
            like = pattern(str(token.value), escape)
        except ValueError as error:
            raise tokens.wrong(str(error), token.at) from error

        def test(lookup: Lookup) -> Truth:
            value = lookup(name)
            return like(value) if isinstance(value, str) else None
        return Condition(test, frozenset((name,)))

    def _text(self, behind: str) -> Token:
        token = self.tokens.now
        if token.kind is not Kind.TEXT:
            raise self.tokens.wrong(f"behind {behind} stands a text")
        return self.tokens.step()

    def _named(self, value: Sum, what: str, at: int) -> str:
        if not value.name:
            raise self.tokens.wrong(f"before {what} stands a name", at)
        return value.name
