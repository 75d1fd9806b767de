"""Units of work in two phases, over the client: prepared, in doubt over every death, ended once."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

import omq
from omq.base import errors
from omq.cli import launch
from tests.process.instance import MANAGER, WRITER, Instance
from tests.process.processes import start, start_program


def depths(instance: Instance, *queues: str) -> list[int]:
    with instance.connect("looks") as c:
        return [len([row for row in c.browse(queue) if row.state.name == "READY"])
                for queue in queues]


def prepared(c: omq.Connection, name: str = "") -> omq.Unit:
    """A unit that took a message of A and puts one on B, and one on B and C."""
    c.put("A", b"order")
    unit = c.unit()
    assert unit.get("A", 5) is not None
    unit.put("B", b"invoice")
    unit.put(["B", "C"], b"both")
    unit.prepare(name)
    return unit


@pytest.mark.parametrize("commit", [True, False])
def test_two_phases(omq_instance: Instance, commit: bool) -> None:  # noqa: FBT001
    omq_instance.start()
    with omq_instance.connect() as c:
        unit = prepared(c)
        assert depths(omq_instance, "A", "B", "C") == [0, 0, 0]
        with c.unit() as other:  # the connection is free
            assert other.get("B", 0) is None
        (known,) = c.units_in_doubt()
        assert (known.unit, known.gets, known.puts, known.missing) == (unit.prepared, 1, 3, 0)
        assert known.queues == {"A": (1, 0), "B": (0, 2), "C": (0, 1)}
        assert (known.uid, known.pid) == (os.getuid(), os.getpid())
        if commit:
            assert unit.commit() == unit.ids and len(unit.ids) == 2
        else:
            unit.backout()
        with pytest.raises(errors.UnitEnded):
            unit.commit()
        assert c.units_in_doubt() == []
        how = "committed" if commit else "backed out"
        for again in (c.commit_unit, c.back_out_unit):
            with pytest.raises(errors.UnitResolved, match=how):
                again(unit.prepared)
        with pytest.raises(errors.UnitUnknown):
            c.commit_unit("nobody's")
        wanted = ["both", "invoice"] if commit else []
        assert sorted(row.body.decode() for row in c.browse("B")) == wanted
    assert depths(omq_instance, "A", "B", "C") == ([0, 2, 1] if commit else [1, 0, 0])


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("checkpointed", [True, False])
def test_over_every_death(omq_instance: Instance, commit: bool,  # noqa: FBT001
                          checkpointed: bool) -> None:  # noqa: FBT001
    """The program, kill -9 of the manager, the retirement of its journal file, a planned stop."""
    omq_instance.start(MANAGER, WRITER) if checkpointed else omq_instance.start(MANAGER)
    with omq_instance.connect() as c:
        name = prepared(c, "ledger-7").prepared
        omq_instance.kill(MANAGER)
        omq_instance.start(MANAGER)
        assert [unit.name for unit in c.units_in_doubt()] == ["ledger-7"]
    omq_instance.stop()
    omq_instance.start()
    with omq_instance.connect() as c:
        (known,) = c.units_in_doubt()
        assert (known.unit, known.gets, known.puts, known.missing) == (name, 1, 3, 0)
        (c.commit_unit if commit else c.back_out_unit)("ledger-7")
        assert c.units_in_doubt() == []
        with pytest.raises(errors.UnitResolved):
            c.commit_unit("ledger-7")
    omq_instance.kill(MANAGER)
    omq_instance.start(MANAGER)
    assert depths(omq_instance, "A", "B", "C") == ([0, 2, 1] if commit else [1, 0, 0])
    with omq_instance.connect() as c, pytest.raises(errors.UnitUnknown):
        c.back_out_unit("ledger-7")


def run(instance: Instance, *words: str) -> tuple[int, str]:
    said = instance.root.parent / "said"
    said.unlink(missing_ok=True)
    code = start_program("omq", ["units", *words, "--spool", str(instance.root),
                                 "--conf", str(instance.conf)], output=said).wait()
    return code, said.read_text()


def test_the_tool(omq_instance: Instance, capfd: pytest.CaptureFixture[str]) -> None:
    """Lists and ends; the journal knows who did it, and what became of each message."""
    omq_instance.start()
    omq_instance.ready()
    assert run(omq_instance) == (0, "no unit of work is in doubt\n")
    with omq_instance.connect("ledger") as c:
        first, second = prepared(c, "first").prepared, prepared(c, "second").prepared
        code, text = run(omq_instance)
        assert code == 0 and first in text and f"ledger[{os.getpid()}]" in text
        code, text = run(omq_instance, "--json")
        rows = [json.loads(line) for line in text.splitlines()]
        assert [(row["unit"], row["name"], row["gets"], row["puts"], row["missing"])
                for row in rows] == [(first, "first", 1, 3, 0), (second, "second", 1, 3, 0)]
        assert rows[0]["queues"]["B"] == {"gets": 0, "puts": 2}
        capfd.readouterr()
        assert launch.run("omqdump", ["-e", "s", "--json", "--spool", str(omq_instance.root)]) == 0
        shown = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        prepared_on = {row["queue"]: row["prepared"] for row in shown if "prepared" in row}
        assert {queue: count for queue, count in prepared_on.items() if count} == {
            "A": 2, "B": 4, "C": 2, "IDEL": 2}
        qpool = next(row.qpool_id for row in c.browse("A"))
        assert launch.run("omqwhy", [str(qpool), "--json", "--spool", str(omq_instance.root)]) == 0
        assert json.loads(capfd.readouterr().out.splitlines()[0])["why"] == "prepared"
        code, text = run(omq_instance, "--commit", first, "--reason", "booked")
        assert (code, text) == (0, f"{first} is committed: 1 taken, 3 put\n")
        code, text = run(omq_instance, "--backout", "second", "--json")
        assert json.loads(text) == {"unit": second, "how": "backed out", "gets": 1, "puts": 3}
        code, text = run(omq_instance, "--commit", "second")
        assert code == 1 and "already backed out" in text
        assert run(omq_instance, "--commit", "third")[0] == 1
        assert depths(omq_instance, "A", "B", "C") == [1, 2, 1]
    capfd.readouterr()
    for unit, told in ((first, "done on IDEL"), (second, "deleted on IDEL")):
        assert launch.run("omqlog", ["--message", unit, "--spool", str(omq_instance.root)]) == 0
        assert told in capfd.readouterr().out
    said = omq_instance.paths.event_log.read_text()
    assert '"event": 1274' in said and "booked" in said


def test_a_start_says_them(omq_instance: Instance) -> None:
    """Redo and undo (1304), in doubt (1273)."""
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put("A", b"held")
        prepared(c, "waits")
    omq_instance.kill(MANAGER)
    omq_instance.start(MANAGER)
    with omq_instance.connect() as c:
        assert len(c.units_in_doubt()) == 1
    said = omq_instance.paths.event_log.read_text()
    events = {row["event"]: row for row in map(json.loads, said.splitlines())}
    assert 1304 in events and (events[1273]["units"], events[1273]["messages"]) == (1, 4)


def test_it_keeps_no_journal_file(omq_instance: Instance) -> None:
    """Its body goes to the store, the journal on."""
    omq_instance.settings(journal_file_bytes=1 << 18, block_bytes_max=160 << 10,
                          journal_files_kept=0, archive="delete", channel_bytes=1 << 19,
                          container_threshold_bytes=68 << 10)
    omq_instance.start(WRITER)
    omq_instance.start(MANAGER)
    with omq_instance.connect() as c:
        name = prepared(c, "old").prepared
        number = min(int(path.stem) for path in omq_instance.paths.journal.glob("0*.jnl"))
        for _ in range(2000):
            c.put_many("C", [b"x" * 1000] * 20)
            omq_instance.drain("C")
            if min(int(path.stem) for path in omq_instance.paths.journal.glob("0*.jnl")) > number:
                break
        else:
            raise AssertionError("its journal file is kept")
    omq_instance.kill(MANAGER)
    omq_instance.start(MANAGER)
    with omq_instance.connect() as c:
        (known,) = c.units_in_doubt()
        assert (known.unit, known.name, known.gets, known.puts, known.missing) == (
            name, "old", 1, 3, 0)
        c.commit_unit("old")
        assert sorted(row.body for row in c.browse("B")) == [b"both", b"invoice"]


def phases(root: Path) -> int:
    """A program that moves the messages of A to B, a unit in two phases for each."""
    with omq.connect(root, name="phases") as c:
        for left in c.units_in_doubt():
            c.commit_unit(left.unit)
        while True:
            try:
                with c.unit() as unit:
                    order = unit.get("A", timeout_s=0)
                    if order is None:
                        return 0
                    unit.put("B", order.body)
                    unit.prepare("n-" + order.body.decode())
                    unit.commit()
            except omq.UnitBackedOut:
                continue


@pytest.mark.cases
@pytest.mark.parametrize("visit", [5, 20, 41, 42, 43, 44])
@pytest.mark.parametrize("point", ["journal.after_write", "journal.after_sync",
                                   "engine.before_append", "engine.before_reply"])
def test_the_manager_dies_in_a_phase(omq_instance: Instance, point: str, visit: int) -> None:
    """Each message of A becomes one of B, whichever answer was lost."""
    wanted = [b"%03d" % i for i in range(20)]
    omq_instance.start(WRITER)
    victim = omq_instance.start(fault=f"{point}:kill:{visit}")
    with omq_instance.connect() as c:
        c.put_many("A", wanted)
    program = start("phases", lambda: phases(omq_instance.root), output=omq_instance.output)
    assert victim.wait() == -signal.SIGKILL
    omq_instance.start(MANAGER)
    assert program.wait() == 0, omq_instance.said()
    with omq_instance.connect() as c:
        assert c.units_in_doubt() == []
        assert [row.body for row in c.browse("B")] == wanted and not list(c.browse("A"))
