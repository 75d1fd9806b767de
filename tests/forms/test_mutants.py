"""The comparison can tell some of the mutants of tests/forms/mutants.py. That each can still be
made is looked at in tests/tidy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.forms.mutants import MUTANTS, run
from tests.forms.running import parting

SOME = {"1": ("wrong priority chain", "a batch has no end", "the place of a payload is lost"),
        "20 keyed back": ("a key of a unit is never forgotten",),
        "7 keyed": ("a failed message goes with others of its queue",)}


@pytest.mark.parametrize("seed", SOME)
def test_some_are_caught(tmp_path: Path, seed: str) -> None:
    """`make crash` runs all."""
    off = run(None, tmp_path / "off", seed)
    assert off.code == 0, off.said
    for mutant in MUTANTS:
        if mutant.name in SOME[seed]:
            found = run(mutant, tmp_path / mutant.name, seed, off)
            assert parting(off, found), mutant.name
            assert len(found.lines) < len(off.lines)
