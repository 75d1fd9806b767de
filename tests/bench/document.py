"""Tables of a benchmark in a Markdown document, between two marks; the rest stays as it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.bench.instance import BenchError


def write_section(path: Path, name: str, text: str) -> None:
    """Put `text` between `<!-- NAME: begin -->` and its end mark. BenchError without the marks."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    whole = path.read_text(encoding="utf-8")
    before, found, rest = whole.partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise BenchError(f"{path}: no marks {begin.strip()} and {end.strip()}, one a line")
    path.write_text(f"{before}{begin}{text.strip()}\n{end}{after}", encoding="utf-8")


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first column to the left, the others to the right."""
    lines = [head, [":--", *["--:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
