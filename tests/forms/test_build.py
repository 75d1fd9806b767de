"""Choosing a form, and compiling: what may be absent, stale, half or broken."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from omq.base import form
from omq.base.errors import ConfigError
from tests.forms.running import ROOT

LOADED = "from omq import fast; print(fast.FORM, '|', fast.PROBLEM)"


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A copy of omq without a build."""
    shutil.copytree(ROOT / "lib/omq", tmp_path / "omq",
                    ignore=shutil.ignore_patterns("__pycache__", "compiled"))
    return tmp_path / "omq"


def _loaded(library: Path, wanted: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(library.parent), form.VARIABLE: wanted}
    return subprocess.run([sys.executable, "-c", LOADED], env=environment, text=True, check=True,
                          stdout=subprocess.PIPE).stdout.strip()


def _compile(library: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "setup_compiled.py"), "--library", str(library), *options],
        env=os.environ | variables, text=True, check=False, capture_output=True)


def test_an_unknown_form_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(form.VARIABLE, "fast")
    with pytest.raises(ConfigError, match=form.VARIABLE):
        form.wanted()
    assert "unknown" in form.told()


def test_a_changed_source_has_another_build(library: Path) -> None:
    before = form.digest(library)
    assert before == form.digest()
    for name in ("fast/put.py", "fast/put.pxd", "base/shim.py"):
        with (library / name).open("a") as file:
            file.write("# changed\n")
        assert form.digest(library) != before
        before = form.digest(library)


def test_without_a_build_it_is_interpreted(library: Path) -> None:
    assert _loaded(library, form.AUTO) == "interpreted |"
    assert _loaded(library, form.INTERPRETED) == "interpreted |"
    assert "no build" in _loaded(library, form.COMPILED)


def test_without_any_build_no_source_is_read(library: Path, monkeypatch: pytest.MonkeyPatch
                                             ) -> None:
    """Each start of a program would pay for it."""
    monkeypatch.setattr(form, "digest", lambda library: pytest.fail("sources are read"))
    (library / "compiled").mkdir()  # as a build that failed leaves it
    assert form.build(library) is None
    (library / f"compiled/0123456789abcdef.{form.ABI}").mkdir()
    with pytest.raises(pytest.fail.Exception):
        form.build(library)


def test_half_a_build_is_none(library: Path) -> None:
    made = form.folder(library)
    made.mkdir(parents=True)
    for name in form.modules(library)[1:]:
        (made / (name + form.SUFFIX)).write_bytes(b"")
    assert form.build(library) is None
    assert _loaded(library, form.AUTO) == "interpreted |"


def test_a_build_that_cannot_be_loaded_is_left(library: Path) -> None:
    """Of another machine, or damaged: the manager runs interpreted, and knows why."""
    made = form.folder(library)
    made.mkdir(parents=True)
    for name in form.modules(library):
        (made / (name + form.SUFFIX)).write_bytes(b"no library at all")
    assert form.build(library) == made
    said, _, problem = _loaded(library, form.AUTO).partition(" | ")
    assert said == "interpreted"
    assert form.SUFFIX in problem


@pytest.mark.parametrize("absent", ["Cython", "compiler", "sense"])
def test_what_a_build_needs_may_be_absent(tmp_path: Path, library: Path, absent: str) -> None:
    for path in (library / "fast").iterdir():  # one module is as good as all, and sooner done
        if path.stem not in ("__init__", "records") and path.is_file():
            path.unlink()
    if absent == "Cython":
        fake = tmp_path / "absent" / "Cython"
        fake.mkdir(parents=True)
        (fake / "__init__.py").write_text("raise ImportError('there is no Cython')\n")
        variables = {"PYTHONPATH": str(fake.parent)}
    else:
        pytest.importorskip("Cython", reason="no Cython: make setup")
        if absent == "sense":  # to this Cython
            with (library / "fast/records.pxd").open("a") as file:
                file.write("cdef what is this\n")
        variables = {"CC": str(tmp_path / "no-such-compiler")}
    done = _compile(library, **variables)
    assert done.returncode == 0, done.stderr
    assert "interpreted" in done.stderr
    assert "apt-get install gcc python3-dev" in done.stderr
    assert not list((library / "compiled").iterdir())
    assert _compile(library, "--required", **variables).returncode == 1


@pytest.mark.skipif(form.build() is None, reason="no C compiler: apt-get install gcc python3-dev")
def test_a_build_is_loaded_and_not_made_twice(tmp_path: Path, library: Path) -> None:
    target = form.folder(library)
    shutil.copytree(form.folder(), target)
    done = _compile(library, "--required", CC=str(tmp_path / "not-needed"))
    assert (done.returncode, done.stderr) == (0, "")
    assert _loaded(library, form.AUTO) == "compiled |"
    assert _loaded(library, form.COMPILED) == "compiled |"


@pytest.mark.skipif(form.build() is None, reason="no C compiler: apt-get install gcc python3-dev")
def test_a_library_of_the_same_sources_gets_a_copy(tmp_path: Path, library: Path) -> None:
    """The package's, behind make setup: it is compiled once. One of others is compiled anew."""
    no_compiler = str(tmp_path / "not-needed")
    assert _compile(library, "--required", CC=no_compiler).returncode == 0
    assert _loaded(library, form.COMPILED) == "compiled |"
    assert not [each for each in (library / "compiled").iterdir() if each != form.folder(library)]
