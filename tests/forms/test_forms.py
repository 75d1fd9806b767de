"""The fast path does what the engine does, byte for byte: index, journal, replies and what the
engine keeps in memory, compared after every group of random workloads in all forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from omq.base import form
from tests.forms.running import Run, begin, end, parting

GROUPS, QUIET_GROUPS = 560, 1100
FORMS = (form.OFF, form.INTERPRETED, form.COMPILED)


def forms() -> tuple[str, ...]:
    """Those that this machine has: without a compiler there is no third one."""
    return FORMS if form.build() is not None else FORMS[:2]


def compared(folder: Path, groups: int, *arguments: str) -> dict[str, Run]:
    """The runs of all forms, which are the same."""
    seed, *extra = arguments
    started = {each: begin(folder / each, each, seed, str(groups), *extra) for each in forms()}
    runs = {each: end(process) for each, process in started.items()}
    off = runs[form.OFF]
    assert (off.code, len(off.lines), off.fast) == (0, groups, 0), off.said
    for each in forms()[1:]:
        assert parting(off, runs[each]) == "", each
        assert runs[each].form == each
    return runs


@pytest.mark.parametrize(("seed", "extra", "share"), [
    ("1", (), 0.2),  # mostly what is plain
    ("2", (), 0.15),  # all kinds
    ("5", ("fuzz",), 0.05),  # mutilated requests and channels
    ("7", ("limited",), 0.15),  # queues with limits of work, by rates too
    ("4", ("quiet", "limited"), 0.4),  # where a token is what comes next
    ("7", ("keyed",), 0.15),  # without rates
    ("8", ("numbered",), 0.15),  # groups with numbers, and readers that want whole ones
    ("7", ("keyed", "back"), 0.15),  # of which many fail, come back or are in doubt
    ("1", ("staged",), 0.3),  # units of several requests
    ("1", ("refused",), 0.1),  # units that ask for what they may not have
    ("1", ("barriers",), 0.1),  # messages that others wait for end, which is the engine's
    ("1", ("members",), 0.15),  # other users than the owner
    ("5", ("fuzz", "members"), 0.05),  # who lie about what they put
    ("1", ("quiet", "bounds"), 0.4),  # blocks are full, and the wall clock is set
])
def test_all_forms_do_the_same(tmp_path: Path, seed: str, extra: tuple[str, ...], share: float
                               ) -> None:
    runs = compared(tmp_path, GROUPS, seed, *extra)
    for each in forms()[1:]:
        found = runs[each]
        assert found.fast > share * found.requests, f"{each}: {found.said}"


@pytest.mark.parametrize("seed", ["1", "2", "4"])
def test_plain_turns_miss_no_deadline(tmp_path: Path, seed: str) -> None:
    """Hardly a request is odd, so that most turns look at no deadline: what a bound forgets comes
    late, and the forms part."""
    runs = compared(tmp_path, QUIET_GROUPS, seed, "quiet")
    for each in forms()[1:]:
        found = runs[each]
        assert found.fast > 0.45 * found.requests, f"{each}: {found.said}"
        assert found.full < 0.75 * QUIET_GROUPS, f"{each}: {found.said}"


def test_other_work_is_told_apart(tmp_path: Path) -> None:
    """The comparison sees a difference when there is one."""
    one = end(begin(tmp_path / "one", form.OFF, "1", "20"))
    other = end(begin(tmp_path / "other", form.OFF, "2", "20"))
    assert "the index" in parting(one, other)


@pytest.mark.skipif(form.build() is None, reason="no C compiler: apt-get install gcc python3-dev")
def test_there_is_a_build_of_these_sources() -> None:
    """What `make setup` compiled is what stands here."""
    assert form.expected() in (form.wanted(), form.COMPILED)
