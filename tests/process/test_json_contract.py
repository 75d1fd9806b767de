"""The keys of every --json line are those of JSON.md."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.operator_world import WAIT_S, Instance
from tests.tidy.tree import ROOT

DOCUMENT = (ROOT / "lib/omq/docs/JSON.md").read_text(encoding="utf-8")
SECTIONS = {title: set(re.findall(r"`(\w+)`", " ".join(
    row.split("|")[1] for row in text.splitlines() if row.startswith("| `"))))
    for title, text in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", DOCUMENT, re.M | re.S)}
CHANGE = "omqdump m, M, d, D, C, Z, u, A; omhold, omrelease, omrequeue"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    made = Instance(tmp_path_factory.mktemp("json") / "spool")
    made.start()
    made.put("A", *(b"%d" % n for n in range(8)))
    made.put("B", b"1")
    (made.paths.data / "0000001").mkdir()
    (made.paths.data / "0000001" / "000000a").write_bytes(b"orphan")
    yield made
    made.end()


@pytest.mark.parametrize(("title", "command", "words"), [
    ("omqdump s, T", "omqdump", ["-e", "s"]), ("omqdump s, T", "omqdump", ["-e", "T"]),
    ("omqdump l", "omqdump", ["-e", "l A"]),
    ("omqdump l", "omqdump", ["-e", "l A --where size=1"]),
    ("omqdump v", "omqdump", ["-e", "v A"]),
    ("omqdump g", "omqdump", ["-e", "g A"]), ("omqdump g", "omqdump", ["-e", "f A"]),
    ("omqdump a", "omqdump", ["-e", "g A", "-e", "a"]),
    ("omqdump r", "omqdump", ["-e", "g A", "-e", "r"]),
    ("omqdump o", "omqdump", ["-e", "g A", "-e", "o 2000 FILE"]),
    ("omqdump i, O", "omqdump", ["-e", "i FILE"]),
    ("omqdump t", "omqdump", ["-e", "t q FILE"]), ("omqdump t", "omqdump", ["-e", "t m FILE"]),
    (CHANGE, "omqdump", ["-e", "M A B 2 1"]), (CHANGE, "omqdump", ["-e", "C A B 1 1"]),
    (CHANGE, "omhold", ["--where", "queue=B priority=4"]),
    ("omstat", "omstat", ["-a"]), ("omqwhy", "omqwhy", ["3"]),
    ("omqlog", "omqlog", ["--message", "3"]), ("omqlog", "omqlog", ["--operator"]),
    ("omqshape", "omqshape", []), ("omqadvise", "omqadvise", []),
    ("omqcheck", "omqcheck", []), ("omscan", "omscan", ["--older", "0"]),
    ("omtop", "omtop", ["--interval", "0.2"]),
    ("omfreeq", "omfreeq", ["A", "-p", str(os.getpid())])])
def test_keys(live: Instance, tmp_path: Path, title: str, command: str, words: list[str]) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"body")
    plain = [word.replace("FILE", str(file)) for word in words]
    with live.connect() as connection, connection.reader("A") as reader:
        assert len(reader.next(timeout_s=WAIT_S)) == 1  # something to measure and to free
        said = live.run(command, "--json", *plain)
    assert said.code in (0, 1), said
    last = said.out.splitlines()[-1]
    assert set(json.loads(last)) == SECTIONS[title]


def test_the_event_log(live: Instance) -> None:
    (first, *_) = live.run("omshowlog", "--json").out.splitlines()
    assert set(json.loads(first)) >= SECTIONS["omshowlog"]
