"""The mutants of tests/model/mutants.py can still be made, and the machine can tell one."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

from tests.model.mutants import MUTANTS, ROOT, Mutant, mutate, run


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_its_line_is_still_there(tmp_path: Path, mutant: Mutant) -> None:
    target = tmp_path / "omq" / mutant.file
    target.parent.mkdir(parents=True)
    shutil.copy(ROOT / "lib" / "omq" / mutant.file, target)
    mutate(tmp_path, mutant)
    ast.parse(target.read_text(encoding="utf-8"))


def test_one_is_caught() -> None:
    code, words = run(MUTANTS[0])
    assert code == 1 and "assert" in words, words
