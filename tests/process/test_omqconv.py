"""omqconv: old queues become messages, once; what cannot be converted stays and is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from omq.format.old_queue import HEADER, RECORD, OldMessage, encode
from tests.process.operator_world import WAIT_S, Instance

REFS = [f"~/data/000000{n}/000084{n}" for n in range(6)]
OLD = [OldMessage(ref, n % 3, 927_030_603, 0) for n, ref in enumerate(REFS)]


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Instance]:
    made = Instance(tmp_path / "spool")
    made.start()
    yield made
    made.end()


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """LOCAL with messages 0 to 2 and a free record, ERROR with 2 to 4, of which 4 has no file."""
    folder = tmp_path / "old" / "queues"
    folder.mkdir(parents=True)
    for n, ref in enumerate(REFS[:4]):
        path = tmp_path / "old" / ref.removeprefix("~/")
        path.parent.mkdir(parents=True)
        path.write_bytes(b"old message %d" % n)
    local = encode("LOCAL", OLD[:3])
    free = local + bytes(RECORD.size)
    free = free[:8] + (4).to_bytes(4, "little") + free[12:]
    for suffix in (".qua", ".qub"):
        (folder / f"LOCAL{suffix}").write_bytes(free)
        (folder / f"ERROR{suffix}").write_bytes(encode("ERROR", OLD[2:5]))
    return folder


def test_every_message_once_and_problems_stay(live: Instance, old: Path) -> None:
    raw = bytearray((old / "LOCAL.qua").read_bytes())
    raw[HEADER.size + RECORD.size + 3] ^= 0xFF  # the copy in LOCAL.qub counts
    (old / "LOCAL.qua").write_bytes(raw)
    before = {path: path.read_bytes() for path in old.iterdir()}
    said = live.run("omqconv", "--queues", str(old), "--reason", "upgrade")
    assert said.code == 1, said
    assert said.out.startswith(
        'Starting to upgrade messages on queues to new format.\nStarting to upgrade queue "ERROR"\n'
        f'Upgrading message "{REFS[2]}"\nMessage upgraded correctly\n')
    assert f'message "{REFS[4]}"\nMessage not upgraded, it stays where it is: ' in said.out
    assert said.out.count("Message upgraded correctly\n") == 4
    assert f'Message "{REFS[2]}" was upgraded with another queue\n' in said.out
    assert said.out.endswith("Finished Queue.\n")
    assert {path: path.read_bytes() for path in before} == before
    with live.connect() as connection, connection.reader("LOCAL", batch=9) as reader:
        found = reader.next(timeout_s=WAIT_S)
        assert [(m.body, m.priority) for m in found] == [
            (b"old message 2", 7), (b"old message 0", 4), (b"old message 1", 1)]
        assert found[0].properties["omqconv.item_ref"] == REFS[2]
        for message in found:
            message.done()
    assert sorted(live.bodies("ERROR")) == [b"old message 2", b"old message 3"]
    again = live.run("omqconv", "--queues", str(old))
    assert again.out == ('Queue "ERROR" is already upgraded.\nQueue "LOCAL" is already upgraded.\n')
    assert again.code == 0 and live.on("LOCAL") == []
    assert "reason: upgrade" in live.run("omqlog", "--operator").out


def test_a_run_that_was_cut_puts_nothing_twice(live: Instance, old: Path) -> None:
    live.run("omqconv", "--queues", str(old))
    (old / "LOCAL.R6").unlink()
    (old / "ERROR.R6").unlink()
    live.run("omqconv", "--queues", str(old))
    assert (len(live.on("LOCAL")), len(live.on("ERROR"))) == (3, 2)


def test_a_record_that_both_copies_have_lost_is_told(live: Instance, old: Path) -> None:
    for suffix in (".qua", ".qub"):
        raw = bytearray((old / f"ERROR{suffix}").read_bytes())
        raw[HEADER.size + 3] ^= 0xFF
        (old / f"ERROR{suffix}").write_bytes(raw)
    (old / "JUNK.qua").write_bytes(b"junk")
    said = live.run("omqconv", "--queues", str(old))
    assert said.code == 1
    assert "  record 0: corrupt" in said.out and "  JUNK.qua: old queue file shorter" in said.out
    assert not (old / "JUNK.R6").exists() and (old / "ERROR.R6").exists()


def test_deferred_ones_wait_and_odd_ones_are_refused(live: Instance, old: Path) -> None:
    late = replace(OLD[0], deferred=4_000_000_000)
    for suffix in (".qua", ".qub"):
        (old / f"LOCAL{suffix}").write_bytes(encode("LOCAL", [
            late, replace(OLD[1], item_ref="~/../../etc/passwd")]))
        (old / f"ERROR{suffix}").unlink()
    said = live.run("omqconv", "--queues", str(old))
    assert said.code == 1 and "not of the form" in said.out
    assert "deferred" in live.dump("-e", "l LOCAL").out
    assert live.run("omqconv", "--queues", "/nowhere").code == 66
