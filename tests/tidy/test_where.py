"""WHERE.md names the place where each thing is decided: the places are there, and so is the way to
the document."""

from __future__ import annotations

import ast
import re
from functools import cache

from tests.tidy.tree import ROOT

DOCS = ROOT / "lib/omq/docs"
PLACE = re.compile(r"`([a-z0-9_/]+\.py)(?::([A-Za-z_.]+))?`")
AT_ROOT = ("recovery/", "spark/", "tools/")
ROWS_MIN = 50


@cache
def names(path: str) -> frozenset[str]:
    """What a module defines outermost, and the members of its classes as CLASS.MEMBER."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    found = set(_defined(tree.body))
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for name in _defined(node.body)}
    return frozenset(found)


def _defined(body: list[ast.stmt]) -> list[str]:
    found: list[str] = []
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found += [each.id for each in targets if isinstance(each, ast.Name)]
    return found


def wrong(text: str) -> list[str]:
    """Places of a text that are not there."""
    found = []
    for path, name in PLACE.findall(text):
        whole = path if path.startswith(AT_ROOT) else f"lib/omq/{path}"
        if not (ROOT / whole).is_file():
            found.append(path)
        elif name and name not in names(whole):
            found.append(f"{path}:{name}")
    return found


def test_the_places_are_there() -> None:
    text = (DOCS / "WHERE.md").read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and "`" in line]
    assert len(rows) >= ROWS_MIN
    assert not [line for line in rows if not PLACE.search(line.split("|")[2])]
    assert wrong(text) == []


def test_a_place_that_is_gone_is_seen() -> None:
    assert wrong("`core/engine/gives.py:next_ready`, `storage/journal.py:JournalWriter.sync`") == []
    assert wrong("`core/gone.py:x` `storage/journal.py:JournalWriter.gone` `base/errors.py:Gone`") \
        == ["core/gone.py", "storage/journal.py:JournalWriter.gone", "base/errors.py:Gone"]


def test_other_documents_lead_to_it() -> None:
    for name in ("lib/omq/docs/INDEX.md", "lib/omq/docs/ARCHITECTURE.md", "CONTRIBUTING.md"):
        text = (ROOT / name).read_text("utf-8")
        assert re.search(r"\]\((?:lib/omq/docs/)?WHERE\.md\)", text), name
