"""The shipped dashboard against Grafana's own schema of one, as its makers' library has it
(https://github.com/grafana/grafana-foundation-sdk: generated from the schemas of Grafana 11.6)."""

from __future__ import annotations

import copy
import json
import typing
from collections.abc import Iterator
from enum import Enum
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from grafana_foundation_sdk.models.prometheus import Dataquery

from tests.tidy.tree import ROOT

SHIPPED = json.loads((ROOT / "share/omq/grafana.json").read_text())


def read(text: Any) -> Dashboard:
    """As the library reads it, with the queries and panels of Grafana's own plugins."""
    register_default_plugins()
    return Dashboard.from_json(text)


def problems(given: Any) -> list[str]:
    """Keys that the schema does not have, and values that are of another kind than it says."""
    found = read(given)
    known = json.loads(json.dumps(found, cls=JSONEncoder))
    return [*_unknown(given, known, ""), *_wrong(found, "")]


def _unknown(given: Any, known: Any, where: str) -> Iterator[str]:
    if isinstance(given, dict) and isinstance(known, dict):
        for key, value in given.items():
            yield from _unknown(value, known[key], f"{where}/{key}") if key in known else [
                f"{where}/{key}"]
    elif isinstance(given, list) and isinstance(known, list) and len(given) == len(known):
        for at, pair in enumerate(zip(given, known, strict=True)):
            yield from _unknown(*pair, f"{where}/{at}")
    elif given != known:
        yield where


def _wrong(value: Any, where: str) -> Iterator[str]:
    if isinstance(value, list):
        for at, each in enumerate(value):
            yield from _wrong(each, f"{where}/{at}")
    elif type(value).__module__.startswith("grafana_foundation_sdk.models"):
        hints = typing.get_type_hints(type(value)) if not hasattr(value, "value") else {}
        for name, hint in hints.items():
            if not _fits(getattr(value, name), hint):
                yield f"{where}/{name}"
            yield from _wrong(getattr(value, name), f"{where}/{name}")


def _fits(value: Any, hint: Any) -> bool:
    origin, within = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or hint is object:
        return True
    if origin is typing.Union:
        return any(_fits(value, each) for each in within)
    if origin is typing.Literal:
        return value in within
    if origin in (list, dict):
        members = value if origin is list else getattr(value, "values", list)()
        return isinstance(value, origin) and all(_fits(each, within[-1]) for each in members)
    if isinstance(value, bool):
        return hint is bool
    if isinstance(hint, type) and issubclass(hint, Enum):  # the library leaves them as they came
        return value in {each.value for each in hint}
    return isinstance(value, (int, float) if hint is float else hint)


def test_grafana_knows_all_that_it_says() -> None:
    assert problems(SHIPPED) == []
    queries = [query for panel in read(SHIPPED).panels or () for query in
               getattr(panel, "targets", None) or ()]
    assert len(queries) > 20 and all(isinstance(each, Dataquery) for each in queries)


@pytest.mark.parametrize(("path", "value"), [
    ("title", 7), ("refresh", 5), ("no_such_key", "x"), ("panels.1.gridPos.width", 4),
    ("panels.1.gridPos.w", "6"), ("panels.1.id", "1"), ("panels.1.targets.0.expr", None),
    ("panels.1.targets.0.legend", "x"), ("panels.1.fieldConfig.defaults.unit", 1),
    ("templating.list.1.multi", "yes"), ("templating.list.1.type", "queries")])
def test_what_grafana_does_not_know_is_found(path: str, value: Any) -> None:
    given = copy.deepcopy(SHIPPED)
    *way, last = path.split(".")
    at = given
    for step in way:
        at = at[int(step)] if step.isdecimal() else at[step]
    at[last] = value
    assert problems(given)
