"""What CI says about tests that ran nowhere (.ci/outcomes.py): it must not miss one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT

ALLOWED = "real file systems are part of `make crash` (OMQ_CRASH_LONG=1)"
SCRIPT = ROOT / ".ci/outcomes.py"


def run(folder: Path, what: str, *places: str) -> subprocess.CompletedProcess[str]:
    """Each place is what `pytest --outcomes` wrote there."""
    files = []
    for number, text in enumerate(places):
        files.append(folder / f"place.{number}")
        files[-1].write_text(text)
    return subprocess.run([sys.executable, SCRIPT, what, *files], check=False,
                          capture_output=True, text=True)


def test_what_ran_in_one_place_is_not_left(tmp_path: Path) -> None:
    places = "a::one\tneeds root\na::two\t\n", "a::one\t\n"
    assert run(tmp_path, "left", *places).stdout.split() == []
    done = run(tmp_path, "check", *places)
    assert (done.returncode, done.stdout) == (0, "")


def test_what_ran_nowhere_is_left_and_fails(tmp_path: Path) -> None:
    places = "a::one\tneeds root\nb::two\tneeds root\n", "a::one\tneeds a tool\n"
    assert run(tmp_path, "left", *places).stdout.split() == ["a::one", "b::two"]
    done = run(tmp_path, "check", *places)
    assert done.returncode == 1
    assert "NOT ALLOWED" in done.stdout
    assert "a::one" in done.stdout and "b::two" in done.stdout


@pytest.mark.parametrize(("beside", "code"), [("", 0), ("b::two\tneeds root\n", 1)])
def test_what_may_be_left_out_hides_nothing_else(tmp_path: Path, beside: str, code: int) -> None:
    done = run(tmp_path, "check", f"a::one\t{ALLOWED}\n{beside}")
    assert done.returncode == code
    assert ALLOWED in done.stdout
    assert ("b::two" in done.stdout) is bool(code)


def test_a_module_that_was_skipped_whole_and_ran_elsewhere_is_not_left(tmp_path: Path) -> None:
    """There it has no tests: its line is that of the module."""
    skipped = "tests/a.py\tno pyspark\n"
    assert run(tmp_path, "left", skipped).stdout.split() == ["tests/a.py"]
    assert run(tmp_path, "left", skipped, "tests/a.py::one\t\n").stdout.split() == []


def test_so_is_a_folder(tmp_path: Path) -> None:
    skipped = "tests/spark\tno pyspark\n"
    assert run(tmp_path, "left", skipped, "tests/a.py::one\t\n").stdout.split() == ["tests/spark"]
    assert run(tmp_path, "left", skipped, "tests/spark/a.py::one\t\n").stdout.split() == []


def test_a_test_that_failed_did_run(tmp_path: Path) -> None:
    """The plugin's side: a failure, also of a fixture, is an outcome."""
    (tmp_path / "test_x.py").write_text(
        "import pytest\n@pytest.fixture\ndef bad():\n    assert False\n"
        "def test_setup(bad): pass\ndef test_call(): assert False\n"
        "def test_skip(): pytest.skip('no such thing')\ndef test_good(): pass\n")
    said = tmp_path / "outcomes"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider",
         f"--outcomes={said}", tmp_path / "test_x.py"], cwd=ROOT, check=False,
        capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    found = dict(line.rsplit("::", 1)[1].split("\t") for line in said.read_text().splitlines())
    assert found == {"test_setup": "", "test_call": "", "test_skip": "no such thing",
                     "test_good": ""}
    failed = Path(f"{said}.failed").read_text().splitlines()
    assert [node.rsplit("::", 1)[1] for node in failed] == ["test_setup", "test_call"]


@pytest.mark.parametrize("text", ["def test_good(): pass\n", "import no_such_module\n"])
def test_what_is_no_failed_test_is_not_run_again(tmp_path: Path, text: str) -> None:
    """Neither after a good run, nor when a file cannot even be imported."""
    (tmp_path / "test_x.py").write_text(text)
    said = tmp_path / "outcomes"
    subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider",
         f"--outcomes={said}", tmp_path / "test_x.py"], cwd=ROOT, check=False, capture_output=True)
    assert said.exists() and not Path(f"{said}.failed").exists()


@pytest.mark.parametrize(("files", "code"), [(3, 0), (4, 1)])
def test_few_files_of_tests_are_run_again(tmp_path: Path, files: int, code: int) -> None:
    """Each once, in the place where it failed."""
    (tmp_path / "there.1.failed").write_text("tests/a.py::one\ntests/a.py::two[x]\n")
    (tmp_path / "spark.failed").write_text(
        "".join(f"tests/b{number}.py::one\n" for number in range(files - 1)))
    done = subprocess.run([sys.executable, SCRIPT, "again", tmp_path / "there.1.failed",
                           tmp_path / "spark.failed"], check=False, capture_output=True, text=True)
    assert done.returncode == code
    assert done.stdout.splitlines()[:2] == ["there.1 tests/a.py", "spark tests/b0.py"]
    assert len(done.stdout.splitlines()) == files


def test_ci_runs_what_the_readme_says_and_nothing_else_there() -> None:
    """In the bare Debian: the README's two commands as they are written."""
    text = (ROOT / ".ci/run").read_text(encoding="utf-8")
    (there,) = re.findall(r"^(entry\(\) \{\n.*?^\}\n\nthere\(\) \{\n.*?^\})", text,
                          re.MULTILINE | re.DOTALL)
    said = re.findall(r'as-user "\$work/debian" (.*?)(?: \|\| ended=\$\?)?$', there, re.MULTILINE)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.split("\n## The two commands\n")[1].split("\n## ")[0]
    assert said == re.findall(r"^    (make .*)$", section, re.MULTILINE)
    assert said == ["make run", "make test"]
    assert set(re.findall(r"^FOREIGN=\((.*?)\)$", text, re.MULTILINE | re.DOTALL))


def test_ci_leaves_no_test_out_in_all_shares() -> None:
    """What make test leaves out has a lane of its own; of its files each share has some."""
    text = (ROOT / ".ci/run").read_text(encoding="utf-8")
    lanes = set(re.findall(r"^for each in (.*); do$", text, re.MULTILINE)[0].split())
    assert {"machines", "spark", "foreign", "long", "lint_and_units", "storms"} <= lanes
    assert 'here machines 1 "$FILES" tests/system' in text
    assert 'here spark 2 "$FILES" tests/spark' in text
    assert "\nFILES=--long-files=${OMQ_LONG_FILES-$((16#${commit:8:8} % 8 + 1))/8}\n" in text
    assert "--only long" in text and 'here storms 1 "$ROOTS"' in text
