"""The check of words finds what it is for, in documents and in the texts of programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT
from tests.words import (
    ALLOWED,
    DOCS,
    ENTRY,
    PATTERNS,
    PROGRAMS,
    documents,
    faults,
    found,
    main,
    of_module,
    of_programs,
    prose,
    texts,
)


@pytest.mark.parametrize(("line", "written"), [
    ("The queue is no queue for programs.", "is no queue"),
    ("The names stand in the journal.", "stand in"),
    ("A second thread is told so.", "is told"),
    ("It starts all when it is mended.", "mended"),
    ("A message comes again after 30 s.", "comes again"),
    ("omq beside its peers", "beside"),
])
def test_a_pattern_is_found(line: str, written: str) -> None:
    (place,) = [text for _, text in found("X.md", f"# Title\n\n{line}\n")]
    assert place.startswith(f"X.md:3: {written!r}: write ")


@pytest.mark.parametrize("text", [
    "There is no cluster.", "It is no longer there.", "`is no queue` is what it printed.",
    "```\nbeside\n```", "    beside", "[the test](test_what_is_told.md)"])
def test_code_and_other_meanings_are_left_alone(text: str) -> None:
    assert [line for _, line in found("X.md", text)] == []


def test_lines_behind_code_have_their_numbers() -> None:
    assert list(prose("a\n```\nb\n```\nc")) == [(1, "a"), (5, "c")]


def test_what_a_newcomer_reads_is_looked_at_and_so_is_the_rest() -> None:
    assert all((ROOT / name).is_file() for name in ENTRY)
    assert f"{DOCS}/SEMANTICS.md" in documents() and not set(documents()) & set(ENTRY)
    assert all(pattern.most < 200 and pattern.better for pattern in PATTERNS)


def test_texts_docstrings_and_comments_are_looked_at_and_keys_and_code_are_not() -> None:
    source = "\n".join((
        '"""It is told beside."""', 'A = "beside"', "beside = 1", "def f() -> None:",
        '    """One line.', "", '    It is mended by `beside`."""',
        '    raise ValueError(f"{A} is no queue "', '                     "at all")  # not in work',
        ""))
    assert list(of_module("x.py", source)) == [
        "x.py:1: 'beside': write next to, compared with, besides",
        "x.py:1: 'is told': write reports, raises, is logged; gets",
        "x.py:7: 'mended': write fixed",
        "x.py:8: 'is no queue': write is not a",
        "x.py:9: 'in work': write is processing"]


def test_each_place_of_programs_is_looked_at(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (*PROGRAMS, "conf"):
        (tmp_path / place).mkdir()
        (tmp_path / place / ("x.conf" if place == "conf" else "x.py")).write_text("# mended\n")
    monkeypatch.setattr("tests.words.ROOT", tmp_path)
    assert [line.split(":")[0] for line in of_programs()] == [
        "lib/x.py", "tools/x.py", "recovery/x.py", "spark/x.py", "conf/x.conf"]


def test_what_is_allowed_is_in_use() -> None:
    sources = [path for place in PROGRAMS for path in (ROOT / place).rglob("*.py")
               if any(word in path.read_text("utf-8") for word in ALLOWED)]
    notes = "\n".join(line for path in sources
                      for note, _, line in texts(path.read_text("utf-8")) if note)
    assert [word for word in ALLOWED if word not in notes] == []
    assert all(why and list(faults("", word)) for word, why in ALLOWED.items())


def test_a_wrong_spelling_is_found(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("codespell_lib", reason="codespell: make setup-dev installs it")
    path = ROOT / "build/words-test.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text("A mess" + "gae is acknowl" + "eged; idel is a name.\n")
    try:
        assert main([str(path.relative_to(ROOT))]) == 1
    finally:
        path.unlink()
    assert "acknowl" in capfd.readouterr().out


def test_lint_runs_it() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    lint = makefile.split("\nlint:")[1].split("\n\n")[0]
    assert "python -m tests.words" in lint
    done = subprocess.run([sys.executable, "-c", "import tests.words"], cwd=ROOT, check=False)
    assert done.returncode == 0
