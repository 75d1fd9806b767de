"""Every cell of the table in TOOLS.md: command or letter, and the state of the instance."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import sysv_ipc

from omq.base.paths import SpoolPaths
from omq.format.pool import RECORD_BYTES, Record, decode_record
from omq.format.poolctrl import SLOT_BYTES
from omq.storage import poolctrl as control
from omq.storage.segment import read_ids
from omqtools.omqdump.options import OPTIONS
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
    (lost,) = made.put("ERROR", b"its record will be lost")
    assert made.run("omhold", str(ids[-1])).code == 0
    with ExitStack() as stack:
        if state == "hung":
            stack.enter_context(made.stopped())
        elif state in ("killed", "garbled"):
            made.kill()
        elif state in ("stopped", "damaged"):
            made.stop()
        if state == "damaged":
            made.start()  # recovery writes the pool
            made.stop()
            _damage(made.paths, lost)
        elif state == "garbled":
            _garble(made.paths)
        yield state, made
    if state == "damaged":
        assert list(made.paths.quarantine.iterdir()) == [], "looking sets nothing aside"
    made.end()


def _damage(paths: SpoolPaths, lost: int) -> None:
    """The payload of the message on B, the pool record of `lost`."""
    hits = [_flip(file, file.read_bytes().find(b"broken broken"))
            for file in paths.journal.glob("0*.jnl")]
    for file in paths.msgpool.glob("*QP"):
        for record in range((file.stat().st_size - RECORD_BYTES) // RECORD_BYTES):
            raw = file.read_bytes()
            found = decode_record(raw, (record + 1) * RECORD_BYTES, int(file.name[:-2]), record)
            if isinstance(found, Record) and found.message.qpool == lost:
                hits.append(_flip(file, (record + 1) * RECORD_BYTES + 60))
    assert hits.count(True) == 2, "each is damaged once"


def _flip(file: Path, at: int) -> bool:
    raw = bytearray(file.read_bytes())
    if at > 0:
        raw[at] ^= 0xFF
        file.write_bytes(raw)
    return at > 0


def _garble(paths: SpoolPaths) -> None:
    """Both copies of the header of the left-over segment, and both slots of poolctrl."""
    ids = read_ids(paths)
    assert ids is not None
    memory = sysv_ipc.attach(ids.segment)
    try:
        memory.write(bytes(range(256)) * 16, 0)
    finally:
        memory.detach()
    for slot in (0, 1):
        assert _flip(paths.msgpool / control.NAME, slot * SLOT_BYTES + 40)
    assert control.load(paths)[0] is None


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
