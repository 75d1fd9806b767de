"""The mutants of tests/model/mutants.py can still be made, and the machine can tell one."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

from tests.model.mutants import EXAMPLES, MUTANTS, ROOT, Mutant, mutate, run


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_its_line_is_still_there(tmp_path: Path, mutant: Mutant) -> None:
    target = tmp_path / "omq" / mutant.file
    target.parent.mkdir(parents=True)
    shutil.copy(ROOT / "lib" / "omq" / mutant.file, target)
    mutate(tmp_path, mutant)
    ast.parse(target.read_text(encoding="utf-8"))


FIRST_OF_EACH_MODULE = {mutant.file: mutant for mutant in reversed(MUTANTS)
                        if mutant.examples == EXAMPLES}


@pytest.mark.parametrize("mutant", FIRST_OF_EACH_MODULE.values(), ids=lambda mutant: mutant.name)
def test_it_is_caught(mutant: Mutant) -> None:
    """One in each module, those that show soon; `make crash` runs all."""
    code, words = run(mutant)
    assert code == 1 and ("assert" in words or "Error" in words), words
