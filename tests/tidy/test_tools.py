"""Launchers, commands and packaging name the same programs, and each answers --help."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest

from omq.base.services_conf import ServiceKind, load_services
from omq.cli import launch
from omq.cli.launch import COMMANDS
from omq.cli.programs import LAUNCHER
from omq.services.supervise.unit_files import unit_of
from tests.process import processes
from tests.tidy.tree import ROOT

BIN = ROOT / "bin"


def test_every_command_has_its_launcher() -> None:
    assert {path.name for path in BIN.iterdir()} == {*COMMANDS, "python"}


@pytest.mark.parametrize("name", COMMANDS)
def test_launcher_is_made_of_the_table_and_executable(name: str) -> None:
    path = BIN / name
    assert os.access(path, os.X_OK)
    assert path.read_text(encoding="ascii") == LAUNCHER.replace("NAME", name), "run: make manual"


def test_installed_scripts_are_the_same_commands() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "scripts" in project["dynamic"] and "scripts" not in project, "setup.py takes the table"
    scripts = [each for each in distribution("omq-base").entry_points
               if each.group == "console_scripts"]
    assert {each.name: each.value for each in scripts} == dict.fromkeys(
        COMMANDS, "omq.cli.launch:script"), "run: make setup"


def test_a_service_is_named_in_two_tables() -> None:
    """Its program in cli/programs.py and services.conf, in what its manual page says, and where the
    code means just this one."""
    meant = {"lib/omq/cli/look/gateways.py": {"unix.out"}, "lib/omq/cli/programs.py": None,
             "lib/omq/cli/daemon_texts.py": None,
             "lib/omq/cli/operate/connections.py": {"amqp.server"},
             "lib/omq/services/mail/tls_mailing.py": {"smtp.server"},
             "lib/omq/testing/instance.py": {"idel.server"}}
    services = load_services(ROOT / "conf")
    core = (ServiceKind.MANAGER, ServiceKind.POOL)  # there is one of each, and tools mean it
    programs = {each.program for each in services.values() if each.kind not in core}
    assert programs <= set(COMMANDS)
    found: dict[str, set[str]] = {}
    for folder in ("lib", "tools", "recovery", "spark"):
        for path in (ROOT / folder).rglob("*.py"):
            words = {node.value for node in ast.walk(ast.parse(path.read_bytes()))
                     if isinstance(node, ast.Constant) and isinstance(node.value, str)}
            own = COMMANDS.values()
            name = str(path.relative_to(ROOT))
            module = name.removeprefix("lib/").removesuffix(".py").replace("/", ".")
            if words & programs and not any(each.startswith(f"{module}:") for each in own):
                found[name] = words & programs
    assert {name: meant[name] or names for name, names in found.items() if name in meant} == found
    units = {path.name for path in (ROOT / "units").glob("omq-*.service")}
    assert {unit_of(name, None) for name in services} <= units


def test_a_service_of_ones_own_runs_from_the_template() -> None:
    assert unit_of("orders", "test") == "omq-test-service@orders.service"
    assert unit_of("errmgr", "test") == "omq-test-error.service"


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
def test_help(tmp_path: Path, name: str) -> None:
    """In a fork of this process; that each starts as a program by itself is for
    test_light_starts and the tests that install it."""
    def run() -> int:
        try:
            return launch.run(name, ["--help"])
        except SystemExit as end:
            return int(end.code or 0)
        finally:
            sys.stdout.flush()

    output = tmp_path / "out"
    code = processes.start(name, run, output=output).wait()
    said = output.read_text(encoding="utf-8")
    assert code == 0, said
    assert said.startswith("usage: ") and name in said.splitlines()[0], said
    assert "Traceback" not in said and "Warning" not in said, said


def test_launcher_works_from_anywhere_and_through_a_link(tmp_path: Path) -> None:
    if not (ROOT / ".venv/bin/python").exists():
        pytest.skip("no .venv: run 'make setup'")
    (tmp_path / "omqdump").symlink_to(BIN / "omqdump")
    (tmp_path / "argparse.py").write_text("raise SystemExit('a module of this folder was used')")
    result = subprocess.run(
        [tmp_path / "omqdump", "--help"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300,
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
