"""axe-core in a page of the browser: what of WCAG 2.2 AA a program can check.

The package axe-playwright-python carries the script as its maintainers release it; nothing else of
it is used, so it is installed without what it needs (Makefile).
https://github.com/dequelabs/axe-core
"""

from __future__ import annotations

import functools
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.process.chromium import Page

TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
COLOURS = ("color-contrast", "link-in-text-block")
"""The rules that see colours."""
_RUN = """axe.run(document, {{runOnly: {only}, resultTypes: ["violations", "incomplete"]}})"""


@functools.cache
def _source() -> str:
    found = find_spec("axe_playwright_python")
    assert found is not None and found.submodule_search_locations, "make setup-dev brings it"
    return (Path(found.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf-8")


def findings(page: Page, rules: tuple[str, ...] = ()) -> list[str]:
    """What is wrong, and what axe cannot decide: a rule, its help, and the element, each. `rules`:
    these alone; else all of the TAGS."""
    if not page.script("!!window.axe"):
        page.script(f"{_source()}; true")
    only = {"type": "rule", "values": rules} if rules else {"type": "tag", "values": TAGS}
    found = page.script(_RUN.format(only=json.dumps(only)))
    return [_line(kind, rule, node) for kind in ("violations", "incomplete")
            for rule in found[kind] for node in rule["nodes"]]


def _line(kind: str, rule: dict[str, Any], node: dict[str, Any]) -> str:
    why = "; ".join(each["message"] for each in (*node["any"], *node["all"], *node["none"]))
    return f"{kind} {rule['id']}: {rule['help']}: {node['html'][:160]}: {why[:300]}"
