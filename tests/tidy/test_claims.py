"""Claims of README, START, LIMITS and others are held against what is: what they say is not there,
and each limit and default beside which a key stands."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from omq.base import limits
from omq.base.config import QueueConf
from omq.base.settings import DEFAULTS
from omq.format.index import IndexLayout
from omq.services.channel.definition import KEYS as CHANNEL_KEYS
from tests.tidy.tree import ROOT

DOCS = ROOT / "lib/omq/docs"
ENTRY = "".join((DOCS / f"{name}.md").read_text(encoding="utf-8")
                for name in ("START", "LIMITS", "OPERATE", "MAIL", "CONSOLE"))
LIMITS = (DOCS / "LIMITS.md").read_text(encoding="utf-8").split(
    "# Limits, and what is not there\n")[1].split("\n## ")[0]
DOCUMENTS = [ROOT / "README.md", *(DOCS / f"{name}.md" for name in (
    "START", "OPERATE", "NETWORK", "TOOLS"))]
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "s": 1, "ms": 1}
QUEUE = {each.name: each.default for each in fields(QueueConf)}
SETTINGS = {each.name for each in fields(DEFAULTS)}


def code_names(word: str) -> list[str]:
    """Modules, classes, functions and keys of the product that have the word in their name."""
    found = [str(path) for path in (ROOT / "lib/omq").rglob(f"*{word}*.py")]
    for path in (ROOT / "lib/omq").rglob("*.py"):
        found += re.findall(rf"^\s*(?:class|def) (\w*{word}\w*)", path.read_text("utf-8"),
                            re.MULTILINE | re.IGNORECASE)
    return found + [name for name in SETTINGS if word in name]


ABSENT: dict[str, Callable[[], object]] = {
    "a cluster": lambda: code_names("cluster"),
    "encryption at rest": lambda: code_names("cipher") + code_names("at_rest"),
    "DKIM": lambda: code_names("dkim"),
    "spam rules": lambda: code_names("spam"),
}
"""What LIMITS says is not there -> what would show that it is, by now."""


def test_what_is_not_there_is_not() -> None:
    (said,) = re.findall(r"^\* Not there: (.*)\.$", LIMITS, re.MULTILINE)
    assert set(said.split(", ")) == set(ABSENT)
    assert {what: shown() for what, shown in ABSENT.items() if shown()} == {}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_nothing_else_is_said_to_be_missing(path: Path) -> None:
    """A sentence with "not there yet" grows old without anybody's notice: it has no place."""
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"(?i)\b(?:not (?:there )?yet|no \w+ before the queue)\b.*", text) == []


def test_what_is_there_has_its_name() -> None:
    """Each was once said to be missing."""
    assert "dedupe_s" in QUEUE and "trigger" in QUEUE
    assert {"smtp_filter", "channel_passwords"} <= SETTINGS
    assert "`smtp_filter`" in LIMITS
    assert (ROOT / "bin/channel.sender").exists() and (ROOT / "bin/trigger.monitor").exists()


def _number(words: str) -> int | None:
    """Of `256 KiB`, `1,024`, `a second`."""
    if words.startswith("a second"):
        return 1000
    found = re.match(r"([0-9][0-9,_]*)(?: ([KMG]iB))?\b", words)
    return None if found is None else (
        int(re.sub("[,_]", "", found[1])) * UNITS.get(found[2] or "", 1))


def claims(text: str) -> list[tuple[str, int]]:
    """A key and the number behind it, as `key` (50), `key` (64 KiB)."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    found = []
    for key, words in re.findall(r"`([a-z][a-z_0-9]*)` \(([^)]*)\)", text):
        number = _number(words)
        if number is not None:
            found.append((key, number))
    return found


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_a_number_beside_a_key_is_its_default(path: Path) -> None:
    wrong = []
    for key, number in claims(path.read_text(encoding="utf-8")):
        if key in SETTINGS:
            known = {int(getattr(DEFAULTS, key))}
        elif key in CHANNEL_KEYS:
            known = {int(CHANNEL_KEYS[key].default), int(CHANNEL_KEYS[key].default) * 1024}
        else:
            continue
        if number not in known:
            wrong.append((key, number, known))
    assert wrong == []


def test_some_numbers_are_found() -> None:
    found = {key for path in DOCUMENTS for key, _ in claims(path.read_text(encoding="utf-8"))}
    assert {"batchsize", "batchlimit", "pipeline", "channel_names_ms", "transferlimit"} <= found


@pytest.mark.parametrize(("pattern", "number"), [
    (r"Up to ([0-9]+) queues", limits.QUEUES_MAX),
    (r"([0-9]+) auxiliary readers a service", limits.AUXILIARIES_MAX),
    (r"([0-9]+)\s+messages in one batch", limits.BATCH_MAX),
    (r"Bodies up to ([0-9]+) MiB \(`body_bytes_max`", DEFAULTS.body_bytes_max // limits.MIB),
    (r"`body_bytes_max`, ([0-9]+) GiB at most", (limits.BODY_BYTES_MAX + 1) // limits.GIB),
    (r"waiting messages: ([0-9,]+) by default", DEFAULTS.messages_max),
    (r"large body \(over ([0-9]+) KiB\)", DEFAULTS.container_threshold_bytes // limits.KIB),
    (r"processing a message, it is redelivered after ([0-9]+) s", QUEUE["death_delay_s"]),
    (r"SMTP on port ([0-9]+) of loopback", DEFAULTS.smtp_listen_port),
    (r"on port ([0-9]+) of loopback\n?\(\[NETWORK", DEFAULTS.amqp_listen_port),
    (r"omq-web.socket +# http://127\.0\.0\.1:([0-9]+)/", DEFAULTS.web_listen_port),
])
def test_a_number_of_the_documents(pattern: str, number: object) -> None:
    said = re.findall(pattern, ENTRY)
    assert [int(each.replace(",", "")) for each in said] == [number], said


def test_the_third_failed_attempt_is_the_last() -> None:
    assert "the third failed attempt puts it on\n  POISON" in ENTRY
    assert QUEUE["attempts_max"] == 3


def test_what_a_waiting_message_costs_of_the_index() -> None:
    (said,) = re.findall(r"about ([0-9]+) bytes each", ENTRY)
    layout = IndexLayout.of(DEFAULTS.messages_max, DEFAULTS.queue_entries_max, limits.QUEUES_MAX,
                            DEFAULTS.clients_max)
    assert abs(layout.bytes_per_message - int(said)) < 0.1 * int(said), layout.bytes_per_message
