"""What a released format can say grows only with a version: else an omq that does not know a flag
or a frame reads a newer spool and misunderstands it, which the release notes exclude.

    python -m tests.tidy.test_released_formats     notes what this version writes: at its release
"""

from __future__ import annotations

import copy
import importlib
import json
import sys
from enum import Enum
from typing import Any, Final

import pytest

import omq
from omq.format.layout import Layout
from tests.tidy.tree import ROOT

RECORD: Final = ROOT / "tests/golden/format/released.json"
MODULES: Final = ("archive", "double_write", "journal", "message", "pool", "poolctrl", "store")
"""Those of what lies on the disk and outlives an omq."""
Formats = dict[str, dict[str, Any]]


def written() -> Formats:
    """Module -> its versions, and what it can say: layouts, and the names of values."""
    found: Formats = {}
    for name in MODULES:
        module = importlib.import_module(f"omq.format.{name}")
        values = {key: {each.name: each.value for each in value}
                  for key, value in vars(module).items()
                  if isinstance(value, type) and issubclass(value, Enum)
                  and value.__module__ == module.__name__}
        layouts = {key: value.text for key, value in vars(module).items()
                   if isinstance(value, Layout)}
        versions = {key: value for key, value in vars(module).items()
                    if key.endswith("VERSION") and type(value) is int}
        found[name] = {"versions": versions, "says": {**values, **layouts}}
    return found


def grown(released: Formats, now: Formats) -> list[str]:
    """Modules that say something else than a release, under the same versions."""
    return [name for name, was in released.items()
            if now[name]["versions"] == was["versions"] and now[name]["says"] != was["says"]]


def recorded() -> dict[str, Formats]:
    """By omq's version."""
    found: dict[str, Formats] = json.loads(RECORD.read_text("utf-8"))
    return found


def test_what_was_released_is_noted() -> None:
    head = (ROOT / "RELEASE_NOTES.md").read_text("utf-8").splitlines()[0]
    assert omq.__version__ in head
    assert "(not yet released)" in head or omq.__version__ in recorded(), (
        "python -m tests.tidy.test_released_formats")


def test_what_a_release_can_say_grows_with_a_version() -> None:
    now = json.loads(json.dumps(written()))
    for version, released in recorded().items():
        assert not (names := grown(released, now)), (
            f"since {version} formats changed without a version: {names}; a reader of {version} "
            "must refuse what it does not know")


@pytest.mark.parametrize("name", MODULES)
def test_it_is_told(name: str) -> None:
    now = written()
    assert now[name]["versions"] and now[name]["says"]
    assert grown(now, now) == []
    more = copy.deepcopy(now)
    more[name]["says"]["Flag"] = {"NEW": 1 << 40}
    assert grown(now, more) == [name]
    more[name]["versions"] = {key: value + 1 for key, value in more[name]["versions"].items()}
    assert grown(now, more) == []


if __name__ == "__main__":
    made = recorded() | {omq.__version__: written()}
    RECORD.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n", "utf-8")
    sys.exit(0)
