"""Every number of README, PERFORMANCE, SECURITY and NETWORK, with the command that makes it anew.

    python -m tests.claims [WORD...]       (make claims); only documents or commands with it

A claim is a line of prose or a row of a table with a number in it. Its command is, in this order: a
command or a test that the line itself names, or its paragraph (there `make run` is no measurement);
the last benchmark that its section named before it, or command in a block of code; what SECTIONS
has for the section or the document. What is not measured but a limit or a fact of a protocol says
so (FACT). Numbers in code, links, dates, versions and names of standards are no claims.

A test says that each claim has a command, and that each command exists. What takes long, or needs
more than this repository, is listed at the end (DEAR).
"""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = "lib/omq/docs"
DOCUMENTS: Final = ("README.md", f"{DOCS}/PERFORMANCE.md", f"{DOCS}/SECURITY.md",
                    f"{DOCS}/NETWORK.md")
FACT: Final = "(not measured: a limit, or a fact of the protocol)"
SECTIONS: Final = {
    ("README.md", ""): "make test ARGS=tests/tidy/test_readme.py",
    ("README.md", "The two commands"): "make run",
    (f"{DOCS}/PERFORMANCE.md", "On another machine"): "make bench-peers",
    (f"{DOCS}/PERFORMANCE.md", "How it is measured"): "make bench-peers",
    (f"{DOCS}/PERFORMANCE.md", "Compared with the peers"): "make bench-peers",
    (f"{DOCS}/PERFORMANCE.md", "The aims"): "make bench-aims",
    (f"{DOCS}/PERFORMANCE.md", "What a figure means"): "make bench-aims",
    (f"{DOCS}/PERFORMANCE.md", "Why an aim is not reached"): "make bench-aims",
    (f"{DOCS}/SECURITY.md", ""): "python -m pytest tests/process/test_trust.py",
    (f"{DOCS}/NETWORK.md", ""): FACT,
    (f"{DOCS}/NETWORK.md", "Figures"): "make bench-network",
    (f"{DOCS}/NETWORK.md", "Bad input"): "make crash",
    (f"{DOCS}/NETWORK.md", "On bad lines"):
        "OMQ_CRASH_LONG=1 python -m pytest tests/crash/daemons/test_channel_storm.py",
}
_PEERS: Final = "RabbitMQ, Redis, PostgreSQL and Postfix (make setup-peers)"
DEAR: Final = {
    "make bench-peers": f"about half an hour, alone on the machine; {_PEERS}",
    "make bench-aims": f"about an hour, alone on the machine; {_PEERS}; `--only` takes one of them",
    "make bench-network": f"minutes for each of four; {_PEERS}",
    "make bench-tasks": f"five minutes for two libraries; {_PEERS}",
    "make crash": "simulated power cuts for HOURS=0.1, then mutants and storms: an hour or more",
    "make run": "a minute or two, and the set-up once",
    "python -m tests.bench.two_trees": "two checkouts, the older one of before the change",
    "python -m tests.bench.network_peers": _PEERS,
    "python -m tests.bench.amqp091_peers": _PEERS,
    "python -m tests.bench.peers.round_trips": _PEERS,
    "python -m tests.bench.tasks.job_queues": _PEERS,
}
"""What a command takes that is not done in three minutes, or needs more than this repository."""
_COMMAND: Final = re.compile(
    r"`((?:make [a-z-]+|(?:\.venv/bin/)?python -m tests\.[\w.]+)(?: [^`]*)?)`")
_TYPED: Final = re.compile(
    r"((?:[A-Z_]+=\S+ )*(?:make (?:bench|crash|run|test)|"
    r"(?:\.venv/bin/)?python -m (?:tests|pytest))[^#]*)")
