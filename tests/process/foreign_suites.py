"""Tests of Celery and of kombu, as their source distributions have them, for a broker that they do
not know.

The wheels lack them, so pip fetches the source distributions at the versions of constraints.txt,
into build/suites; what comes must have the checksum that is written here. They run in a process of
their own, beside the installed libraries. `python -m tests.process.foreign_suites celery
pyamqp://guest:guest@127.0.0.1:5672 omq:///SPOOL [TEST...]` runs them with any broker and result
backend: so the baseline of lib/omq/docs/TASKS.md was made.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
HOME: Final = ROOT / "build" / "suites"
SHA256: Final = {
    ("celery", "5.7.0"): "6a5dfcf6662287204f009a02002b9e66c83d4105e47ebabdc7079108772fc6f0",
    ("kombu", "5.7.0"): "31e62fdfd2381caa3422f8e02b84a491d9a2180ddda74507b57f4cb1e1c2c2c9",
}
FETCH_S: Final = 60
RUN_S: Final = 900
KOMBU: Final = '''
import kombu, pytest, os
import omq.tasks.kombu_plugin
from .common import (BaseEventLoop, BaseExchangeTypes, BaseMessage, BasePriority, BaseTimeToLive,
                     BasicFunctionality)

@pytest.fixture
def connection():
    return kombu.Connection(os.environ["TEST_BROKER"])

@pytest.fixture
def invalid_connection():
    return kombu.Connection(os.environ["TEST_BROKER"].split(":")[0] + "://nobody-is-here:1/none")

class test_basic(BasicFunctionality): pass
class test_exchanges(BaseExchangeTypes): pass
class test_ttl(BaseTimeToLive): pass
class test_priority(BasePriority): pass
class test_message(BaseMessage): pass
class test_event_loop(BaseEventLoop): pass
'''
"""What kombu's own test of a transport looks like (t/integration/test_py_amqp.py)."""


class NotHere(Exception):
    """The tests cannot be had; why."""


def folder(package: str) -> Path:
    """Where the tests of the installed version are, fetched if need be. NotHere."""
    installed = version(package)
    wanted = SHA256.get((package, installed))
    if wanted is None:
        raise NotHere(f"no checksum of the sources of {package} {installed} is known")
    found = HOME / f"{package}-{installed}"
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / "lock").open("w") as lock:  # parts of the tests run side by side
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            _fetch(package, installed, wanted, found)
    return found


def _fetch(package: str, installed: str, wanted: str, found: Path) -> None:
    made = HOME / "new"
    shutil.rmtree(made, ignore_errors=True)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-binary", ":all:",
             "--no-deps", "--no-build-isolation", "--dest", str(made), f"{package}=={installed}"],
            capture_output=True, text=True, timeout=FETCH_S, check=False)
    except subprocess.TimeoutExpired:
        raise NotHere(f"pip has not fetched the sources of {package} in {FETCH_S} s") from None
    files = sorted(made.glob("*.tar.gz"))
    if done.returncode or len(files) != 1:
        raise NotHere(f"pip cannot fetch the sources of {package}")
    assert hashlib.sha256(files[0].read_bytes()).hexdigest() == wanted, files[0]
    with tarfile.open(files[0]) as archive:
        for each in archive:
            if each.isfile() and each.name.startswith(f"{package}-{installed}/t/"):
                file = made / each.name
                file.parent.mkdir(parents=True, exist_ok=True)
                data = archive.extractfile(each)
                assert data is not None
                file.write_bytes(data.read())
    tests = made / f"{package}-{installed}"
    if package == "kombu":
        (tests / "t/integration/test_broker.py").write_text(KOMBU)
    tests.rename(found)


def run(package: str, broker: str, backend: str, tests: Sequence[str], scratch: Path
        ) -> tuple[dict[str, str], str]:
    """What became of each test ("passed", "skipped", else what it failed with), and what was said.
    NotHere."""
    home = folder(package)
    report = scratch / f"{package}.xml"
    more = ["-p", "celery.contrib.pytest"] if package == "celery" else []
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(home), "-q",
         "-p", "no:cacheprovider", "-W", "ignore", "-o", "python_classes=test_*",
         "--tb=short", f"--junitxml={report}", *more, *tests],
        cwd=home, capture_output=True, text=True, timeout=RUN_S, check=False,
        env={**os.environ, "TEST_BROKER": broker, "TEST_BACKEND": backend,
             "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
             "PYTHONPATH": f"{home}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"})
    if not report.exists():
        return {}, done.stdout + done.stderr
    return dict(map(_outcome, ElementTree.parse(report).iter("testcase"))), done.stdout


def _outcome(case: ElementTree.Element) -> tuple[str, str]:
    name = f"{case.get('classname', '').rpartition('integration.')[2]}.{case.get('name')}"
    for kind in ("failure", "error", "skipped"):
        if (found := case.find(kind)) is not None:
            said = " ".join((found.get("message") or "").split())[:200]
            return name, "skipped" if kind == "skipped" else f"{kind}: {said}"
    return name, "passed"


if __name__ == "__main__":
    package_, broker_, backend_, *tests_ = sys.argv[1:]
    outcomes, said_ = run(package_, broker_, backend_, tests_ or ["t/integration"], HOME)
    print(said_)
    for name_, outcome_ in outcomes.items():
        print(f"{name_:80} {outcome_}")
