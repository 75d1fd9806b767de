"""What is worth running after an edit: `make quick`, in at most 20 s of processor.

    python -m tests.quick                  changes since the last commit
    python -m tests.quick --since main     since another one
    python -m tests.quick --list           says what it would run, and why

1. ruff on the Python files that changed.
2. The test files that changed, then those that import what changed, the nearest first (by how many
   imports lie between), and of equally near ones the quickest, as long as the seconds of
   tests/durations.json fit into BUDGET_S. What does not fit is counted, and is left to `make test`;
   so is what starts programs instead of importing them.
3. Those of them that load the fast path once more, with it off (OMQ_FAST=off).

The status is that of the first that failed.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from tests.long import why_long
from tests.units import ROOT, recorded, unit_of

BUDGET_S: Final = 10.0
"""Of recorded seconds; the rest of the 20 is for starting, reading the sources, and ruff."""
FOLDERS: Final = {"lib": "", "tools": "omqtools.", "recovery": "omqtools.", "spark": "omqtools.",
                  "tests": "tests."}


def module_of(name: str) -> str:
    """The dotted name of a file of the repository; "" for what is no module."""
    folder, _, rest = name.partition("/")
    if folder not in FOLDERS or not rest.endswith(".py"):
        return ""
    dotted = rest.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return FOLDERS[folder] + dotted


def imported(text: str) -> set[str]:
    """Every dotted name that a source may import; of `from a import b` both a and a.b. None of a
    file that is half written."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return set()
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def graph(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """File -> files that it imports. `sources`: file -> text."""
    by_module = {module_of(name): name for name in sources}
    return {name: {by_module[each] for each in imported(text) if each in by_module} - {name}
            for name, text in sources.items()}


def distances(edges: Mapping[str, set[str]], changed: Iterable[str]) -> dict[str, int]:
    """File -> how many imports lie between it and what changed; 0 for what changed itself."""
    importers: dict[str, set[str]] = defaultdict(set)
    for name, others in edges.items():
        for other in others:
            importers[other].add(name)
    found = dict.fromkeys(changed, 0)
    layer, distance = set(found), 0
    while layer:
        distance += 1
        layer = {each for name in layer for each in importers[name]} - set(found)
        found.update(dict.fromkeys(layer, distance))
    return found


def chosen(near: Mapping[str, int], fast: set[str], seconds: Mapping[str, float],
           budget_s: float = BUDGET_S) -> tuple[list[str], list[str]]:
    """(what runs, what does not fit) of the test files among `near`. One that loads the fast path
    counts twice; one without a record, as 1 s. What changed itself runs, whatever it takes."""
    tests = [name for name in near if name.startswith("tests/")
             and name.rpartition("/")[2].startswith("test_") and (
                 near[name] == 0 or not why_long(unit_of(ROOT / name), seconds))]
    runs, left, spent = [], [], 0.0
    for name in sorted(tests, key=lambda each: (near[each], seconds.get(each, 1.0), each)):
        takes = seconds.get(name, 1.0) * (2 if name in fast else 1)
        if near[name] and spent + takes > budget_s:
            left.append(name)
        else:
            spent += takes
            runs.append(name)
    return runs, left


def changed_files(since: str) -> list[str]:
    """Files that differ from `since`, and those that git does not know yet; none that are gone."""
    found: set[str] = set()
    for words in (("diff", "--name-only", since), ("ls-files", "--others", "--exclude-standard")):
        done = subprocess.run(["git", *words], cwd=ROOT, check=False, capture_output=True,
                              text=True)
        if done.returncode:
            raise SystemExit(f"make quick: git {' '.join(words)}: {done.stderr.strip()}")
        found.update(done.stdout.splitlines())
    return sorted(name for name in found if (ROOT / name).is_file())


def sources() -> dict[str, str]:
    """All Python of the product and the tests."""
    return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8", errors="replace")
            for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")
            if "compiled" not in path.parts}


def main(arguments: list[str]) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="make quick")
    parser.add_argument("--since", default="HEAD")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args(arguments)
    changed = changed_files(options.since)
    python = [name for name in changed if name.endswith(".py")]
    edges = graph(sources())
    near = distances(edges, [name for name in python if name in edges])
    loads = set(distances(edges, [name for name in edges if name.startswith("lib/omq/fast/")]))
    runs, left = chosen(near, loads, recorded())
    fast = [name for name in runs if name in loads]
    told = f"{len(changed)} files changed, {len(runs)} files of tests, {len(fast)} also without the"
    print(f"{told} compiled fast path; {len(left)} more are left to make test", flush=True)
    if options.list:
        print(*(f"{near[name]} {name}{' (both ways)' if name in loads else ''}" for name in runs),
              sep="\n")
        return 0
    if python and (code := _run([sys.executable, "-m", "ruff", "check", "--quiet", *python])):
        return code
    pytest = [sys.executable, "-m", "pytest", "-q", "-x"]
    if runs and (code := _run([*pytest, *runs])):
        return code
    return _run([*pytest, *fast], OMQ_FAST="off") if fast else 0


def _run(words: list[str], **environ: str) -> int:
    return subprocess.run(words, cwd=ROOT, env=os.environ | environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
