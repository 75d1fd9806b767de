"""Tests in parts: every file in exactly one, equal by the record, and no failure is lost."""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests import long, parts, side_by_side, units
from tests.tidy.tree import ROOT
from tests.waiting import until


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those of the run that this is a part of; nor its record. What runs that fail leave is
    below the test's own folder."""
    (tmp_path / "left").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "left"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("OMQ_TESTS_LOGS", str(tmp_path / "logs"))
    monkeypatch.delenv("OMQ_TESTS_RECORD", raising=False)
    monkeypatch.delenv("OMQ_TESTS_LIMIT_S", raising=False)


SECONDS = {"a": 9.0, "b": 5.0, "c": 4.0, "d": 3.0, "e": 2.0, "f": 1.0}


@pytest.mark.parametrize("count", [1, 2, 3, 4, 9])
def test_every_file_is_in_exactly_one_part(count: int) -> None:
    every = units.all_units()
    divided = units.divide(every, units.recorded(), count)
    assert len(divided) == count
    assert sorted(unit for part in divided for unit in part) == sorted(every)
    assert units.divide(sorted(every), units.recorded(), count) == divided


def test_parts_take_equally_long() -> None:
    assert units.divide(SECONDS, SECONDS, 2) == [["a", "d"], ["b", "c", "e", "f"]]
    spent = [sum(SECONDS[unit] for unit in part) for part in units.divide(SECONDS, SECONDS, 3)]
    assert spent == [9, 8, 7]


def test_a_new_file_counts_as_the_middle_one() -> None:
    assert units.divide(["a", "new", "newer"], {"a": 6.0, "b": 4.0, "c": 3.0}, 2) == [
        ["a"], ["new", "newer"]]
    assert units.divide(["new", "newer"], {}, 2) == [["new"], ["newer"]]


def test_folders_that_share_a_start_stay_whole() -> None:
    assert units.unit_of(ROOT / "tests/spark/test_tables.py") == "tests/spark"
    assert units.unit_of(ROOT / "tests/tidy/test_parts.py") == "tests/tidy/test_parts.py"
    assert all((ROOT / each / "conftest.py").exists() for each in units.SHARED)


def test_files_that_share_nothing_are_dealt_out_by_themselves() -> None:
    """A second session of Spark in another part would cost more than it saves."""
    plain = "tests/spark/test_plain.py"
    assert units.unit_of(ROOT / plain) == plain
    for path in (ROOT / "tests/spark").glob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        asks = any(argument.arg in ("spark", "lake") for each in ast.walk(ast.parse(text))
                   if isinstance(each, ast.FunctionDef) and (
                       each.name.startswith("test_") or each.decorator_list)
                   for argument in each.args.args) or "getfixturevalue" in text
        name = path.relative_to(ROOT).as_posix()
        assert asks is (name not in units.ALONE), f"{name}: tests.units.ALONE"


def test_the_record_is_of_tests_that_exist() -> None:
    found = units.recorded()
    assert len(found) > 100
    assert [unit for unit in found if not (ROOT / unit).exists()] == []


@pytest.mark.parametrize(("codes", "status"), [
    ([0, 0], 0), ([0, 5], 0), ([5, 5], 5), ([0, 1], 1), ([5, 1], 1), ([-9, 0], 9), ([3, 1], 3)])
def test_the_status_of_all_is_the_worst(codes: list[int], status: int) -> None:
    assert side_by_side.worst(codes) == status


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """Three files of tests, one of which fails."""
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
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
    assert done.stdout.count("status 0") == 2
    assert done.stdout.count("status 5") == 1
    assert "assert False" in done.stdout, "the trace of what failed"
    assert "=== 3 tests ran" in done.stdout and "1 failed\n" in done.stdout
    assert "test_two.py::test_two\n" in done.stdout


def test_a_failing_test_is_no_usage_error(suite: Path) -> None:
    assert _run("tests.parts", "2", str(suite / "test_one.py")).returncode == 0
    assert _run("tests.parts", "2", str(suite / "nothing")).returncode not in (0, 1, 5)


