"""What a life of tests/model did, step by step: noted while it goes, kept as text, done again.

A step is the name of a rule and what was drawn for it: numbers, octets, members of enumerations and
lists of these. Rules choose by number among what is there, so steps fit however the life goes.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from hypothesis import stateful
from hypothesis.strategies import SearchStrategy

from omq.core.engine.operate import Action
from omq.format.wire import Key, Settlement

Step = tuple[str, Mapping[str, object]]
Rule = TypeVar("Rule", bound=Callable[..., None])
WHERE: Final = "OMQ_MODEL_STEPS"
"""Environment variable: the file that gets the steps of the last life."""
_RULE: Final[Any] = stateful.rule  # its types know rules with a target alone
_ENUMS: Final = {kind.__name__: kind for kind in (Action, Key, Settlement)}


class Living(Protocol):
    """A state machine with the steps that it has done."""

    steps: list[Step]


def rule(**drawn: SearchStrategy[Any]) -> Callable[[Rule], Rule]:
    """hypothesis.stateful.rule whose steps are noted, the one that fails as well."""

    def noted(function: Rule) -> Rule:
        @functools.wraps(function)
        def step(self: Living, *given: object, **values: object) -> None:
            if not given:  # else it is part of another machine's step
                self.steps.append((function.__name__, values))
            function(self, *given, **values)

        made: Rule = _RULE(**drawn)(step)
        return made

    return noted


def leave(steps: Sequence[Step]) -> None:
    """At the end of a life: the last one that ends is the one that failed."""
    where = os.environ.get(WHERE)
    if where:
        Path(where).write_text(to_text(steps), encoding="utf-8")


def play(machine: type[stateful.RuleBasedStateMachine], steps: Sequence[Step]) -> None:
    """A life of these steps. Raises what the engine, the model or their comparison raises."""
    life = machine()
    preconditions = {each.function.__name__: each.preconditions for each in life.rules}
    try:
        for name, values in steps:
            if all(allows(life) for allows in preconditions[name]):
                getattr(life, name)(**values)
    finally:
        life.teardown()


def to_text(steps: Sequence[Step]) -> str:
    """One line of JSON."""
    return json.dumps([[name, {key: _plain(value) for key, value in values.items()}]
                       for name, values in steps])


def from_text(text: str) -> list[Step]:
    """The reverse."""
    return [(name, {key: _value(plain) for key, plain in values.items()})
            for name, values in json.loads(text)]


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return {type(value).__name__: value.name}
    if isinstance(value, bytes):
        return {"zeros": len(value)} if value == bytes(len(value)) else {"octets": value.hex()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def _value(plain: object) -> object:
    if isinstance(plain, list):
        return [_value(each) for each in plain]
    if not isinstance(plain, dict):
        return plain
    ((kind, value),) = plain.items()
    if kind == "zeros":
        return bytes(value)
    return bytes.fromhex(value) if kind == "octets" else _ENUMS[kind][value]