_BEGINS: Final = re.compile(r"[*|#>]|\d+\. ")
_TEST: Final = re.compile(r"\b(test_\w+)\b")
_NO_CLAIM: Final = re.compile(
    r"`[^`]*`|\b(?:seeds?|events?|errors?) \d+(?:(?:, | to | and )\d+)*|\(\[?\d{4}\]?\)|"
    r"\]\([^)]*\)|\b\d{4}-\d\d-\d\d(?:T[\d:+]+)?\b|\b\d\d:\d\d\b|"
    r"\b(?:RFC|ADR|AMQP|TLS|OM|Python|Debian|Linux|Proton|RabbitMQ|Redis|PostgreSQL|WCAG|CRC|HTTP)s?"
    r"[ -](?:0-9-1|\d[\d.]*)(?:(?:,| and) (?:0-9-1|\d[\d.]*))*|"
    r"CRC-32C?|\bv?\d+\.\d+\.\d[\w.-]*|#\d+|\bx86_64\b|"
    r"\[\d{4}\]|Apache-2\.0|\b\d a\.m\.")
_NUMBER: Final = re.compile(
    r"(?<![\w.,])\d+(?:,\d{3})*(?:\.\d+)?"
    r"(?:\s?(?:%|[mµu]?s\b|[KMGT]i?B(?:/s)?|/s\b|per second\b))?")


@dataclass(frozen=True, slots=True)
class Claim:
    """Numbers of a line, and what makes them anew."""

    document: str
    line: int
    section: str
    numbers: tuple[str, ...]
    command: str


@cache
def tests() -> dict[str, str]:
    """Name of a test, or of a file of tests -> file."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        name = path.relative_to(ROOT).as_posix()
        found[path.stem] = name
        for each in re.findall(r"^def (test_\w+)", path.read_text("utf-8"), re.MULTILINE):
            found.setdefault(each, name)
    return found


def command_of(line: str) -> str:
    """A command or test that a line names; "": none."""
    if found := _COMMAND.search(line):
        return " ".join(found[1].split())
    for name in _TEST.findall(line):
        if file := tests().get(name):
            only = "" if file.endswith(f"/{name}.py") else f" -k {name}"
            return f"python -m pytest {file}{only}"
    return ""


def paragraph(lines: list[str], at: int) -> str:
    """The lines around this one, as far as one paragraph, item of a list or row of a table goes."""
    first = at
    while first and not _BEGINS.match(lines[first]) and lines[first - 1].strip():
        first -= 1
    last = at + 1
    while last < len(lines) and lines[last].strip() and not _BEGINS.match(lines[last]):
        last += 1
    return "\n".join(lines[first:last])


def claims(document: str, text: str) -> Iterator[Claim]:
    """Of one document; `command` is empty where nothing is known."""
    section, named, code = "", "", False
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if line.startswith("```"):
            code = not code
        elif line.startswith("#") and not code:
            section, named = line.lstrip("# "), ""
        elif code or line.startswith("    "):
            if typed := _TYPED.match(line.strip()):
                named = typed[1].strip()
        else:
            own = command_of(line) or command_of(
                paragraph(lines, number - 1).replace("`make run`", ""))
            if "bench" in own and "pytest" not in own and not line.startswith("|"):
                named = own
            found = tuple(each.strip() for each in _NUMBER.findall(_NO_CLAIM.sub(" ", line)))
            if found:
                command = own or named or SECTIONS.get((document, section)) or SECTIONS.get(
                    (document, ""), "")
                yield Claim(document, number, section, found, command)


def all_claims() -> list[Claim]:
    """Of all documents."""
    return [each for name in DOCUMENTS
            for each in claims(name, (ROOT / name).read_text("utf-8"))]


def main(words: list[str]) -> int:
    """See the module."""
    for each in all_claims():
        place = f"{each.document.rpartition('/')[2]}:{each.line}"
        shown = f"{place:20} {each.command}\n{'':20}   {each.section}: {'; '.join(each.numbers)}"
        if not words or any(word.lower() in shown.lower() for word in words):
            print(shown)
    if not words:
        print("\nWhat takes longer than three minutes, or needs more than this repository:")
        for command, cost in DEAR.items():
            print(f"  {command}: {cost}")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # for head
    sys.exit(main(sys.argv[1:]))