@pytest.mark.parametrize("part", ["0/2", "3/2", "x", "1/", "-1/2"])
def test_a_part_that_is_none_is_refused(part: str, suite: Path) -> None:
    done = _run("pytest", "-p", "tests.parts", f"--part={part}", str(suite))
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "K/N with K from 1 to N" in done.stderr


@pytest.mark.parametrize("words", [["0"], ["merge"], ["merge", "file"], ["--help"]])
def test_what_makes_no_sense_is_not_run(words: list[str]) -> None:
    assert parts.main(words) == 2


def test_there_are_two_parts_a_processor() -> None:
    assert side_by_side.usual_parts() == max(2, min(2 * len(os.sched_getaffinity(0)), 8))


def test_what_is_quick_and_what_is_long_are_everything() -> None:
    every = units.all_units()
    quick, left = (set(parts.chosen(every, only)) for only in (parts.QUICK, parts.LONG))
    assert quick | left == every and not quick & left
    assert set(parts.chosen(every, None)) == every
    assert len(quick) > len(every) / 2, "make test is most of the tests"
    assert {"tests/spark", "tests/system"} <= left
    seconds = units.recorded()
    assert all(seconds.get(unit, 0) <= long.LIMIT_S for unit in quick)
    assert all((ROOT / folder).is_dir() for folder in long.FOLDERS)


def test_each_long_file_is_of_one_share_and_a_quick_one_of_all() -> None:
    every = frozenset((ROOT / "tests").rglob("test_*.py"))
    seconds = units.recorded()
    shares = [every - long.of_other_shares(every, seconds, which, 3) for which in range(3)]
    assert frozenset().union(*shares) == every
    for path in every:
        here = sum(path in share for share in shares)
        assert here == (1 if long.why_long(units.unit_of(path), seconds) else 3), path
    assert all(any(f"tests/{room}/" in str(path) for path in share)
               for share in shares for room in ("system", "spark"))


def test_what_another_share_has_is_told_once(suite: Path, tmp_path: Path) -> None:
    """By each run that leaves it out, in what CI compares."""
    done = []
    for part in (1, 2):
        out = tmp_path / f"outcomes-{part}"
        _run("pytest", "-p", "tests.parts", f"--part={part}/2", "--long-files=1/3",
             f"--outcomes={out}", "--collect-only", "tests/bench", "tests/tidy/test_share.py")
        done += out.read_text().splitlines()
    told = [line for line in done if "a long file of another share than 1/3" in line]
    assert len(told) == len(set(told)) > 1
    assert all(line.startswith("tests/bench/test_") for line in told)


@pytest.mark.parametrize("share", ["0/3", "4/3", "all"])
def test_a_share_that_is_none_is_refused(share: str, suite: Path) -> None:
    done = _run("pytest", "-p", "tests.parts", f"--long-files={share}", str(suite))
    assert done.returncode == 4 and "K/N with K from 1 to N is wanted" in done.stderr


def test_the_quick_ones_are_what_a_person_waits_for() -> None:
    """By the record, which is of four parts on two free processors: 1,900 s are eight minutes. Who
    adds more makes others faster, or lowers tests.long.LIMIT_S."""
    seconds = units.recorded()
    assert sum(seconds.get(unit, 0) for unit in parts.chosen(units.all_units(), parts.QUICK)) < 1900


