"""Tests in parts: every file in exactly one, equal by the record, and no failure is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import parts
from tests.tidy.tree import ROOT

SECONDS = {"a": 9.0, "b": 5.0, "c": 4.0, "d": 3.0, "e": 2.0, "f": 1.0}


@pytest.mark.parametrize("count", [1, 2, 3, 4, 9])
def test_every_file_is_in_exactly_one_part(count: int) -> None:
    units = {parts.unit_of(path) for path in (ROOT / "tests").rglob("test_*.py")}
    divided = parts.divide(units, parts.recorded(), count)
    assert len(divided) == count
    assert sorted(unit for part in divided for unit in part) == sorted(units)
    assert parts.divide(sorted(units), parts.recorded(), count) == divided


def test_parts_take_equally_long() -> None:
    assert parts.divide(SECONDS, SECONDS, 2) == [["a", "d"], ["b", "c", "e", "f"]]
    spent = [sum(SECONDS[unit] for unit in part) for part in parts.divide(SECONDS, SECONDS, 3)]
    assert spent == [9, 8, 7]


def test_a_new_file_counts_as_the_middle_one() -> None:
    assert parts.divide(["a", "new", "newer"], {"a": 6.0, "b": 4.0, "c": 3.0}, 2) == [
        ["a"], ["new", "newer"]]
    assert parts.divide(["new", "newer"], {}, 2) == [["new"], ["newer"]]


def test_folders_that_share_a_start_stay_whole() -> None:
    assert parts.unit_of(ROOT / "tests/spark/test_plain.py") == "tests/spark"
    assert parts.unit_of(ROOT / "tests/tidy/test_parts.py") == "tests/tidy/test_parts.py"
    assert all((ROOT / each / "conftest.py").exists() for each in parts.SHARED)


def test_the_record_is_of_tests_that_exist() -> None:
    found = parts.recorded()
    assert len(found) > 100
    assert [unit for unit in found if not (ROOT / unit).exists()] == []


@pytest.mark.parametrize(("codes", "status"), [
    ([0, 0], 0), ([0, 5], 0), ([5, 5], 5), ([0, 1], 1), ([5, 1], 1), ([-9, 0], 9), ([3, 1], 3)])
def test_the_status_of_all_is_the_worst(codes: list[int], status: int) -> None:
    assert parts.worst(codes) == status


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """Three files of tests, one of which fails."""
    for name, line in (("one", "assert True"), ("two", "assert False"), ("three", "assert True")):
        (tmp_path / f"test_{name}.py").write_text(f"def test_{name}() -> None:\n    {line}\n")
    return tmp_path


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *arguments, "-p", "no:cacheprovider"], cwd=ROOT,
                          env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
                          capture_output=True, text=True, check=False)


def test_all_run_and_a_failure_in_one_part_is_told(suite: Path) -> None:
    done = _run("tests.parts", "4", str(suite), "-v")
    assert done.returncode == 1, done.stdout
    words = done.stdout.split()
    assert sorted(word for word in words if word in ("PASSED", "FAILED")) == [
        "FAILED", "FAILED", "PASSED", "PASSED"]  # a failure also in the summary
    assert done.stdout.count("status 0") == 2
    assert done.stdout.count("status 5") == 1


def test_a_failing_test_is_no_usage_error(suite: Path) -> None:
    assert _run("tests.parts", "2", str(suite / "test_one.py")).returncode == 0
    assert _run("tests.parts", "2", str(suite / "nothing")).returncode not in (0, 1, 5)


@pytest.mark.parametrize("part", ["0/2", "3/2", "x", "1/", "-1/2"])
def test_a_part_that_is_none_is_refused(part: str, suite: Path) -> None:
    done = _run("pytest", "-p", "tests.parts", f"--part={part}", str(suite))
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "K/N with K from 1 to N" in done.stderr


@pytest.mark.parametrize("words", [[], ["0"], ["x"]])
def test_how_many_parts_must_be_said(words: list[str]) -> None:
    assert parts.main(words) == 2


def test_the_record_keeps_what_others_noted(suite: Path, tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    record.write_text(json.dumps({"tests/tidy": 7.0, "tests/gone": 8.0}))
    assert _run("pytest", "-p", "tests.parts", f"--record-durations={record}",
                "tests/tidy/test_parts.py", "-k", "equally_long").returncode == 0
    known = json.loads(record.read_text())
    assert known.pop("tests/tidy") == 7.0
    assert list(known) == ["tests/tidy/test_parts.py"]


def test_named_tests_are_dealt_out_too(suite: Path) -> None:
    names = [f"{suite}/test_one.py::test_one", f"{suite}/test_three.py::test_three"]
    ran = [_run("pytest", "-p", "tests.parts", f"--part={part}/2", *names).stdout
           for part in (1, 2)]
    assert ["1 passed, 1 deselected" in each for each in ran] == [True, True], ran


def test_what_is_ignored_is_no_load_of_a_part(suite: Path) -> None:
    """Its seconds would leave a part with nothing but what it does not run."""
    for number in (1, 2):
        done = _run("pytest", "-p", "tests.parts", f"--part={number}/2", str(suite),
                    f"--ignore={suite}/test_three.py")
        assert "1 passed" in done.stdout or "1 failed" in done.stdout, done.stdout


def test_records_are_merged_by_the_most(tmp_path: Path) -> None:
    one, other, found = (tmp_path / name for name in ("one", "other", "found"))
    here = "tests/tidy/test_parts.py"
    one.write_text(json.dumps({here: 7.0, "tests/gone.py": 8.0}))
    other.write_text(json.dumps({here: 2.0, "tests/tidy": 1.0}))
    assert parts.main(["merge", str(found), str(one), str(other)]) == 0
    assert json.loads(found.read_text()) == {here: 7.0, "tests/tidy": 1.0}
