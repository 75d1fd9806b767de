"""The README and the other documents: examples run, commands exist, links lead somewhere."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from omq.base.errors import Exit
from omq.cli.launch import COMMANDS
from tests.tidy.tree import ROOT

EXTENDING = (ROOT / "lib/omq/docs/EXTENDING.md").read_text(encoding="utf-8")
DOCS = ROOT / "lib/omq/docs"
README, START, OPERATE, INDEX, DECISIONS = (
    path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *(DOCS / f"{name}.md" for name in (
        "START", "OPERATE", "INDEX", "DECISIONS"))))
README_LINES_MAX = 150  # its reader decides whether to go on
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("**/*.md"))]
SPOOL = "/var/tmp/orders"  # what the examples use
SUPERVISOR = "bin/omrc --embedded -n"
CONF = "[journal]\njournal_file_bytes = 8 MiB\n[index]\nmessages_max = 1000\n" \
    "queue_entries_max = 1000\n"
END_S = 300


def _blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


ENTRY = README + START + OPERATE


def _targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))


def test_there_are_examples() -> None:
    assert len(_blocks("python", README)) >= 1 and len(_blocks("sh", README)) >= 2
    assert len(_blocks("python", START)) >= 4 and len(_blocks("sh", START)) >= 2


def test_the_readme_is_short() -> None:
    assert README.count("\n") <= README_LINES_MAX


def test_the_index_lists_every_document_once() -> None:
    linked = re.findall(r"^\| \[[^]]+\]\(([^)]+)\)|^\[DECISIONS\]\(([^)]+)\)", INDEX, re.MULTILINE)
    places = [(DOCS / (row or alone)).resolve() for row, alone in linked]
    there = {path.resolve() for path in DOCUMENTS if path.parent.name != "adr"}
    assert len(places) == len(set(places))
    assert there - set(places) == {DOCS / "INDEX.md", ROOT / "SECURITY.md"}
    assert set(places) <= there


def test_the_decisions_list_every_adr_once() -> None:
    linked = re.findall(r"^\* \[(\d{4})\]\(adr/([^)]+)\): \S", DECISIONS, re.MULTILINE)
    assert sorted(name for _, name in linked) == sorted(
        path.name for path in DOCS.glob("adr/*.md"))
    assert all(name.startswith(number) for number, name in linked)


def test_a_decision_that_replaces_another_is_marked_at_both() -> None:
    """What the head of an ADR says of another is in the list, at the one and at the other."""
    rows = {number: " ".join(text.split()) for number, text in re.findall(
        r"^\* \[(\d{4})\]\S+ (.*(?:\n  .*)*)", DECISIONS, re.MULTILINE)}
    found = 0
    for path in sorted(DOCS.glob("adr/*.md")):
        (status,) = re.findall(r"^Status: (.*(?:\n.+)*)", path.read_text("utf-8"), re.MULTILINE)
        for other in re.findall(
                r"(?:[Rr]eplace[sd]|[Cc]hanges) (?:[^.]*?)(?:ADR |\[)(\d{4})", status):
            found += 1
            assert other in rows[path.name[:4]] and path.name[:4] in rows[other], path.name
    assert found >= 4


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_python_examples_are_python(path: Path) -> None:
    for block in _blocks("python", path.read_text(encoding="utf-8")):
        ast.parse(block, path.name)


def test_the_daemon_of_extending_can_be_imported() -> None:
    (block,) = _blocks("python", EXTENDING)
    check = ("from omq.services.readers.service import Service as S; "
             "assert issubclass(OrderService, S)")
    result = subprocess.run([sys.executable, "-P", "-c", f"{block}\n{check}"], check=False,
                            capture_output=True, text=True, timeout=END_S)
    assert (result.returncode, result.stderr) == (0, "")


def test_the_places_that_extending_names_exist() -> None:
    places = set(re.findall(r"`((?:lib|tools|tests|conf|bin)/[\w./-]+)`", EXTENDING))
    assert len(places) > 15
    assert [place for place in sorted(places) if not (ROOT / place).exists()] == []


def test_commands_and_targets_exist() -> None:
    words = " ".join(re.findall(r"`([^`]+)`", ENTRY)) + " ".join(_blocks("sh", ENTRY))
    named = set(re.findall(r"\bbin/([\w.]+)", words)) | set(re.findall(r"\bom[a-z]+\b", words))
    assert named - {"omq", "pip", "python"} <= set(COMMANDS)  # the two of a venv
    assert set(re.findall(r"(?:`|^    )make ([a-z]+)", ENTRY, re.MULTILINE)) <= _targets()


def test_exit_codes_are_those_of_the_table() -> None:
    rows = re.findall(r"^\| (\d+) \| ([A-Z_]+) \|", OPERATE, re.MULTILINE)
    assert [(int(code), name) for code, name in rows] == [(code, code.name) for code in Exit]


def _anchors(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, anchor = target.partition("#")
        found = path.parent / name if name else path
        assert found.exists(), f"{path.name}: {target}"
        if anchor:
            assert anchor in _anchors(found.read_text(encoding="utf-8")), f"{path.name}: {target}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_files_named_in_documents_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    names = re.findall(r"`((?:lib|tests|tools|conf|bin)/[\w./-]*\w)`", text)
    assert [name for name in names if not (ROOT / name).exists()] == []


@contextmanager
def _instance(spool: Path) -> Iterator[None]:
    """The instance of the examples: started as they say, and ready."""
    (spool / "conf" / "omq.conf").write_text(CONF, encoding="ascii")
    options = SUPERVISOR.split()[1:]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "omq.cli.launch", "omrc", *options, "--spool", spool],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )
    assert process.stdout is not None
    said = ""
    try:
        for line in process.stdout:
            said += line
            if re.search(r"idel\.server: is ready", line):
                break
        else:
            pytest.fail(said)
        yield
    finally:
        process.terminate()
        process.communicate(timeout=END_S)
    assert process.returncode == 0


def _run(command: list[str], spool: Path) -> str:
    result = subprocess.run(
        command, env=os.environ | {"OMQ_SPOOL": str(spool)}, cwd=ROOT, capture_output=True,
        text=True, check=False, timeout=END_S,
    )
    assert (result.returncode, result.stderr) == (0, ""), command[-1]
    return result.stdout


def _follow(text: str, spool: Path) -> tuple[str, list[str]]:
    """What the blocks of a document say: those of the shell, and each of Python."""
    if not (ROOT / ".venv/bin/python").exists():
        pytest.skip("no .venv: run 'make setup'")
    shell = [block.replace(SPOOL, str(spool)) for block in _blocks("sh", text)]
    prepare = shell[0].replace(f"{SUPERVISOR} &\n", "")
    assert prepare != shell[0]
    _run(["sh", "-euc", prepare], spool)
    with _instance(spool):
        said = "".join(_run(["sh", "-euc", block], spool) for block in shell[1:])
        return said, [_run(["bin/python", "-c", block], spool)
                      for block in _blocks("python", text)]


def _bodies(said: str) -> list[str]:
    return [json.loads(line)["body"] for line in re.findall(r"^\{.*\}$", said, re.MULTILINE)]


def test_the_examples_of_the_readme_run(tmp_path: Path) -> None:
    said, (printed,) = _follow(README, tmp_path / "spool")
    assert _bodies(said) == ["customer 42: order 1\n"]
    _, priority, body = printed.splitlines()[0].split(maxsplit=2)
    assert (priority, body) == ("7", "b'order 2'")
    assert printed.splitlines()[1:] == ["True b'shipped: order 2'"]


def test_examples_run(tmp_path: Path) -> None:
    said, printed = _follow(START, tmp_path / "spool")
    assert "customer 42: order 1" in said
    assert "customer ?: order 2" in said
    assert _bodies(said) == ["order 2\n"]
    assert "order 3" in printed[1]
    assert "order 4" in printed[1]
    assert " READY 4 " in printed[3]
