"""What is told of queues.conf of a primary and its standby where they differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omq.services.standby.same_queues import SAID, difference, digests

ONE = "[*]\n\n[A]\n\n[B]\nmax_depth = 5\n"


def conf(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "queues.conf").write_text(text)
    return folder


@pytest.mark.parametrize(("text", "told"), [
    (ONE, ""), ("# as above\n[B]\nmax_depth = 5\n[A]\n", ""),
    ("[*]\nmax_depth = 5\n[A]\nmax_depth = 0\n[B]\n[IDEL]\nmax_depth = 0\n"
     "[POISON]\nmax_depth = 0\n", ""),
    ("[A]\n[B]\nmax_depth = 6\n", "queues.conf differs: B"), ("[A]\n", "queues.conf differs: B"),
    (ONE + "[C]\n[D]\n[E]\n[F]\n", "queues.conf differs: C, D, E and 1 more"),
    ("[A]\nno_such_key = 1\n", "queues.conf of the standby cannot be read"),
])
def test_what_differs_is_named(tmp_path: Path, text: str, told: str) -> None:
    own, other = conf(tmp_path / "own", ONE), conf(tmp_path / "other", text)
    assert difference(own, {SAID: digests(other)}) == told


@pytest.mark.parametrize(("said", "told"), [
    ({}, ""), ({SAID: []}, "queues.conf of the standby cannot be read"),
    ({SAID: {"\n\x1b[2J" * 100: 7}}, None)])
def test_what_a_stranger_says(tmp_path: Path, said: dict[str, Any], told: str | None) -> None:
    """An omq of before says nothing; what it says is shown escaped, and cut."""
    found = difference(conf(tmp_path / "own", ONE), said)
    assert found == told if told is not None else (
        len(found) < 1000 and found.isprintable() and found.startswith("queues.conf differs: "))


def test_a_primary_that_cannot_read_its_own(tmp_path: Path) -> None:
    own = conf(tmp_path / "own", "[A]\nno_such_key = 1\n")
    assert difference(own, {SAID: {}}) == "queues.conf of the primary cannot be read"
