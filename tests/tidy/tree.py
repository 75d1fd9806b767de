"""The source tree as the tidy tests see it: every Python file with its syntax tree."""

from __future__ import annotations

import ast
import gc
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT_FOLDERS = ("lib", "tools", "recovery", "spark")


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """One file: its path from the root of the repository, its text and its syntax tree."""

    path: str
    text: str
    tree: ast.Module


def product() -> tuple[Source, ...]:
    """Every Python file that is part of the product."""
    return _sources(PRODUCT_FOLDERS)


def suite() -> tuple[Source, ...]:
    """Every Python file of the tests."""
    return _sources(("tests",))


SOURCES_MIN = 100


@cache
def nodes(source: Source) -> tuple[ast.AST, ...]:
    """All of its syntax tree. Walking is what most tests here spend their time with."""
    return tuple(ast.walk(source.tree))


@cache
def _sources(folders: tuple[str, ...]) -> tuple[Source, ...]:
    found = []
    gc.disable()  # nothing of two million nodes is garbage: looking for it takes twice the parsing
    try:
        for path in sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            tree = ast.parse(text, str(path))
            found.append(Source(path.relative_to(ROOT).as_posix(), text, tree))
    finally:
        gc.freeze()
        gc.enable()
    assert len(found) > SOURCES_MIN, "what says that nothing is wrong must have looked at something"
    return tuple(found)


@cache
def imports(source: Source) -> tuple[tuple[int, str], ...]:
    """(line, dotted name) of everything that is imported, also for type checking only and inside
    functions. `from a import b` gives a.b, because b may be a module."""
    found = []
    for node in nodes(source):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source.path}:{node.lineno}: relative import"
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return tuple(found)


@cache
def calls(source: Source) -> tuple[tuple[int, str, ast.Call], ...]:
    """(line, dotted name as written, node) of every call of a name: `os.fsync`, `eval`, `x.y.z`."""
    found = ((node, dotted(node.func)) for node in nodes(source) if isinstance(node, ast.Call))
    return tuple((node.lineno, name, node) for node, name in found if name)


def dotted(node: ast.expr) -> str:
    """`a.b.c` of an expression made of names, or '' where something else is in it."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return ""
