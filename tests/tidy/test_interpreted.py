"""CI runs with the interpreted fast path the units that load it, and no other twice.

Seen is what a file loads when it is imported; inside functions these rooms import nothing of layers
above their own (test_layers). Types there that are used in every form (ADR 0212) do not count, nor
does what the package itself loads to see whether its build can be used: tests/forms compares both
forms.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable

from omq.fast import CLIENT
from tests.tidy.test_layers import LEAVES
from tests.tidy.tree import ROOT

ROOMS = ("base", "core", "engine", "format", "look", "storage")
"""Of units of layers that may not import it."""
TYPES = ("client_state", "company", "look_line", "shared_views")
ALWAYS = {*LEAVES["core"], *(f"omq.fast.{name}" for name in (*CLIENT, *TYPES))}
LOADS = f"""
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
    if any(each.startswith("omq.fast.") for each in set(sys.modules) - {ALWAYS}):
        sys.exit(name)
"""


def listed() -> set[str]:
    """The files in these rooms that .ci/run names."""
    found = re.search(r"^INTERPRETED=\(([^)]*)\)", (ROOT / ".ci/run").read_text("utf-8"), re.M)
    assert found is not None
    words = " ".join(found[1].split())
    said = subprocess.run(["bash", "-c", f"printf '%s\\n' {words}"], cwd=ROOT, check=True,
                          capture_output=True, text=True).stdout.split()
    assert said and all((ROOT / name).exists() for name in said)
    return {name for name in said if name.split("/")[2] in ROOMS}


def first_to_load_it(names: Iterable[str]) -> str:
    """Of modules that are imported one after the other; empty: none."""
    return subprocess.run([sys.executable, "-c", LOADS, *names], cwd=ROOT, check=False,
                          capture_output=True, text=True,
                          env=os.environ | {"PYTHONPATH": str(ROOT)}).stderr.strip()


def test_what_is_not_listed_does_not_load_it() -> None:
    named = listed()
    modules = [path.removesuffix(".py").replace("/", ".") for room in ROOMS
               for each in sorted((ROOT / "tests/unit" / room).rglob("test_*.py"))
               if (path := each.relative_to(ROOT).as_posix()) not in named]
    assert len(modules) > 50
    assert first_to_load_it(modules) == ""


def test_one_that_does_is_seen() -> None:
    assert first_to_load_it(["tests.forms.test_rings"]) == "tests.forms.test_rings"
