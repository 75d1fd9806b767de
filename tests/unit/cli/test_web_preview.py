"""What the console shows of a body: no more than it says, however it is made."""

from __future__ import annotations

import json

import pytest

from omq.cli.web.preview import NESTED_MAX, preview

MOST = 64 * 1024


@pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_what_is_nested_deep_is_not_indented(opens: str, closes: str) -> None:
    """Its indentation would be many times as long as it is."""
    depth = 900 // (2 if len(closes) == 2 else 1)
    body = (opens * depth + "[" + ",".join("1" * 30000) + "]" + closes * depth).encode()
    shown = preview(body, "json", MOST)
    assert sum(map(len, shown.lines)) <= len(body)
    assert "nested deeper" in shown.note


def test_what_is_not_is_indented() -> None:
    found: object = 1
    for _ in range(NESTED_MAX):
        found = [found]
    shown = preview(json.dumps(found).encode(), "json", MOST)
    assert len(shown.lines) == 2 * NESTED_MAX + 1 and not shown.note
