"""Every cell of the table in TOOLS.md: command or letter, and the state of the instance."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from omqdump.options import OPTIONS
from tests.process.operator_world import Instance
from tests.process.tool_table import STATES, TABLE, lines
from tests.tidy.tree import ROOT

DOCUMENT = ROOT / "lib/omq/docs/TOOLS.md"


@pytest.fixture(scope="module", params=STATES)
def there(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
          ) -> Iterator[tuple[str, Instance]]:
    """An instance in one of the states, with messages on A, one of them held."""
    state = str(request.param)
    made = Instance(tmp_path_factory.mktemp(state) / "spool")
    made.start()
    ids = made.put("A", *(b"body %d" % n for n in range(20)))
    made.put("B", b"broken " * 20)
    assert made.run("omhold", str(ids[-1])).code == 0
    with ExitStack() as stack:
        if state == "hung":
            stack.enter_context(made.stopped())
        elif state == "killed":
            made.kill()
        elif state in ("stopped", "damaged"):
            made.stop()
        if state == "damaged":
            _damage(made.paths.journal)
        yield state, made
    if state == "damaged":
        assert list(made.paths.quarantine.iterdir()) == [], "looking sets nothing aside"
    made.end()


def _damage(journal: Path) -> None:
    """The payload of the message on B."""
    for file in journal.glob("0*.jnl"):
        raw = bytearray(file.read_bytes())
        at = raw.find(b"broken broken")
        if at > 0:
            raw[at] ^= 0xFF
            file.write_bytes(raw)


@pytest.mark.parametrize("name", TABLE)
def test_cell(there: tuple[str, Instance], tmp_path: Path, name: str) -> None:
    state, instance = there
    command, words, codes = TABLE[name]
    if state == "live" and name == "omrelease":
        instance.run("omhold", "--where", "queue=B")
    queue = "A"
    ids = instance.dump("-e", f"l {queue}").out.splitlines()[1:-1]
    qpool = ids[0].split()[0]
    file = tmp_path / secrets.token_hex(4)
    plain = [word.replace("@", qpool).replace("%", str(file)) for word in words]
    said = instance.run(command, *plain)
    assert said.code == codes[state], said
    assert "Traceback" not in said.err
    if state == "hung" and codes[state] == 0 and command in ("omqwhy", "omqshape", "omqadvise"):
        assert "is stopped by a signal" in said.err


def test_the_document_has_the_table() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    missing = [line for line in lines() if line not in text]
    assert not missing, "\n".join(missing)


def test_every_letter_is_in_the_table() -> None:
    letters = {name.split()[1] for name in TABLE if name.startswith("omqdump ")}
    assert letters == set(OPTIONS)
