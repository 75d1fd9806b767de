"""tests.share: all shares together are all cases, and each is in one."""

from __future__ import annotations

import re

import pytest

from tests.share import VARIABLE, has, of_cases, part, share
from tests.tidy.tree import ROOT

CASES = [f"case {number}" for number in range(20)]


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 20, 50])
def test_each_case_is_in_one_share(parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    by_place, by_name = [], []
    for which in range(1, parts + 1):
        monkeypatch.setenv(VARIABLE, f"{which}/{parts}")
        mine = of_cases(CASES)
        assert mine, "a share of something is never nothing"
        by_place += mine
        by_name += [case for case in CASES if has(case)]
    assert sorted(set(by_place)) == sorted(CASES) == sorted(by_name)
    assert len(by_place) == max(parts, len(CASES))


def test_without_it_all_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert of_cases(CASES) == CASES
    assert all(map(has, CASES))
    assert (part(80), of_cases([])) == (80, [])


def test_a_number_of_cases_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "2/3")
    assert (part(80), part(2), part(2, least=2)) == (26, 1, 2)


@pytest.mark.parametrize("said", ["", "0/3", "4/3", "1", "1/0", "-1/3", "1/3/5", "a/b", " 1/3"])
def test_another_form_is_refused(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, said)
    with pytest.raises(ValueError, match=VARIABLE):
        share()


def test_ci_takes_one_and_both_places_know_it() -> None:
    run, debian = ((ROOT / ".ci" / name).read_text("utf-8") for name in ("run", "debian"))
    assert re.search(rf"^export {VARIABLE}=", run, re.MULTILINE)
    assert re.search(rf"grep -E .*{VARIABLE}=", debian), "a login shell has another environment"
