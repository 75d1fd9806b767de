"""Launchers, commands and packaging name the same programs, and each answers --help."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from omq.cli.launch import COMMANDS
from tests.tidy.tree import ROOT

BIN = ROOT / "bin"


def test_every_command_has_its_launcher() -> None:
    assert {path.name for path in BIN.iterdir()} == {*COMMANDS, "python"}


@pytest.mark.parametrize("name", COMMANDS)
def test_launcher_is_thin_and_executable(name: str) -> None:
    path = BIN / name
    lines = path.read_text(encoding="ascii").splitlines()
    assert os.access(path, os.X_OK)
    assert lines[0] == "#!/bin/sh"
    assert 5 <= len(lines) <= 10
    assert lines[-1] == f'exec "$python" -P -m omq.cli.launch {name} "$@"'


def test_installed_scripts_are_the_same_commands() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"] == dict.fromkeys(COMMANDS, "omq.cli.launch:script")


def test_dependencies_are_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    extras = [name for each in optional.values() for name in each]
    wanted = [*project["dependencies"], *extras]
    pinned = {
        line.split("==")[0]
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line
    }
    names = {line.split("[")[0].split(">")[0].split("<")[0] for line in wanted}
    assert names <= pinned


@pytest.mark.parametrize("name", COMMANDS)
def test_help(name: str) -> None:
    result = subprocess.run(
        [sys.executable, "-P", "-m", "omq.cli.launch", name, "--help"],
        capture_output=True, text=True, check=False, timeout=60,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert name in result.stdout


def test_launcher_works_from_anywhere_and_through_a_link(tmp_path: Path) -> None:
    if not (ROOT / ".venv/bin/python").exists():
        pytest.skip("no .venv: run 'make setup'")
    (tmp_path / "omqdump").symlink_to(BIN / "omqdump")
    (tmp_path / "argparse.py").write_text("raise SystemExit('a module of this folder was used')")
    result = subprocess.run(
        [tmp_path / "omqdump", "--help"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert "usage: omqdump" in result.stdout


def test_each_row_of_the_original_has_its_test() -> None:
    text = (ROOT / "lib/omq/docs/TOOLS.md").read_text(encoding="utf-8")
    rows = [line for line in text.split("## The original, row by row")[1].splitlines()
            if line.startswith("| ") and "`test_" in line]
    known = {match for file in (ROOT / "tests").rglob("test_*.py")
             for match in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.M)}
    wanted = {name for row in rows for name in re.findall(r"`(test_\w+)`", row)}
    assert len(rows) >= 25 and wanted <= known, wanted - known
