"""Durations in messages are written in one place (omq.base.amounts): never less than nothing, never
with more digits than somebody reads."""

from __future__ import annotations

import ast
import re

from tests.tidy.tree import Source, nodes, product

_SECONDS = re.compile(r"\s?s(?![\w'])")
ELSEWHERE = {
    "lib/omq/base/amounts.py": "it is the place",
    "lib/omq/base/checksum.py": "a format of struct: 4x8s",
}


def _raw_seconds(source: Source) -> list[str]:
    """`{...} s` in an f-string."""
    found = []
    for node in nodes(source):
        if not isinstance(node, ast.JoinedStr):
            continue
        found += [f"{source.path}:{value.lineno}: {ast.unparse(value)} s"
                  for value, after in zip(node.values, node.values[1:], strict=False)
                  if isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant)
                  and _SECONDS.match(str(after.value))]
    return found


def test_no_message_writes_seconds_by_itself() -> None:
    found = [each for source in product()
             if source.path.startswith(("lib/", "recovery/")) and source.path not in ELSEWHERE
             for each in _raw_seconds(source)]
    assert not found, "omq.base.amounts.duration writes them:\n" + "\n".join(found)


def test_the_rule_sees_what_it_is_for() -> None:
    text = 'f"no answer within {left} s"; f"{a:.1f} s more"; f"{n}s"; f"{n} sizes"; f"{n}st"'
    assert len(_raw_seconds(Source("x.py", text, ast.parse(text)))) == 3
