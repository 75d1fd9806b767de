"""Wheels, the installed environment (once for all), and a booted machine for each module."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system import operate
from tests.system.box import PREFIX, Box
from tests.tidy.tree import ROOT

SYSTEM_PYTHON = "/usr/bin/python3"
PARTS = ("lib", "tools", "recovery", "conf", "units", "spark", "pyproject.toml", "setup.py",
         "setup.cfg", "README.md", "LICENSE", "share")
PIP_CONF = "[global]\nno-index = true\nfind-links = /srv/omq/dist\n"
CONF = """\
[journal]
journal_file_bytes = 4 MiB
block_bytes_max = 1 MiB
[store]
disk_reserve_bytes = 0
[index]
messages_max = 25000
queue_entries_max = 25000
[ipc]
request_queue_bytes = 1 MiB
clients_group = omq-clients
operators_group = omq-operators
[daemons]
event_level = TRACE
"""
QUEUES = """\
[*]
death_delay_s = 0
[ROUTER]
[LOCAL]
[UNIX]
[ERRMGR]
[ERROR]
[DEFER]
[ORDERS]
[AUDIT]
"""


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """omq's wheel and all that it needs, for the system's Python."""
    base = tmp_path_factory.mktemp("wheels")
    source = base / "source"  # a copy: building leaves folders in its tree
    source.mkdir()
    for name in PARTS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name,
                            ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        elif (ROOT / name).exists():
            shutil.copy(ROOT / name, source / name)
    version = subprocess.run(
        [SYSTEM_PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
        check=True, capture_output=True, text=True).stdout.strip()
    python, options = Path(sys.executable), ["--no-build-isolation"]
    if version != f"{sys.version_info[0]}.{sys.version_info[1]}":  # wheels are for one version
        subprocess.run([SYSTEM_PYTHON, "-m", "venv", base / "venv"], check=True)
        python, options = base / "venv/bin/python", []
    result = subprocess.run(
        [python, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", *options,
         "--constraint", ROOT / "constraints.txt", "--wheel-dir", base / "wheels",
         f"{source}[mail,web]", source / "tools/suite"],
        check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return base / "wheels"


@pytest.fixture(scope="session")
def prefix(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What becomes /opt/omq: made as OPERATE.md says, without network, by the system's Python."""
    folder = tmp_path_factory.mktemp("prefix")
    folder.chmod(0o755)
    state = tmp_path_factory.mktemp("box") / "install"
    box = Box(state, {folder: PREFIX, wheels: "/srv/omq/dist"})
    try:
        box.sh("rm -rf /root/.config/pip /root/.pip")  # what the host's owner set
        box.write("/etc/pip.conf", PIP_CONF)  # in place of the network
        box.sh(f"cd /srv/omq\n{operate.NEW_PLACE}")
        box.run(f"{PREFIX}/bin/pip", "install", "--quiet", "omq-suite[web]")  # for its socket
    finally:
        box.stop(in_order=False)
    return folder


@pytest.fixture(scope="module")
def machine(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A machine with omq in /opt/omq and nothing set up."""
    box = Box(tmp_path_factory.mktemp("box") / "state", {prefix: PREFIX})
    yield box
    box.stop(in_order=False)


@pytest.fixture(scope="module")
def installed(machine: Box) -> Box:
    """The same with the units of the default instance, small, with two queues of one's own."""
    machine.run(f"{PREFIX}/bin/omq", "setup")
    machine.write("/etc/omq/omq.conf", CONF)
    machine.write("/etc/omq/queues.conf", QUEUES)
    return machine
