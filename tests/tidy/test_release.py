"""What make release makes is checked (tools/release): each of these is found. That the whole is
right takes minutes: make release itself, and tests/system/test_distributions.py."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import omq
from tests.tidy.tree import ROOT

SCRIPT = ROOT / "tools/release"


def run(what: str, folder: Path) -> tuple[int, str]:
    done = subprocess.run([SCRIPT, what, folder], check=False, capture_output=True, text=True,
                          timeout=120)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    for name in ("a.whl", "b.deb"):
        (tmp_path / name).write_text(name)
    assert run("sums", tmp_path) == (0, "")
    return tmp_path


def test_sums_are_of_all_files_and_not_of_themselves(dist: Path) -> None:
    assert run("sums", dist) == (0, "")
    lines = (dist / "SHA256SUMS").read_text().splitlines()
    assert [line.split()[1] for line in lines] == ["a.whl", "b.deb"]
    assert subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=dist, check=False,
                          capture_output=True).returncode == 0


def test_a_file_that_was_changed(dist: Path) -> None:
    (dist / "a.whl").write_text("b.whl")
    code, said = run("check", dist)
    assert code == 1 and "a checksum is not that of its file" in said


def test_a_file_that_has_no_sum(dist: Path) -> None:
    (dist / "c.txt").write_text("")
    code, said = run("check", dist)
    assert code == 1 and "does not list what is there: c.txt" in said


def test_a_file_that_is_missing(dist: Path) -> None:
    code, said = run("check", dist)
    assert code == 1 and f"has no omq_base-{omq.__version__}.tar.gz: run make release" in said


def test_a_compiled_wheel_is_of_a_source_distribution(tmp_path: Path) -> None:
    done = subprocess.run([ROOT / "tools/wheels", ROOT, tmp_path, "python3"], check=False,
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "no source distribution, or several: run make sdist" in done.stderr


def test_a_release_begins_empty_and_is_tried_in_a_bare_root_at_the_end() -> None:
    """What `make release` would run; each step is tried by a test of its own, or in minutes."""
    done = subprocess.run(["make", "--dry-run", "release"], cwd=ROOT, check=True, timeout=120,
                          capture_output=True, text=True, env=os.environ | {"MAKEFLAGS": ""})
    steps = ("rm -rf dist", "made.build_sdist(sys.argv[1])' dist", "-m pip wheel", "tools/sbom ",
             "tools/debian/build ", "tools/wheels ", "tools/release sums dist",
             "tools/release check dist", "tools/release bare dist")
    lines = [line for line in done.stdout.splitlines() if any(each in line for each in steps)]
    assert [next(each for each in steps if each in line) for line in lines] == list(steps)


def test_what_it_does_not_know(dist: Path) -> None:
    assert run("publish", dist)[0] == 64


def test_the_notes_are_one_page_and_of_this_version() -> None:
    text = (ROOT / "RELEASE_NOTES.md").read_text("utf-8")
    assert text.startswith(f"# Release notes: omq {omq.__version__}")
    assert text.count("\n") <= 80
    for word in ("FORMATS", "exit codes", "event numbers", "JSON keys", "omq.__all__"):
        assert word.lower() in text.lower(), word
