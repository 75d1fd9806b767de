"""Time travel against the truth: what a manager's index said at an LSN, recorded while it ran."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omq.core.index.view import IndexView
from omq.format.journal import FrameType
from omq.storage import durable
from omq.storage.disk import Disk
from omq.storage.journal import numbers_in
from omq.storage.retire import retire
from omqtools.omqspark.audit import audit
from omqtools.omqspark.lake import Lake, all_messages, all_stays
from omqtools.omqspark.lifecycle import DIED
from omqtools.omqspark.pipeline import run
from omqtools.omqspark.state import queue_names, state_at
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


@dataclass
class Record:
    """What clients saw of a message: what was put, and what became of it."""

    queues: list[str]
    size: int
    priority: int
    persistent: bool = True
    gives: int = 0
    failed: int = 0
    deaths: int = 0
    end: str = ""  # the frame that ended it


Records = dict[int, Record]


def loose_and_killed(live: Instance, told: Records) -> Dump:
    """Not persistent, on several queues, delayed, in a batch; a reader dies, the manager dies, an
    operator deletes. The index before the manager's death."""

    def put(c: Any, queues: str | list[str], body: bytes, **how: Any) -> int:
        found = int(c.put(queues, body, **how)[32:], 16)
        told[found] = Record(sorted([queues] if isinstance(queues, str) else queues), len(body),
                             how.get("priority", 4), how.get("persistent", True))
        return found

    with live.connect("loose") as c:
        put(c, ["A", "B", "LOCAL"], b"soft", persistent=False, priority=6)
        put(c, "B", b"softly later", persistent=False, delay_s=7200)
        gone = put(c, "ERROR", b"an operator deletes it")
        once = put(c, "ERROR", b"killed with its reader")
    live.dump("-e", "D ERROR 1 1")
    assert live.on("ERROR") == [once]
    child = os.fork()
    if child == 0:  # it dies with a message in its hands
        reader = live.connect("dies").reader("ERROR")
        reader.next(timeout_s=WAIT_S)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    with live.connect("heir") as c, c.reader("ERROR") as reader:
        (message,) = reader.next(timeout_s=WAIT_S)
        message.done()
    told[gone].queues.append("IDEL")  # where it can come back from
    told[once].end = "done"
    told[once].gives, told[once].failed, told[once].deaths = 2, 1, 1
    before = dump(live)
    live.kill()
    live.start()
    for record in told.values():
        if not record.persistent:
            record.end = "died"
    live.put("A", b"afterwards")
    return before


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
    told: Records = {}
    try:
        live.start()
        before = loose_and_killed(live, told)
        dumps = [before, *work(live)]
    finally:
        live.end()
    durable.use(Disk())
    for number in numbers_in(live.paths.journal):
        retire(live.paths, number, keep=True)
    assert live.run("omq-archive", "--quiet").code == 0
    out = str(tmp_path / "tables")
    archive = live.paths.archive
    late = sorted(archive.glob("*.oma"))[0]
    late.rename(tmp_path / late.name)  # the first file comes late
    run(spark, str(archive), out, incremental=False)
    (tmp_path / late.name).rename(late)
    run(spark, str(archive), out, incremental=True)
    lake = Lake(spark, out)
    verdict = audit(lake, str(archive), pool=live.root)
    assert verdict["clean"], verdict["findings"]
    assert verdict["not_judged"] == {}
    compare(lake, told)
    names = queue_names(lake)
    assert {state for _, entries in dumps for _, _, state, _ in entries} == {
        "READY", "ACTIVE", "DEFERRED", "HELD"}
    for lsn, entries in dumps:
        rows = state_at(lake, lsn=lsn).collect()
        found = [(names[row["queue"]], row["qpool"], row["state"], row["priority"]) for row in rows]
        assert sorted(found, key=lambda entry: entry[0]) == entries, lsn


def compare(lake: Lake, told: Records) -> None:
    """The tables say of each message what its clients saw."""
    names = queue_names(lake)
    rows = {row["qpool"]: row for row in all_messages(lake).collect() if row["qpool"] in told}
    kinds = {None: "", DIED: "died", int(FrameType.DONE): "done"}
    spans: dict[int, list[Any]] = {qpool: [] for qpool in told}
    for row in all_stays(lake).collect():
        if row["qpool"] in told:
            spans[row["qpool"]].append(row)
    for qpool, record in told.items():
        row, mine = rows[qpool], spans[qpool]
        assert (row["size"], row["persistent"], kinds[row["end_type"]], row["gives"],
                row["failed"]) == (record.size, record.persistent, record.end, record.gives,
                                   record.failed), qpool
        assert sorted(names[each["queue"]] for each in mine) == record.queues
        assert {each["priority"] for each in mine} == {record.priority}
        assert sum(each["deaths"] for each in mine) == record.deaths
        assert all(each["left_ns"] >= each["arrived_ns"] for each in mine
                   if record.end or names[each["queue"]] == "ERROR")
    delayed = [each["until_s"] for each in spans[[*told][1]]]
    assert delayed[0] > 0
    routes = lake.gold("routes").collect()
    assert sum(row["departed"] for row in routes if row["how"] == "died") == 4
    assert [(names[row["from_queue"]], names[row["to_queue"]], row["messages"])
            for row in routes if row["how"] == "deleted" and row["departed"]] == [
                ("ERROR", "IDEL", 1)]
    for queue in names:
        last = lake.gold("queue_minute").where(f"queue = {queue}").orderBy("minute_ns").collect()
        here = sum(row["came"] for row in routes if row["to_queue"] == queue) - sum(
            row["departed"] for row in routes if row["from_queue"] == queue)
        assert here == (last[-1]["depth"] if last else 0)
