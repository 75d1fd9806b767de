"""What is published can be installed: both wheels and the source distribution, each afresh.

A client's environment has omq-base alone: it puts and takes messages of an instance that another
environment runs, and says what is missing for the rest.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.base import form
from omq.base.errors import Exit
from omqtools.omqtest.child import Child
from tests.process.processes import popen
from tests.system.conftest import SYSTEM_PYTHON
from tests.tidy.tree import ROOT

END_S = 300
NOT_PUBLISHED = (".gitignore",)
BACKEND = "import sys, setuptools.build_meta as made; made.build_sdist(sys.argv[1])"


def _run(*words: object, code: int = 0, cwd: Path | None = None, given: str = "") -> str:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OMQ_")}
    result = subprocess.run([str(word) for word in words], check=False, cwd=cwd, input=given,
                            env=environ, capture_output=True, text=True, timeout=END_S)
    said = result.stdout + result.stderr
    assert result.returncode == code, f"{words}: {result.returncode}\n{said}"
    return said


def _environment(folder: Path, wheels: Path, *what: str) -> Path:
    """A fresh one with these distributions; its folder of programs."""
    _run(SYSTEM_PYTHON, "-m", "venv", folder)
    _run(folder / "bin/pip", "install", "--quiet", "--no-index", "--find-links", wheels, *what)
    _run(folder / "bin/pip", "check")
    return folder / "bin"


@pytest.fixture(scope="module")
def client(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _environment(tmp_path_factory.mktemp("client") / "venv", wheels, "omq-base[client]")


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Path]:
    """Of a queue manager that the tests' own environment runs."""
    root = tmp_path / "spool"
    (root / "conf").mkdir(parents=True)
    (root / "conf/queues.conf").write_text("[*]\n\n[ORDERS]\n", encoding="ascii")
    (root / "conf/omq.conf").write_text(
        "[index]\nmessages_max = 1000\nqueue_entries_max = 1000\n[journal]\njournal_file_bytes ="
        " 4 MiB\nblock_bytes_max = 1 MiB\n[store]\ndisk_reserve_bytes = 0\n", encoding="ascii")
    manager: Child = popen("queue.manager", ["--spool", str(root), "--create"],
                           output=tmp_path / "output")
    yield root
    manager.terminate()
    assert manager.wait(float(END_S)) == 0


def test_the_wheel_of_a_client_is_for_every_c_library(wheels: Path) -> None:
    """The fast path that was compiled in this tree is not in it; annotations and plugins are."""
    (wheel,) = wheels.glob("omq_base-*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    assert not [name for name in names if name.endswith(".so")]
    assert {"omq/py.typed", "omq/tasks/kombu_plugin.py"} <= set(names)


def test_a_compiled_wheel_is_for_one_python_and_runs_compiled(tmp_path: Path) -> None:
    """As tools/wheels makes it, of a tree where this Python's build is there already."""
    if form.build() is None:
        pytest.skip("no compiled fast path here (gcc, python3-dev, cython)")
    source = tmp_path / "source"
    for name in ("lib", "tools", "recovery", "spark", "conf", "units", "share", "setup.py",
                 "setup.cfg", "setup_compiled.py", "pyproject.toml", "LICENSE", "README.md"):
        place = source / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place,
                            ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(ROOT / name, place)
    words = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps",
             "--wheel-dir", tmp_path / "made", source)
    _run("env", "OMQ_WHEEL=compiled", *words)
    (wheel,) = (tmp_path / "made").glob("omq_base-*.whl")
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    assert f"-{tag}-{tag}-linux_" in wheel.name
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path / "installed")
    said = _run("env", f"PYTHONPATH={tmp_path / 'installed'}", sys.executable, "-c",
                "import omq.fast.plain_requests; from omq.base import form;"
                " print(omq.__file__, form.told(), omq.fast.plain_requests.__file__)", cwd=tmp_path)
    package, told, module = said.split()
    assert Path(package).is_relative_to(tmp_path / "installed") and told == "compiled"
    assert Path(module).is_relative_to(tmp_path / "installed") and module.endswith(form.SUFFIX)


