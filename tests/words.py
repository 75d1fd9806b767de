"""The words of what people read: `make lint` runs this.

    python -m tests.words [FILE...]        these, else all documents, configuration and sources

1. Spelling, by codespell; WORDS are names of ours that it takes for mistakes.
2. Patterns that are right in substance and foreign in form (PATTERNS, with what to write instead).
   The documents of ENTRY, which a newcomer reads first, have none. In all other documents together
   there are at most `most` of each: the number only goes down. The texts of programs (errors,
   events, help, settings: literals with a blank in them), their docstrings and comments, and conf/
   have none either, but for what ALLOWED names. Code, words between backquotes and the text of
   decisions are not looked at.

The status is 1 when something is found, with file, line, and the better words.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = "lib/omq/docs"
WORDS: Final = ("idel", "crasher", "fro", "ines")
"""The queue IDEL (the seed's word for its deletion daemon); who crashes; parts of words."""
SPELLED: Final = ("*.md", DOCS, "conf", "lib", "tools", "recovery", "spark", "units", "examples",
                  "bin", "containers")
SKIP: Final = "*.svg,*.png,*/compiled/*,*.so,*.js,*.css,*/__pycache__/*,*.egg-info,HISTORY.md"
ENTRY: Final = ("README.md", "RELEASE_NOTES.md", "CONTRIBUTING.md", "SECURITY.md",
                f"{DOCS}/START.md", f"{DOCS}/OPERATE.md", f"{DOCS}/INDEX.md",
                f"{DOCS}/DECISIONS.md")
PROGRAMS: Final = ("lib", "tools", "recovery", "spark")
ERRORS: Final = "lib/omq/base/errors.py"
"""Here docstrings are the texts of errors."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """What not to write, what instead, and how often it still is in documents outside ENTRY."""

    written: str
    better: str
    most: int


PATTERNS: Final = (
    Pattern(r"\bbeside\b", "next to, compared with, besides", 0),
    Pattern(r"\bmended\b", "fixed", 0),
    Pattern(r"\b(?:is|are) told\b", "reports, raises, is logged; gets", 0),
    Pattern(r"\bcomes? again\b", "is redelivered, returns", 0),
    Pattern(r"\bstands? (?:in|there|on|before|with|for itself)\b", "is recorded, is listed, is", 0),
    Pattern(r"\bbehind (?:it|this|that|them|a|the)\b(?! (?:proxy|schedule|checkpoint))",
            "after", 0),
    Pattern(r"\b(?:a moment|time) gone by\b", "in the past", 0),
    Pattern(r"(?<!there )(?<!nothing )\bis no (?!(?:longer|more|larger|less)\b)[a-z]+\b",
            "is not a", 0),
    Pattern(r"\bwhat (?:it|one) has in work\b|\bin work\b", "is processing", 0),
    Pattern(r"\bwhat(?:ever)? becomes of\b", "what happens to", 0),
    Pattern(r"\b(?:is|are) said\b", "is reported, is printed, is in", 1),
    Pattern(r"\bhas it that\b|\bgets? for nobody\b", "say who does what", 0),
)


ALLOWED: Final = {"OUT/beside": "a folder of the tables of omq-spark"}
"""Words of docstrings and comments that a pattern takes for something else, and what they are."""


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Lines of a document with their numbers, without code."""
    code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            code = not code
        elif not code and not line.startswith("    "):
            yield number, re.sub(r"`[^`]*`|\]\([^)]*\)", "`", line)


def found(name: str, text: str) -> Iterator[tuple[Pattern, str]]:
    """Each place of a document where one of PATTERNS is, as a line to print."""
    for number, line in prose(text):
        for pattern in PATTERNS:
            for match in re.finditer(pattern.written, line, re.IGNORECASE):
                yield pattern, f"{name}:{number}: {match[0]!r}: write {pattern.better}"


def texts(source: str) -> Iterator[tuple[bool, int, str]]:
    """The lines of a module that are words: whether they are a note for developers (a docstring or
    a comment), their number, the line. No single words, which are keys and names."""
    notes = {(node.lineno, node.col_offset) for node in ast.walk(ast.parse(source))
             if isinstance(node, ast.Expr)}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in {tokenize.STRING, tokenize.COMMENT} and " " in token.string:
            note = token.type == tokenize.COMMENT or token.start in notes
            for number, line in enumerate(token.string.splitlines(), token.start[0]):
                yield note, number, line


def of_module(name: str, source: str) -> Iterator[str]:
    """A line for each fault of a module."""
    for note, number, line in texts(source):
        looked = re.sub(r"`[^`]*`", "`", line) if note and name != ERRORS else line
        for word in ALLOWED if note else ():
            looked = looked.replace(word, "")
        yield from faults(f"{name}:{number}", looked)


def of_programs() -> Iterator[str]:
    """A line for each fault in the texts of programs and of configuration."""
    for place in PROGRAMS:
        for path in sorted((ROOT / place).rglob("*.py")):
            yield from of_module(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))
    for path in sorted((ROOT / "conf").glob("*.conf")):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            yield from faults(f"conf/{path.name}:{number}", line)


def faults(place: str, text: str) -> Iterator[str]:
    """Those of one line."""
    for pattern in PATTERNS:
        for match in re.finditer(pattern.written, text, re.IGNORECASE):
            yield f"{place}: {match[0]!r}: write {pattern.better}"


def documents() -> list[str]:
    """Those outside ENTRY."""
    return sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / DOCS).glob("*.md")
                  if f"{DOCS}/{path.name}" not in ENTRY)


def wrong() -> Iterator[str]:
    """A line for each fault of the patterns."""
    for name in ENTRY:
        for _, line in found(name, (ROOT / name).read_text("utf-8")):
            yield line
    rest = [each for name in documents() for each in found(name, (ROOT / name).read_text("utf-8"))]
    for pattern in PATTERNS:
        lines = [line for which, line in rest if which is pattern]
        if len(lines) > pattern.most:
            yield f"{len(lines)} places, at most {pattern.most} are left to be rewritten:"
            yield from lines
    yield from of_programs()


def main(names: list[str]) -> int:
    """See the module."""
    places = names or [str(each.relative_to(ROOT)) for place in SPELLED
                       for each in sorted(ROOT.glob(place))]
    spelled = subprocess.run(
        [sys.executable, "-m", "codespell_lib", "--skip", SKIP, "--ignore-words-list",
         ",".join(WORDS), *places], cwd=ROOT, check=False).returncode
    faults = list(wrong()) if not names else [
        line for name in names if name in ENTRY
        for _, line in found(name, (ROOT / name).read_text("utf-8"))]
    if faults:
        print(*faults, sep="\n")
    return 1 if spelled or faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
