"""omqconv: old queues become messages, once; what cannot be converted stays and is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omq.cli.queue.conversion_log import ConversionLog
from omq.core.index.view import IndexView
from omq.format.old_queue import HEADER, RECORD, OldMessage, encode
from omq.ipc.client.connection import Connection
from omq.storage.spool import open_spool
from tests.process.operator_world import WAIT_S, Instance

REFS = [f"~/data/000000{n}/000084{n}" for n in range(6)]
OLD = [OldMessage(ref, n % 3, 927_030_603, 0) for n, ref in enumerate(REFS)]


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
    told = again.out.splitlines()
    assert told[:2] == ['Queue "ERROR" is already upgraded.', 'Queue "LOCAL" is already upgraded.']
    assert told[2].startswith(f'Message "{REFS[4]}" of queue "ERROR" was not upgraded: ')
    assert "omqdump's O opens each" in told[3] and len(told) == 4
    assert again.code == 1 and live.on("LOCAL") == []
    flag = old / "ERROR.R6"
    kept = [line for line in flag.read_text().splitlines() if '"left"' not in line]
    flag.write_text("\n".join(kept) + "\n")
    assert live.run("omqconv", "--queues", str(old)).code == 0, "it is settled"
    assert "reason: upgrade" in live.run("omqlog", "--operator").out


def test_a_run_that_was_cut_puts_nothing_twice(live: Instance, old: Path) -> None:
    live.run("omqconv", "--queues", str(old))
    (old / "LOCAL.R6").unlink()
    (old / "ERROR.R6").unlink()
    live.run("omqconv", "--queues", str(old))
    assert (len(live.on("LOCAL")), len(live.on("ERROR"))) == (3, 2)


class Cut(BaseException):
    """The power goes."""


@pytest.mark.parametrize("when", ["before the put", "behind the put"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_cut_at_any_message_doubles_and_loses_nothing(
    live: Instance, old: Path, monkeypatch: pytest.MonkeyPatch, when: str, nth: int
) -> None:
    """Also when what was put has been taken and is gone since: the index cannot say it then."""
    puts = 0

    def cut_at(put: Callable[..., Any]) -> Callable[..., Any]:
        def cut_put(*words: Any, **named: Any) -> Any:
            nonlocal puts
            puts += 1
            if puts == nth and when == "before the put":
                raise Cut
            found = put(*words, **named)
            if puts == nth:
                raise Cut
            return found
        return cut_put

    def end(self: ConversionLog, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    with monkeypatch.context() as patched:
        for name in ("put", "put_many"):
            patched.setattr(Connection, name, cut_at(getattr(Connection, name)))
        # nothing is written any more, not even what a context manager would write when it is left
        patched.setattr(ConversionLog, "__exit__", end)
        with pytest.raises(Cut):
            live.run("omqconv", "--queues", str(old))
    with (old / "omqconv.progress").open("ab") as file:
        file.write(b'{"put": "~/da')  # a torn line
    taken = [*live.bodies("LOCAL"), *live.bodies("ERROR")]
    said = live.run("omqconv", "--queues", str(old))
    assert said.code == 1, said  # message 4 of ERROR has no file
    taken += [*live.bodies("LOCAL"), *live.bodies("ERROR")]
    assert sorted(taken) == [b"old message %d" % n for n in (0, 1, 2, 2, 3)]
    assert not (old / "omqconv.progress").exists()
    assert live.run("omqconv", "--queues", str(old)).code == 1
    flags = (old / "ERROR.R6").read_text() + (old / "LOCAL.R6").read_text()
    assert [flags.count(f'"{ref}"') for ref in REFS[:4]] == [1] * 4


def test_a_doubt_that_the_journal_cannot_end_is_told(live: Instance, old: Path) -> None:
    uuid = open_spool(live.root).uuid.hex()
    (old / "omqconv.progress").write_text(
        json.dumps({"omqconv": 1, "uuid": uuid, "lsn": 0}) + "\n"
        + json.dumps({"put": REFS[0], "queues": ["LOCAL"]}) + "\n")
    said = live.run("omqconv", "--queues", str(old))
    assert said.code != 0 and "it is not known whether it was put" in said.err
    assert live.on("LOCAL") == []
    (old / "omqconv.progress").write_text('{"omqconv": 1, "uuid": "00", "lsn": 0}\n')
    assert "another instance" in live.run("omqconv", "--queues", str(old)).err


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


def test_progress_of_an_earlier_version_is_gone_on_with(live: Instance, old: Path) -> None:
    """One message was in doubt there, and is not born; what follows is not for that version."""
    uuid = open_spool(live.root).uuid.hex()
    (old / "omqconv.progress").write_text(
        json.dumps({"omqconv": 1, "uuid": uuid, "lsn": live_lsn(live)}) + "\n"
        + json.dumps({"put": REFS[0], "queues": ["LOCAL"]}) + "\n")
    assert live.run("omqconv", "--queues", str(old)).code == 1
    assert (len(live.on("LOCAL")), len(live.on("ERROR"))) == (3, 2)


def live_lsn(live: Instance) -> int:
    with IndexView.attach(live.paths) as view:
        return view.counters()["last_lsn"]


def test_what_a_put_refuses_does_not_take_its_batch_along(live: Instance, old: Path) -> None:
    """LOCAL takes no body of more than 13 bytes: each of its messages is told, once."""
    live.stop()
    queues = live.conf / "queues.conf"
    queues.write_text(queues.read_text().replace("[LOCAL]\n", "[LOCAL]\nmax_length = 14\n"))
    live.start()
    (old.parent / REFS[1].removeprefix("~/")).write_bytes(b"longer than the others")
    said = live.run("omqconv", "--queues", str(old))
    assert said.code == 1 and said.out.count("not upgraded, it stays") == 2, said.out
    assert sorted(live.bodies("LOCAL")) == [b"old message 0", b"old message 2"]
    assert '"left": "' + REFS[1] in (old / "LOCAL.R6").read_text()


def test_the_manuals_walk(live: Instance) -> None:
    """Convert, look at what was left, run omscan in the order that the manual warns of, put what
    was left with omqdump, and only then let omscan have the containers."""
    count, refs = 1203, [f"~/data/00000k{n % 3}/04q{n:04d}" for n in range(1203)]
    folder = live.root / "queues"
    folder.mkdir()
    for n, ref in enumerate(refs):
        path = live.root / ref.removeprefix("~/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"old message %d" % n)
    lost = live.root / refs[7].removeprefix("~/")
    lost.rename(lost.with_name("away"))
    messages = [OldMessage(ref, 0, 927_030_603, 0) for ref in refs]
    for suffix in (".qua", ".qub"):
        (folder / f"LOCAL{suffix}").write_bytes(encode("LOCAL", messages[3:]))
        (folder / f"ERROR{suffix}").write_bytes(encode("ERROR", messages[:3]))
    assert "none of them is an orphan" in live.run("omscan", "--older", "0").err
    said = live.run("omqconv")
    assert said.code == 1 and said.out.count("Message upgraded correctly\n") == count - 1
    assert said.out.index('queue "ERROR"') < said.out.index("Finished Queue.")
    assert said.out.count("Finished Queue.") == 2
    assert (len(live.on("LOCAL")), len(live.on("ERROR"))) == (count - 4, 3)
    again = live.run("omqconv")
    assert again.code == 1 and f'Message "{refs[7]}" of queue "LOCAL" was not' in again.out
    lost.with_name("away").rename(lost)
    removed = live.run("omscan", "--older", "0", "--remove", "--yes")
    assert lost.exists(), "the original's omscan took it for an orphan"
    assert f"{count - 1} orphan containers" in removed.out
    live.dump("-e", f"O {refs[7]}", "-e", "p 2000 LOCAL")
    assert len(live.on("LOCAL")) == count - 3
    flag = folder / "LOCAL.R6"
    flag.write_text("".join(line for line in flag.read_text().splitlines(keepends=True)
                            if '"left"' not in line))
    assert live.run("omqconv").code == 0
    done = live.run("omscan", "--older", "0", "--remove", "--yes")
    assert done.code == 0, done
    assert len(live.bodies("LOCAL")) == count - 3
