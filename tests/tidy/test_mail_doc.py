"""MAIL.md names a test for each thing that it promises: those tests are there."""

from __future__ import annotations

import re

from tests.tidy.tree import ROOT

NAMED = re.compile(r"`(test_[a-z0-9_]+)`")
DEFINED = re.compile(r"^\s*(?:async )?def (test_[a-z0-9_]+)\(", re.MULTILINE)


def test_the_tests_that_mail_md_names_are_there() -> None:
    named = set(NAMED.findall((ROOT / "lib/omq/docs/MAIL.md").read_text()))
    there = {name for path in (ROOT / "tests").rglob("test_*.py")
             for name in DEFINED.findall(path.read_text())}
    assert len(named) > 80, "the tables have lost their tests"
    assert not named - there
