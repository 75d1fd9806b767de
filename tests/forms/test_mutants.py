"""The mutants of tests/forms/mutants.py can still be made, and the comparison can tell some."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

from tests.forms.mutants import MUTANTS, run
from tests.forms.running import ROOT, parting
from tests.model.mutants import Mutant, mutate


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_its_line_is_still_there(tmp_path: Path, mutant: Mutant) -> None:
    target = tmp_path / "omq" / mutant.file
    target.parent.mkdir(parents=True)
    shutil.copy(ROOT / "lib" / "omq" / mutant.file, target)
    mutate(tmp_path, mutant)
    ast.parse(target.read_text(encoding="utf-8"))


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
