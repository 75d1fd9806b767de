"""The calculations of a selector: sums and products of names, numbers and constants.

Invariants: nesting is at most DEPTH_MAX deep, so neither parsing nor testing can use up the stack;
chains of + and * are lists. Errors: BadSelector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from omq.core.select.tokens import Kind, Tokens
from omq.core.select.values import Evaluate, Lookup, Value, calculate

DEPTH_MAX: Final = 50


@dataclass(slots=True)
class Sum:
    """A value that is calculated. `constant`: without asking a message; `name`: it is only that."""

    evaluate: Evaluate
    names: frozenset[str] = field(default_factory=frozenset)
    constant: Value = None
    name: str = ""


class Sums:
    """Parses them, from `tokens`."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self._depth = 0

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """One step into the nesting, and out of it."""
        if self._depth >= DEPTH_MAX:
            raise self.tokens.wrong(f"nested more than {DEPTH_MAX} deep")
        self._depth += 1
        yield
        self._depth -= 1

    def sum(self) -> Sum:
        """A value: a sum of products."""
        return self._chain(("+", "-"), lambda: self._chain(("*", "/"), self._sign))

    def _chain(self, operators: tuple[str, ...], part: Callable[[], Sum]) -> Sum:
        at = self.tokens.now.at
        first = part()
        rest: list[tuple[str, Evaluate]] = []
        names = first.names
        while (operator := self.tokens.take(*operators)) is not None:
            following = part()
            if isinstance(following.constant, str | bool) or isinstance(first.constant, str | bool):
                raise self.tokens.wrong("only numbers are calculated with", at)
            rest.append((operator, following.evaluate))
            names |= following.names
        if not rest:
            return first

        def evaluate(lookup: Lookup) -> Value:
            value = first.evaluate(lookup)
            for operator, following in rest:
                value = calculate(operator, value, following(lookup))
            return value
        return Sum(evaluate, names)

    def _sign(self) -> Sum:
        tokens = self.tokens
        sign = tokens.take("+", "-")
        if sign is not None:
            at = tokens.now.at
            with self.deeper():
                inner = self._sign()
            if isinstance(inner.constant, str | bool):
                raise tokens.wrong("only numbers have a sign", at)
            if sign == "+":
                return Sum(lambda lookup: calculate("+", 0, inner.evaluate(lookup)), inner.names,
                            inner.constant)
            constant = -inner.constant if inner.constant is not None else None
            return Sum(lambda lookup: calculate("-", 0, inner.evaluate(lookup)), inner.names,
                        constant)
        if tokens.take("("):
            with self.deeper():
                inner = self.sum()
            tokens.want(")")
            return inner
        return self._value()

    def _value(self) -> Sum:
        tokens = self.tokens
        token = tokens.now
        if token.kind is Kind.NAME:
            tokens.step()
            name = str(token.value)
            return Sum(lambda lookup: lookup(name), frozenset((name,)), name=name)
        if token.kind in (Kind.NUMBER, Kind.TEXT):
            tokens.step()
            return constant(token.value)
        said = tokens.take("TRUE", "FALSE")
        if said is None:
            raise tokens.wrong("here stands a name, a number or a text")
        return constant(said == "TRUE")


def constant(value: Value) -> Sum:
    """One that no message is asked for."""
    return Sum(lambda _: value, constant=value)
