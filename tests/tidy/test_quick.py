"""make quick takes the tests nearest to what changed, within its budget, and the fast path twice;
make test says what it would run."""

from __future__ import annotations

import functools
import re
import subprocess
import sys

import pytest

from tests.long import why_long
from tests.quick import chosen, distances, graph, imported, module_of, sources
from tests.tidy.tree import ROOT
from tests.units import recorded

SMALL = {
    "lib/omq/base/a.py": "",
    "lib/omq/core/b.py": "from omq.base import a\n",
    "lib/omq/fast/c.py": "def late():\n    from omq.core.b import name\n",
    "lib/omq/ipc/half.py": "import omq.base.a\ndef (",
    "tools/omqdump/d.py": "import omq.core.b as other\n",
    "tests/unit/base/test_a.py": "from omq.base.a import thing\n",
    "tests/unit/core/test_b.py": "from tests.unit.helper import x\n",
    "tests/unit/helper.py": "import omqtools.omqdump.d\n",
    "tests/unit/fast/test_c.py": "from omq.fast.c import late\n",
}


@functools.cache
def whole() -> dict[str, set[str]]:
    """Of this repository."""
    return graph(sources())


def test_names() -> None:
    assert module_of("lib/omq/core/engine/__init__.py") == "omq.core.engine"
    assert module_of("recovery/omqrecover/plan.py") == "omqtools.omqrecover.plan"
    assert module_of("tests/quick.py") == "tests.quick"
    assert module_of("conf/omq.conf") == module_of("setup.py") == ""


def test_imports_of_a_file_that_is_half_written() -> None:
    assert imported(SMALL["lib/omq/ipc/half.py"]) == set()
    assert "omq.core.b" in imported(SMALL["lib/omq/fast/c.py"])


def test_the_nearest_first_through_helpers_and_tools() -> None:
    near = distances(graph(SMALL), ["lib/omq/core/b.py"])
    assert near == {"lib/omq/core/b.py": 0, "lib/omq/fast/c.py": 1, "tools/omqdump/d.py": 1,
                    "tests/unit/fast/test_c.py": 2, "tests/unit/helper.py": 2,
                    "tests/unit/core/test_b.py": 3}
    assert chosen(near, set(), {}, 10.0) == (
        ["tests/unit/fast/test_c.py", "tests/unit/core/test_b.py"], [])


def test_what_does_not_fit_is_left_and_said() -> None:
    near = {"tests/unit/test_x.py": 1, "tests/unit/test_y.py": 2, "tests/unit/test_z.py": 2,
            "tests/spark/test_s.py": 1, "tests/unit/helper.py": 1}
    seconds = {"tests/unit/test_x.py": 3.0, "tests/unit/test_y.py": 9.0,
               "tests/unit/test_z.py": 2.0}
    assert chosen(near, set(), seconds, 5.0) == (
        ["tests/unit/test_x.py", "tests/unit/test_z.py"], ["tests/unit/test_y.py"])
    assert chosen(near, {"tests/unit/test_x.py"}, seconds, 5.0) == (
        ["tests/unit/test_z.py"], ["tests/unit/test_x.py", "tests/unit/test_y.py"])


def test_a_test_that_was_edited_runs_whatever_it_takes() -> None:
    assert chosen({"tests/spark/test_s.py": 0}, set(), {"tests/spark": 900.0}, 5.0)[0] == [
        "tests/spark/test_s.py"]


@pytest.mark.parametrize(("name", "test"), [
    ("lib/omq/format/poolctrl.py", "tests/unit/storage/test_control.py"),
    ("lib/omq/base/sizes.py", "tests/unit/base/test_sizes.py"),
    ("tools/omqdump/listings.py", "tests/unit/omqdump/test_omqdump.py"),
])
def test_of_this_repository(name: str, test: str) -> None:
    near = distances(whole(), [name])
    assert test in chosen(near, set(), recorded())[0]


def test_a_change_of_nothing_runs_nothing() -> None:
    assert distances(graph(SMALL), []) == {}


def test_make_test_says_what_it_would_run() -> None:
    """The same choice as its own; no test runs."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (line,) = re.findall(r"python (-m pytest -p tests\.parts --only quick --collect-only .*);",
                         makefile)
    done = subprocess.run([sys.executable, *line.split(), "tests/unit/base", "tests/crash/daemons"],
                          cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tests/unit/base/test_sizes.py::" in done.stdout
    assert "tests/crash/daemons" not in done.stdout
    assert why_long("tests/crash/daemons/test_fuzz.py", {})
