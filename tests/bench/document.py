"""Tables of a benchmark in a Markdown document, between two marks; the rest stays as it is.

A run takes up to an hour: where its tables are to go is looked at before it begins (`marked`).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.bench.instance import BenchError


def marked(name: str) -> Callable[[str], Path]:
    """For argparse: the path of a document that can be written and has the marks of NAME."""
    def document(text: str) -> Path:
        path = Path(text)
        try:
            _parts(path, name)
        except (BenchError, OSError, UnicodeDecodeError) as error:
            raise argparse.ArgumentTypeError(str(error)) from error
        if not os.access(path, os.W_OK):
            raise argparse.ArgumentTypeError(f"{path}: cannot be written")
        return path
    return document


def in_folder(text: str) -> Path:
    """For argparse: the path of a file that is written at the end; its folder is made."""
    path = Path(text)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{path}: no file can be written there")
    return path


def write_section(path: Path, name: str, text: str) -> None:
    """Put `text` between `<!-- NAME: begin -->` and its end mark. BenchError without the marks."""
    before, after = _parts(path, name)
    path.write_text(f"{before}{text.strip()}\n{after}", encoding="utf-8")


def _parts(path: Path, name: str) -> tuple[str, str]:
    """What stands before and behind the section, marks included."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    whole = path.read_text(encoding="utf-8")
    before, found, rest = whole.partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise BenchError(f"{path}: no marks {begin.strip()} and {end.strip()}, one a line")
    return before + begin, end + after


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first column to the left, the others to the right."""
    lines = [head, [":--", *["--:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