def test_a_client_puts_and_takes_without_numpy(client: Path, spool: Path) -> None:
    names = _run(client / "pip", "list")
    assert not [name for name in ("numpy", "zstandard", "aiosmtpd") if name in names], names
    _run(client / "python", "-c", "import omq\n"
         f"with omq.connect(spool={str(spool)!r}, name='client', timeout_s=60) as connection:\n"
         "    connection.put('ORDERS', b'one')\n"
         "    with connection.reader('ORDERS') as reader:\n"
         "        (message,) = reader.next(timeout_s=60)\n"
         "        assert message.body == b'one'\n"
         "        message.done()\n")
    _run(client / "python", "-c", "import asyncio, omq.aio\n"
         "async def main():\n"
         f"    async with omq.aio.connect({str(spool)!r}, timeout_s=60) as connection:\n"
         "        await connection.put('ORDERS', b'of a coroutine')\n"
         "        async with connection.unit() as unit:\n"
         "            assert (await unit.get('ORDERS')).body == b'of a coroutine'\n"
         "asyncio.run(main())\n")
    _run(client / "omsend", "--spool", spool, "ORDERS", given="two")
    assert "two" in _run(client / "omread", "--spool", spool, "ORDERS", "--count", "1", "--", "cat")
    (spool.parent / "tasks.py").write_text("NOTHING = 0\n")
    said = _run(client / "omq", "worker", "tasks:no_such", "--queue", "ORDERS", "--spool", spool,
                "--path", spool.parent, code=Exit.CONFIG)
    assert "no_such" in said
    said = _run(client / "omstat", "--spool", spool, "-a", code=Exit.UNAVAILABLE)
    assert "which is not installed" in said and "numpy" in said and "'omq-suite'" in said


def test_the_suite_brings_the_rest(wheels: Path, tmp_path: Path) -> None:
    programs = _environment(tmp_path / "venv", wheels, "omq-suite")
    for name in ("omqdump", "queue.manager", "smtp.server", "omqrecover", "omq-archive", "omstat"):
        assert "usage" in _run(programs / name, "--help")
    _run(programs / "python", "-W", "error", "-c", "import omq.services.mail.smtp_session,"
         " omq.storage.archive, omq.core.load.rebuild, omqtools.omqdump.main,"
         " omqtools.omqtest.main")
    said = _run(programs / "python", "-c", "from importlib.metadata import metadata\n"
                "for name in 'omq-suite', 'omq-base': print(metadata(name)['License-Expression'])")
    assert said.split() == ["Apache-2.0", "Apache-2.0"]


def test_the_source_distribution_is_complete(tmp_path: Path) -> None:
    """It has every file of the repository, and a wheel made of it is the same as one made here."""
    if not (ROOT / ".git").exists():
        pytest.skip("no repository: this is a source distribution already")
    listed = _run("git", "-c", "safe.directory=*", "ls-files", cwd=ROOT).splitlines()
    names = [name for name in listed if (ROOT / name).exists()]
    tree = tmp_path / "tree"
    for name in names:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name)
    _run(sys.executable, "-c", BACKEND, tmp_path, cwd=tree)
    (archive,) = tmp_path.glob("omq_base-*.tar.gz")
    with tarfile.open(archive) as packed:
        found = {name.partition("/")[2] for name in packed.getnames()}
    (tmp_path / "unpacked").mkdir()
    _run("tar", "-xf", archive, "-C", tmp_path / "unpacked", cwd=tmp_path)  # no `filter` in 3.11.2
    missing = [name for name in names if name not in found and name not in NOT_PUBLISHED]
    assert missing == []
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    wheels = []
    for place, source in (("here", tree), ("there", unpacked)):
        _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps",
             "--wheel-dir", tmp_path / place, source)
        (wheel,) = (tmp_path / place).glob("*.whl")
        with zipfile.ZipFile(wheel) as packed_wheel:
            wheels.append(sorted(packed_wheel.namelist()))
    assert wheels[0] == wheels[1]
    assert "omq/units/logrotate.d/omq" in wheels[0]
    assert any(name.endswith("licenses/LICENSE") for name in wheels[0])