def test_what_make_test_leaves_out_is_named_with_how_to_run_it(
        capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMQ_SHARE", raising=False)
    side_by_side.run(2, ["--only", "quick", "tests/tidy/test_parts.py", "-k", "the_status_of_all"])
    said = capsys.readouterr().out
    assert "left to `make test-all`" in said
    assert all(f"{folder}: {why}" in said for folder, why in long.FOLDERS.items())
    for unit in parts.chosen(units.all_units(), parts.LONG):
        named = any(unit.startswith(folder) for folder in long.FOLDERS)
        assert named or unit.removeprefix("tests/") in said
    assert f"OMQ_SHARE={long.SHARE}" in said


def test_a_run_by_another_program_leaves_its_record(suite: Path, tmp_path: Path) -> None:
    record = tmp_path / "kept"
    done = subprocess.run(
        [sys.executable, "-m", "tests.parts", "2", str(suite)], cwd=ROOT, check=False,
        env=os.environ | {"OMQ_TESTS_RECORD": str(record)}, capture_output=True, text=True)
    assert done.returncode == 1
    assert len((record / "outcomes").read_text().splitlines()) == 3
    assert (record / "outcomes.failed").read_text().count("\n") == 1
    assert (record / "durations").exists()


def test_each_part_has_a_folder_that_others_may_pass_through(tmp_path: Path) -> None:
    """pytest's own is closed again to others by every pytest of the same user that begins."""
    for name in "ab":
        (tmp_path / f"test_{name}.py").write_text(
            "from pathlib import Path\nimport pytest\n@pytest.mark.parametrize('fails', [0, 1], "
            "ids=['well', 'ill'])\n"
            "def test_it(tmp_path: Path, fails: int) -> None:\n"
            f"    with Path({str(tmp_path / 'said')!r}).open('a') as file:\n"
            "        print(tmp_path.parent, oct(tmp_path.parent.parent.stat().st_mode),\n"
            "              file=file)\n"
            "    assert not fails\n")
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")

    def run(*more: str) -> list[Path]:
        (tmp_path / "said").unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, "-m", "tests.parts", "2", str(tmp_path), *more], cwd=ROOT,
            check=False, capture_output=True, text=True)
        told = [line.split() for line in (tmp_path / "said").read_text().splitlines()]
        assert ("are left in" in done.stdout) is (not more)
        assert {mode for _, mode in told} == {"0o40711"}
        return sorted({Path(folder) for folder, _ in told})

    first, second = run()
    assert first.parent == second.parent and first.parent.exists(), "for who looks at what failed"
    shutil.rmtree(first.parent)
    for folder in run("-k", "well"):
        assert not folder.parent.exists()


def test_the_umask_of_a_test_is_not_that_of_the_next(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    (tmp_path / "test_it.py").write_text(
        "import os\nimport pytest\n@pytest.mark.parametrize('number', [0, 1])\n"
        "def test_it(number: int) -> None:\n    assert os.umask(0o77) == 0o27\n")
    done = subprocess.run([sys.executable, "-m", "pytest", str(tmp_path)], cwd=ROOT, check=False,
                          capture_output=True, text=True, umask=0o27)
    assert done.returncode == 0, done.stdout


def test_parts_that_hang_are_ended_and_say_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                 ) -> None:
    begun = tmp_path / "begun"
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    (tmp_path / "test_hang.py").write_text(
        "import signal\nfrom pathlib import Path\ndef test_hang() -> None:\n"
        f"    Path({str(begun)!r}).touch()\n    signal.pause()\n")
    part = side_by_side._start(tmp_path / "part-1", "1/1", [str(tmp_path / "test_hang.py")],
                               dict(os.environ), tmp_path / "scratch")
    until(begun.exists)
    monkeypatch.setenv("OMQ_TESTS_LIMIT_S", "0")
    side_by_side._wait([part], time.monotonic())
    assert part.process.returncode == -signal.SIGABRT
    assert "in test_hang" in part.log.read_text()


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


def test_a_folder_that_is_not_wanted_is_not_even_looked_into() -> None:
    """Where there is no pyspark its conftest would skip the folder whole, and that be told."""
    folder = ROOT / "tests/spark"
    assert parts._Part(frozenset({"tests/tidy/test_parts.py"})).pytest_ignore_collect(folder)
    for each in ("tests/spark", "tests/spark/test_plain.py"):
        assert not parts._Part(frozenset({each})).pytest_ignore_collect(folder)
    assert not parts._Part(frozenset({"tests/spark"})).pytest_ignore_collect(ROOT / "tests/tidy")
