"""A fresh environment with what a document says to install, and nothing else.

It is made of what the tests' own environment has, by links, so that no network is needed: the
distributions that are asked for, with what they ask for themselves, and `omq` as omq-base has it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.tidy.tree import ROOT

_OWN = "omq-base"


def environment(folder: Path, *wanted: str) -> Path:
    """Made in `folder`, as `pip install WANTED...` would; its interpreter. Skips the test where the
    tests' environment lacks something of it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    (site / "omq").symlink_to(ROOT / "lib/omq")
    for found in _closure(map(Requirement, wanted)).values():
        for name in _entries(found):
            if not (site / name).exists():
                (site / name).symlink_to(Path(str(found.locate_file(name))))
        for entry in found.entry_points.select(group="console_scripts"):
            _program(folder / "bin" / entry.name, folder, entry.module, entry.attr)
    return folder / "bin/python"


def run(python: Path, code: str, spool: Path, timeout_s: float) -> str:
    """Of this interpreter, with warnings as errors; AssertionError with what it says."""
    environ = {"OMQ_SPOOL": str(spool), "PATH": f"{python.parent}:{os.environ['PATH']}"}
    done = subprocess.run([python, "-W", "error", "-c", code], capture_output=True, text=True,
                          timeout=timeout_s, check=False, env=environ, cwd=spool)
    assert (done.returncode, done.stderr) == (0, ""), f"{code}\n{done.stderr}"
    return done.stdout


def _closure(wanted: Iterable[Requirement]) -> dict[str, Distribution]:
    """What these ask for, with all extras that somebody named, by name."""
    found: dict[str, Distribution] = {}
    seen: set[str] = set()
    left = list(wanted)
    while left:
        each = left.pop()
        if str(each) in seen:
            continue
        seen.add(str(each))
        try:
            known = distribution(each.name)
        except PackageNotFoundError:
            pytest.skip(f"{each.name} is not installed here")
        found[canonicalize_name(each.name)] = known
        for text in known.requires or ():
            more = Requirement(text)
            if more.marker is None or any(
                    more.marker.evaluate({"extra": extra}) for extra in ("", *each.extras)):
                left.append(more)
    return found


def _entries(found: Distribution) -> set[str]:
    """Its files and folders in site-packages; of our own, which is linked as a tree, the metadata
    alone."""
    names = {str(file).partition("/")[0] for file in found.files or ()}
    own = canonicalize_name(found.metadata["Name"]) == _OWN
    return {name for name in names if name not in ("..", "__pycache__")
            and (not own or name.endswith(".dist-info"))}


def _program(path: Path, folder: Path, module: str, attribute: str) -> None:
    path.write_text(f"#!{folder}/bin/python\nimport sys\nfrom {module} import {attribute}\n"
                    f"sys.exit({attribute}())\n", encoding="utf-8")
    path.chmod(0o755)
