"""Time travel against the truth: what a manager's index said at an LSN, recorded while it ran."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from omq.core.index.view import IndexView
from omq.storage import durable
from omq.storage.disk import Disk
from omq.storage.journal import numbers_in
from omq.storage.retire import retire
from omqspark.pipeline import Lake, run
from omqspark.state import queue_names, state_at
from tests.process.operator_world import WAIT_S, Instance

Entry = tuple[str, int, str, int]  # queue, QPoolId, state, priority
Dump = tuple[int, list[Entry]]


def dump(live: Instance) -> Dump:
    """The LSN and every queue's messages in the order of hand-outs, from the index between two
    groups of the manager."""
    deadline = time.monotonic() + WAIT_S
    with IndexView.attach(live.paths) as view:
        while True:
            before = view.counters()["last_lsn"]
            rows = sorted(view.entries(), key=lambda e: (e.queue, -e.priority, e.sequence))
            found = [(e.queue, e.message.qpool, e.state.name, e.priority) for e in rows]
            if view.counters()["last_lsn"] == before:
                return before, found
            assert time.monotonic() < deadline, "the manager is never idle"


def work(live: Instance) -> list[Dump]:
    """Messages in every state there is; the index at three instants."""
    dumps = []
    for priority in (2, 1, 3):
        live.put("A", b"one", b"two", b"three", b"four", priority=priority)
    live.put(["B", "LOCAL"], b"twice", priority=7)
    with live.connect("clerk") as c, c.reader("A", batch=6) as reader:
        c.put("LOCAL", b"tomorrow", delay_s=86_400)
        dumps.append(dump(live))
        done, later, moved, failed, back, _kept = reader.next(6, timeout_s=WAIT_S)
        done.done()
        later.defer(3600, "not now")
        moved.move(["B", "LOCAL"])
        failed.fail("no")
        back.release()
        reader.flush()
        dumps.append(dump(live))
        assert len(live.bodies("B")) == 2
        live.run("omhold", "--where", "queue=LOCAL priority=7", "--reason", "look", "--yes")
        c.put("ERROR", b"last")
        dumps.append(dump(live))
    return dumps


def test_the_state_at_an_lsn_is_what_the_index_said_then(spark: Any, tmp_path: Path) -> None:
    live = Instance(tmp_path / "spool")
    try:
        live.start()
        dumps = work(live)
    finally:
        live.end()
    durable.use(Disk())
    for number in numbers_in(live.paths.journal):
        retire(live.paths, number, keep=True)
    assert live.run("omq-archive", "--quiet").code == 0
    out = str(tmp_path / "tables")
    run(spark, str(live.paths.archive), out, incremental=False)
    lake = Lake(spark, out)
    names = queue_names(lake)
    assert {state for _, entries in dumps for _, _, state, _ in entries} == {
        "READY", "ACTIVE", "DEFERRED", "HELD"}
    for lsn, entries in dumps:
        rows = state_at(lake, lsn=lsn).collect()
        found = [(names[row["queue"]], row["qpool"], row["state"], row["priority"]) for row in rows]
        assert sorted(found, key=lambda entry: entry[0]) == entries, lsn
