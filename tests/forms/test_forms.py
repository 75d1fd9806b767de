"""The fast path does what the engine does, byte for byte: index, journal, replies and what the
engine keeps in memory, compared after every group of random workloads in all forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from omq.base import form
from tests.forms.running import begin, end, parting

GROUPS = 600
FORMS = (form.OFF, form.INTERPRETED, form.COMPILED)


def forms() -> tuple[str, ...]:
    """Those that this machine has: without a compiler there is no third one."""
    return FORMS if form.build() is not None else FORMS[:2]


@pytest.mark.parametrize(("seed", "extra", "share"), [
    ("1", (), 0.3),  # mostly what is plain
    ("2", (), 0.15),  # all kinds
    ("5", ("fuzz",), 0.05),  # mutilated requests and channels
])
def test_all_forms_do_the_same(tmp_path: Path, seed: str, extra: tuple[str, ...], share: float
                               ) -> None:
    started = {each: begin(tmp_path / each, each, seed, str(GROUPS), *extra) for each in forms()}
    runs = {each: end(process) for each, process in started.items()}
    off = runs[form.OFF]
    assert (off.code, len(off.lines), off.fast) == (0, GROUPS, 0), off.said
    requests = int(off.said.split()[1])
    for each in forms()[1:]:
        found = runs[each]
        assert parting(off, found) == "", each
        assert found.form == each
        assert found.fast > share * requests, f"{each}: {found.fast} of {requests}"


def test_other_work_is_told_apart(tmp_path: Path) -> None:
    """The comparison sees a difference when there is one."""
    one = end(begin(tmp_path / "one", form.OFF, "1", "20"))
    other = end(begin(tmp_path / "other", form.OFF, "2", "20"))
    assert "the index" in parting(one, other)


@pytest.mark.skipif(form.build() is None, reason="no C compiler: apt-get install gcc python3-dev")
def test_there_is_a_build_of_these_sources() -> None:
    """What `make setup` compiled is what stands here."""
    assert form.expected() in (form.wanted(), form.COMPILED)
