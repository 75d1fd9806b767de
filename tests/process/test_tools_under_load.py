"""Tools while readers run, on a pool that was not read, on a lost segment, and on a terminal."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Generator

import pytest

from omq.cli.look.event_lines import follow
from omq.cli.look.omshowlog import from_journal_line
from omq.storage.segment import read_ids
from tests.process.operator_world import SETTINGS, WAIT_S, Instance
from tests.unit.omqdump.test_terminal import Terminal


def test_walking_moving_and_deleting_while_readers_run(live: Instance) -> None:
    """Every message ends exactly once: read from A or B, or deleted by the operator."""
    ids = live.put("A", *(b"%d" % n for n in range(400)))
    seen: list[int] = []
    lock, stop = threading.Lock(), threading.Event()

    def read(queue: str) -> None:
        with live.connect(f"read{queue}") as connection, connection.reader(queue) as reader:
            while True:
                for message in (found := reader.next(timeout_s=0.05)):
                    message.done()
                    with lock:
                        seen.append(message.qpool_id)
                if not found and stop.is_set():
                    return

    threads = [threading.Thread(target=read, args=(queue,)) for queue in ("A", "A", "B")]
    for thread in threads:
        thread.start()
    deleted: list[int] = []
    try:
        for turn in range(12):
            walked = live.run("omqdump", "--json", stdin="g\nA\nv\nA\nc\n\ng\nA\n")
            assert walked.code in (0, 1)
            moved = live.run("omqdump", "-e", f"M A B {2 + turn} 3", "--json")
            assert moved.code in (0, 1, 75), moved
            chosen = live.run("omqdump", "-e", f"l A --where lsn>{turn} 2", "--json").out
            for row in map(json.loads, chosen.splitlines()):
                said = live.run("omqdump", "-e", f"D A --where id={row['qpool_id']}", "--json")
                if said.code == 0:
                    deleted.append(row["qpool_id"])
    finally:
        stop.set()
        for thread in threads:
            thread.join(WAIT_S)
    assert not any(thread.is_alive() for thread in threads)
    assert sorted([*seen, *deleted]) == ids
    assert live.run("omqcheck", "--all").code == 0
    left = live.on("IDEL")
    assert set(left) == set(deleted), "a delete can still be taken back"


def test_a_pool_that_was_not_read_keeps_its_messages(live: Instance) -> None:
    """The original's fatal flaw: numbers began anew, and two equal ones killed the manager."""
    before = live.put("A", b"old 1", b"old 2")
    live.stop()
    (live.conf / "omq.conf").write_text(
        SETTINGS + "[daemons]\nqm_dont_read_messages_at_start = yes\n")
    live.start()
    said = live.run("omqdump", "-e", "s", "-e", "l A")
    assert "were not read at the start" in said.err
    assert live.on("A") == []
    after = live.put("A", b"new")
    assert min(after) > max(before)
    assert live.run("omscan", "--older", "0", "--json").code in (0, 1)
    live.stop()
    (live.conf / "omq.conf").write_text(SETTINGS)
    live.start()
    assert live.on("A") == [*before, *after]
    assert live.bodies("A") == [b"old 1", b"old 2", b"new"]


def test_a_segment_whose_ids_are_lost(live: Instance) -> None:
    (qpool,) = live.put("A", b"1")
    ids = read_ids(live.paths)
    assert ids is not None
    kept = live.paths.ids.read_bytes()
    live.kill()
    live.paths.ids.unlink()
    assert "read from the files" in live.run("omqdump", "-e", "s").err
    said = live.dump("--segment", str(ids.segment), "-e", "t q -")
    assert f"Message Pool Id={qpool}\n" in said.out
    head = said.out[: said.out.index("====Active Messages====")]
    for name in ("Queue Manager, pid ", "Cause: ", "Stack:", "Last requests", "  puts = 1\n"):
        assert name in head
    assert live.run("omqdump", "--segment", "999999999", "-e", "s").code == 69
    live.paths.ids.write_bytes(kept)


def test_changes_from_a_terminal(live: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = live.put("A", *(b"%d" % n for n in range(12)))
    terminal = Terminal(*live.arguments)
    try:
        terminal.until("Option?")
        terminal.type("g\n")
        terminal.until("Queue Name:")
        terminal.type("A\n")
        terminal.until("Option?")
        terminal.type("M\n")
        terminal.until("From Queue Name:")
        terminal.type("A\n")
        terminal.until("To Queue Name:")
        terminal.type("B\n")
        terminal.until("First msg (2):")
        terminal.type("\n")
        terminal.until("Number of msgs (1):")
        terminal.type("all\n")
        terminal.until("move to B: 11 messages. Are you sure (y/n) ? ")
        terminal.type("n\n")
        assert "was not confirmed" in terminal.until("Option?")
        terminal.type("M A B 2 all\n")
        terminal.until("(y/n) ? ")
        terminal.type("y\n")
        assert "11 of 11 messages: move to B" in terminal.until("Option?")
        terminal.type("d\n")
        terminal.until("Msg Handle (2000):")
        terminal.type("\n")
        terminal.until("Done\n")
        terminal.until("Option?")
        terminal.type(f"u {ids[0]}\n")
        terminal.until("Done\n")
        terminal.until("Option?")
        terminal.type("q\n")
        assert terminal.end() == 0
    finally:
        terminal.close()
    assert (live.on("A"), live.on("B")) == (ids[:1], ids[1:])


def test_following_the_log(live: Instance) -> None:
    lost: list[int] = []
    events = follow(live.paths.event_log, lost.append)
    assert isinstance(events, Generator)
    first = next(events)
    assert first.event == 1201 or first.service == "queue.manager"
    for each in events:
        if each.event == 1203:
            break
    live.put("A", b"1")
    live.run("omhold", "--where", "queue=A")
    assert next(each for each in events if each.event == 1251).fields["action"] == "hold"
    os.rename(live.paths.event_log, live.paths.logs / "events.log.1")
    live.paths.event_log.write_text('not json\n{"time": "2026-11-21T10:00:00+00:00", "level": '
                                    '"ERROR", "service": "x", "pid": 1, "event": 1, "text": "t"}\n')
    assert next(events).service == "x" and lost == [1]
    events.close()
    found = from_journal_line(json.dumps({
        "MESSAGE": '<3>ERROR local.delivery[71] [OM 7611] Delivery failed queue=LOCAL why="a b"',
        "__REALTIME_TIMESTAMP": "1700000000000000"}).encode())
    assert found is not None
    assert (found.event, found.pid, found.text) == (7611, 71, "Delivery failed")
    assert found.fields == {"queue": "LOCAL", "why": "a b"}
    assert from_journal_line(b'{"MESSAGE": "hello", "__REALTIME_TIMESTAMP": "1"}') is None
