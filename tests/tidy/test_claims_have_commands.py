"""Each number of README, PERFORMANCE, SECURITY and NETWORK has a command, and the command exists
(make claims)."""

from __future__ import annotations

import re

import pytest

from tests.claims import (
    DEAR,
    DOCS,
    DOCUMENTS,
    FACT,
    SECTIONS,
    all_claims,
    claims,
    command_of,
    main,
)
from tests.tidy.tree import ROOT

MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
FACTS_MAX = 24


def missing(command: str) -> str:
    """What of a command does not exist; "": nothing."""
    words = [word for word in command.split() if not re.match(r"[A-Z_]+=", word)]
    if words[0] == "make":
        return "" if re.search(rf"^{words[1]}:", MAKEFILE, re.MULTILINE) else words[1]
    module = words[words.index("-m") + 1]
    if module != "pytest":
        place = ROOT / module.replace(".", "/")
        return "" if place.with_suffix(".py").is_file() or place.is_dir() else module
    files = [word for word in words if word.startswith("tests/")]
    for file in files:
        if not (ROOT / file).is_file():
            return file
        for name in re.findall(r"-k (test_\w+)", command):
            if f"def {name}(" not in (ROOT / file).read_text("utf-8"):
                return str(name)
    return "" if files else "a file of tests"


def test_each_claim_has_a_command_and_each_command_exists() -> None:
    found = all_claims()
    assert {each.document for each in found} == set(DOCUMENTS) and len(found) > 300
    assert [each for each in found if not each.command] == []
    commands = {each.command for each in found} - {FACT}
    assert {command: missing(command) for command in commands if missing(command)} == {}
    assert len(commands) > 25


def test_no_command_is_that_of_all_measurements() -> None:
    """Else each new number of PERFORMANCE would have one, that does not print it."""
    assert (f"{DOCS}/PERFORMANCE.md", "") not in SECTIONS
    (found,) = claims(f"{DOCS}/PERFORMANCE.md", "# P\n\n## Of another kind\n\nIt takes 7 ms.\n")
    assert found.command == ""


def test_few_are_not_measured() -> None:
    facts = [each for each in all_claims() if each.command == FACT]
    assert len(facts) <= FACTS_MAX, facts


def test_the_sections_of_the_table_are_there() -> None:
    for document, section in SECTIONS:
        text = (ROOT / document).read_text("utf-8")
        assert not section or re.search(rf"^#+ {re.escape(section)}$", text, re.MULTILINE), section


@pytest.mark.parametrize(("command", "what"), [
    ("make bench-nothing", "bench-nothing"),
    ("python -m tests.bench.nothing", "tests.bench.nothing"),
    ("python -m pytest tests/tidy/test_none.py", "tests/tidy/test_none.py"),
    ("python -m pytest tests/tidy/test_sizes.py -k test_none", "test_none"),
    ("OMQ_X=1 python -m pytest tests/tidy/test_sizes.py -k test_modules_are_short", ""),
    ("make bench ARGS=--quick", "")])
def test_a_command_that_does_not_exist_is_seen(command: str, what: str) -> None:
    assert missing(command) == what


def test_numbers_and_what_is_none() -> None:
    text = ("# X\n\n## Y\n\n`make bench`: it does 1,500 a second, 12.5 % in 3 ms.\n\n"
            "By RFC 5321 and ADR 0012, since 2026-11-23 08:20, version 3.11.2, `7`, [A](a9.md).\n\n"
            "| row | 7 KiB |\n\n## Z\n\n* four, `test_modules_are_short`:\n  40 lines\n\nAnd 50.\n")
    found = list(claims("Y.md", text))
    assert [each.numbers for each in found] == [
        ("1,500", "12.5 %", "3 ms"), ("7 KiB",), ("40",), ("50",)]
    assert [each.command for each in found] == [
        "make bench", "make bench",
        "python -m pytest tests/tidy/test_sizes.py -k test_modules_are_short", ""]


def test_a_test_that_is_gone_gives_no_command() -> None:
    assert command_of("it holds: `test_that_nobody_wrote`") == ""


def test_it_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["network.md"]) == 0
    said = capsys.readouterr().out
    assert "NETWORK.md:" in said and "make bench-network" in said and "README.md:" not in said


def test_what_is_dear_is_listed_and_is_the_command_of_a_claim(
        capsys: pytest.CaptureFixture[str]) -> None:
    commands = {each.command for each in all_claims()}
    assert [dear for dear in DEAR if not any(each.startswith(dear) for each in commands)] == []
    assert main([]) == 0
    listed = capsys.readouterr().out.partition("longer than three minutes")[2].splitlines()[1:]
    assert len(listed) == len(DEAR) and all(f"  {dear}: " in "\n".join(listed) for dear in DEAR)
