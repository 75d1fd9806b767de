"""A rule whose test does not exist is a promise that nobody keeps."""

from __future__ import annotations

import re

import pytest

from tests.tidy.tree import ROOT

DOCS = ("SEMANTICS.md", "WALKTHROUGHS.md", "ANALYTICS-TESTS.md", "MAIL-TESTS.md",
        "NETWORK.md")
_TEST = re.compile(r"`(test_\w+)`")
_PATH = re.compile(r"`(tests/[\w./]+)`")
_FILE = re.compile(r"`((?:test_)?\w+\.py)`")
_MODULE = re.compile(r"`(?:python -m )?(tests(?:\.\w+)+)")


def _defined() -> set[str]:
    """Names of all tests."""
    return {name for path in (ROOT / "tests").rglob("test_*.py")
            for name in re.findall(r"^ *(?:async )?def (test_\w+)",
                                   path.read_text(encoding="utf-8"), re.MULTILINE)}


@pytest.mark.parametrize("name", DOCS)
def test_every_test_that_is_named_exists(name: str) -> None:
    text = (ROOT / "lib/omq/docs" / name).read_text(encoding="utf-8")
    wrong = sorted(set(_TEST.findall(text)) - _defined())
    wrong += sorted(path for path in set(_PATH.findall(text)) if not (ROOT / path).exists())
    there = {path.name for folder in ("lib", "spark", "tests") for path in
             (ROOT / folder).rglob("*.py")}
    wrong += sorted(set(_FILE.findall(text)) - there)
    wrong += sorted(module for module in set(_MODULE.findall(text))
                    if not (ROOT / module.replace(".", "/")).with_suffix(".py").exists()
                    and not (ROOT / module.replace(".", "/")).is_dir())
    assert not wrong, f"{name} names what is not there: {', '.join(wrong)}"


def test_every_row_of_a_walk_through_has_a_test() -> None:
    text = (ROOT / "lib/omq/docs/WALKTHROUGHS.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines()
            if line.startswith("| ") and not line.startswith(("| MQ |", "| VOS |", "| original |"))]
    assert len(rows) > 40
    wrong = [row for row in rows
             if not (_TEST.search(row.rsplit("|", 2)[1]) or _PATH.search(row.rsplit("|", 2)[1]))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("name", "behind", "least"), [
    ("ANALYTICS-TESTS.md", "", 41), ("MAIL-TESTS.md", "", 41),
    ("NETWORK.md", "## What was promised", 30)])
def test_every_promise_has_a_test_or_says_why_not(name: str, behind: str, least: int) -> None:
    text = (ROOT / "lib/omq/docs" / name).read_text(encoding="utf-8")
    text = text[text.index(behind):]
    rows = [line for line in text.splitlines()
            if line.startswith("| ") and not line.startswith("| promise")]
    assert len(rows) >= least
    wrong = [row for row in rows if not _TEST.search(row.rsplit("|", 2)[1])
             and "no test: " not in row and not row.endswith("measured |")]
    assert not wrong, "\n".join(wrong)
