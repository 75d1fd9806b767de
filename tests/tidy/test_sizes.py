"""Modules and functions stay small enough to read; each exception has its reason."""

from __future__ import annotations

import ast

from tests.tidy.tree import nodes, product

MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70

LONG_MODULES = {
    "lib/omq/base/errors.py": "a table: each error with status and exit code (its docstring)",
}
LONG_FUNCTIONS: dict[str, str] = {}
"""'path:function' -> reason"""


def test_modules_are_short() -> None:
    long = {
        source.path: count
        for source in product()
        if (count := source.text.count("\n")) > MODULE_LINES_MAX
    }
    assert set(long) - set(LONG_MODULES) == set(), long
    assert set(LONG_MODULES) - set(long) == set(), "an exception is no longer needed"


def test_functions_are_short() -> None:
    long = {}
    for source in product():
        for node in nodes(source):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    long[f"{source.path}:{node.name}"] = lines
    assert set(long) - set(LONG_FUNCTIONS) == set(), long
    assert set(LONG_FUNCTIONS) - set(long) == set(), "an exception is no longer needed"


def test_modules_say_what_they_are() -> None:
    silent = [source.path for source in product() if not ast.get_docstring(source.tree)]
    assert not silent, silent
