"""200 random histories of the real engine, each beside the small model of tests/model: the state of
a queue is what the model says, and the audit reports nothing, for nothing was lost.

Messages of every kind: not persistent, on several queues, delayed, in batches, taken by an id, of
groups, with ids that a queue has had; moves, alone and many at once, with new ones; units, also in
doubt over deaths of the manager; expired leases and messages, retries, operators' orders, queues
whose rules change, readers that die, alone or with their manager, managers that die in the middle
of a request. The clock that is set back is in tests/model alone: an instant is then ambiguous. What
the model learns to do (tests/model) becomes one more line of `steps`, with its frames and reasons
in EVENTS, REASONS.
All histories go through Spark at once: each has its own range of LSNs, QPoolIds and epochs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from omq.base.clock import NS_PER_S as NS
from omq.core.engine.operate import Action
from omq.core.engine.state import IDEL
from omq.format.archive import ArchiveHeader
from omq.format.frame_rules import Reason
from omq.format.journal import FrameFlag, FrameType
from omq.format.wire import Settlement
from omq.storage import archive as archive_files
from omq.storage import durable
from omq.storage.disk import Disk
from omqtools.omqspark import columns, decode, plan
from omqtools.omqspark.answer_tables import Basis
from omqtools.omqspark.findings import (
    chosen,
    in_turn,
    lines,
    lost,
    message_findings,
    out_of_order,
)
from omqtools.omqspark.gold import _minutes, _routes
from omqtools.omqspark.lifecycle import Ends, is_type, lifecycle, stays
from omqtools.omqspark.manifest import FileRecord, Manifest
from omqtools.omqspark.pool import beside
from omqtools.omqspark.state import state_of
from tests.model import instance as model_instance
from tests.model.driver import A, B
from tests.model.test_model import IDS, Machine

HISTORIES = 200
STEPS = 22
LSNS, QPOOLS, EPOCHS = 1_000_000, 100_000, 1000  # of one history
ATTEMPTS = 60_000  # no limit of the rules: readers may take back what they were given
NAMES = list(columns.EVENTS)
EVENTS = {"PUT", "GIVE", "DONE", "MOVE", "DEFER", "POISON", "DELETE", "HOLD", "RELEASE", "OPERATOR",
          "RELEASE_GIVEN", "BACKOUT", "STOP", "EXPIRE", "PREPARE", "COMMIT", "QUEUE"}
REASONS = {Reason.DIED, Reason.FAILED, Reason.LEASE, Reason.DEFERRED, Reason.RETURNED,
           Reason.OPERATOR, Reason.BACKED_OUT}
Seen = dict[tuple[int, int], tuple[str, int, int]]  # (QPoolId, queue) -> state, priority, attempts


@dataclass
class Snapshot:
    """What the model says when the journal ends at `lsn`."""

    lsn: int
    wall: int
    seen: Seen
    persistent: set[int]


@dataclass
class Told:
    """One history: its events up to the snapshot."""

    events: pa.Table
    ends: Ends
    snapshot: Snapshot
    persistent_only: bool = False
    kinds: set[int] = field(default_factory=set)


def snapshot(machine: Machine) -> Snapshot:
    world = machine.world
    seen = {(item.qpool, place.queue): (place.state.name, place.priority, place.attempts)
            for item, place in world.model.places()}
    return Snapshot(world.instance.core.block.first_lsn - 1, world.instance.wall, seen,
                    {q for q, item in world.model.items.items() if item.persistent})


def steps(machine: Machine, pick: random.Random) -> None:
    """One thing that happens, by chance."""
    number, big = pick.randrange(6), pick.randrange(1 << 20)
    kinds = (Settlement.DONE, Settlement.DONE, Settlement.DEFER, Settlement.FAIL,
             Settlement.RELEASE)
    few = [(pick.randrange(99), pick.choice(kinds), pick.choice([0, 10**9, 4 * 10**12]))
           for _ in range(3)]
    crashes = ("put", "batch", "wide", "settle", "move", "next")
    things: list[tuple[int, Callable[[], Any]]] = [
        (4, lambda: machine.put(number, big, b"body")),
        (3, lambda: machine.put_on_many(number, big, pick.randrange(2, 6), b"many")),
        (2, lambda: machine.put_batch(number, pick.choice((A, B)), pick.randrange(1, 9), big)),
        (4, lambda: machine.take(number, pick.randrange(1, 9))),
        (4, lambda: machine.settle_and_take(number, 2, few)),
        (2, lambda: machine.settle_all(number, pick.choice(kinds), 10**9)),
        (2, lambda: machine.move(number, big, pick.randrange(4), [(big // 7, b"new")])),
        (2, lambda: machine.commit_unit(number, [big, big // 3], 1 + big % 2,
                                        [(big // 7, b"new"), (big // 5, b"newer")])),
        (1, lambda: machine.back_out(number, [big, big // 3])),
        (2, lambda: machine.move_many(number, [(big // n, n % 3) for n in (1, 3, 7)])),
        (3, lambda: machine.prepare_unit(number, [big, big // 3][: big % 3], [(big // 7, b"new")],
                                         pick.randrange(-4, 4), pick.choice([0, 1, 100]))),
        (2, lambda: machine.world.model.doubts and machine.end_unit(
            number, big, big % 2 == 0, pick.randrange(-4, 4), pick.choice([0, 1, 100]))),
        (1, lambda: machine.put_keyed(number, big, big % 10, pick.choice([(A,), (A, B)]))),
        (1, lambda: machine.change(pick.choice(["define", "limit", "repeat"]), big)),
        (1, lambda: machine.leave(number, died=big % 2 == 0)),
        (2, lambda: machine.die_noted(number, few, [big, big // 3][: big % 3], big % 2 == 0,
                                      pick.choice(["reader", "reader", "both"]))),
        (1, lambda: machine.get(number, 3, pick.choice(IDS), big, 0, few)),
        (1, lambda: machine.work_through(pick.choice((A, B)), pick.randrange(1, 9), big)),
        (1, lambda: machine.put_off_twice(number, big)),
        (1, lambda: machine.spread_and_end(big)),
        (3, lambda: machine.world.model.items and machine.operate(
            pick.choice(list(Action)), big, pick.choice([0, 50]), force=big % 2 == 0)),
        (2, lambda: machine.advance(pick.choice([1, 6, 21, 61]))),
        (1, lambda: machine.checkpoint()),
        (1, lambda: machine.restart(pick.choice(["clean", "killed", "alone"]), 0,
                                    pick.choice([0, 1, 100]))),
        (1, lambda: machine.crash_in_request(pick.choice(crashes), number, big, pick.randrange(4),
                                             pick.choice([0, 100]), pick.choice(kinds)))]
    weights = [weight for weight, _ in things]
    pick.choices(things, weights)[0][1]()


def archived(spool: Path, uuid: bytes, to: Path) -> Manifest:
    """The journal of a spool as archive files."""
    paths = sorted([*spool.glob("journal/[0-9]*.jnl"), *spool.glob("archive/[0-9]*.jnl")],
                   key=lambda path: path.name)
    limit, known = None, Manifest(uuid.hex())
    for path in reversed(paths):
        pieces = archive_files.cut(path.read_bytes(), int(path.stem), uuid, limit=limit)
        header, oma, _ = archive_files.encode(pieces, level=1)
        (to / archive_files.archive_name(int(path.stem))).write_bytes(b"".join(oma))
        limit = pieces.follows_lsn
        known.take(FileRecord.of(header, 1, 0))
    return known


def history(seed: int, to: Path) -> list[Told]:
    """Two snapshots of one random history: in the middle, and at the end."""
    pick = random.Random(seed)
    machine = Machine()
    to.mkdir()
    try:
        for _ in range(STEPS // 2):
            steps(machine, pick)
        middle = snapshot(machine)
        for _ in range(STEPS - STEPS // 2):
            steps(machine, pick)
        end = snapshot(machine)
        machine.world.close()
        spool = Path(machine._folder.name) / "spool"
        known = archived(spool, machine.world.instance.uuid, to)
        if seed % 4 == 0:
            judged_beside(known, spool, to)
    finally:
        machine.teardown()
    found = plan.heads(str(to), plan.listing(str(to)))
    assert all(isinstance(header, ArchiveHeader) for _, header in found)
    batches = [batch for task in plan.splits(found, plan.SPLIT_BYTES)
               for batch in decode.event_batches(task, NAMES, where=str(to))]
    table = pa.Table.from_batches(batches, columns.arrow_schema("events", NAMES))
    assert table["bad"].null_count == len(table), table["bad"].to_pylist()
    assert known.lsn_gaps() == []
    out = []
    for one in (middle, end):
        here = table.filter(pa.array(table["lsn"].to_numpy() <= one.lsn))
        ends = [each for each in known.epoch_ends() if each[1] <= one.lsn]
        out.append(Told(here, ends, one, one is middle))
    return out


def judged_beside(known: Manifest, spool: Path, to: Path) -> None:
    """The archive ends with any of its files, pool and journal go on: nobody open at that end is
    called lost, and somebody who is missing is missed."""
    uuid = bytes.fromhex(known.uuid)
    found = plan.heads(str(to), plan.listing(str(to)))
    splits = [split for task in plan.splits(found, plan.SPLIT_BYTES) for split in task]
    names = ["lsn", "type", "flags", "qpool", "file"]
    table = pa.Table.from_batches(decode.event_batches(splits, names, where=str(to)),
                                  columns.arrow_schema("events", names)).to_pylist()
    for number in list(known.files)[:: max(1, len(known.files) // 3)]:
        last = known.files[number].last_lsn
        events = [row for row in table if row["file"] <= number and row["flags"] & 1]
        born = {row["qpool"]: row["lsn"] for row in events if row["type"] == FrameType.PUT}
        alive = set(born) - {row["qpool"] for row in events if row["flags"] & FrameFlag.LAST_PART}
        ids: list[Any] = []
        pool = beside(spool, uuid, number, last, ids.append)
        assert not pool.unknown
        judged = {q for q in alive if born[q] <= (pool.checkpoint or 0)}
        assert judged <= {qpool for one in ids for qpool in one.tolist()}, (number, last)
        if pool.checkpoint and pool.checkpoint > last:
            holed = beside(spool, uuid, number, last - 1000, ids.append)
            assert holed.unknown, "the journal has a hole"


def moved(told: Told, number: int) -> pa.Table:
    """The events in the ranges of history `number`."""
    table = told.events
    for name, step in (("lsn", LSNS), ("qpool", QPOOLS), ("epoch", EPOCHS), ("unit", LSNS)):
        values = table[name].to_numpy()
        values = np.where((values > 0) | (name == "lsn"), values + number * step, values)
        table = table.set_column(NAMES.index(name), name, pa.array(values))
    return table


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Told]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_instance, "SETTINGS",
                      replace(model_instance.SETTINGS, archive="keep", archive_days=0))
        before = durable.use(Disk())
        base = tmp_path_factory.mktemp("histories")
        out = [one for seed in range(HISTORIES) for one in history(seed, base / str(seed))]
        durable.use(before)
    yield out


@pytest.fixture(scope="module")
def world(spark: Any, told: list[Told], tmp_path_factory: pytest.TempPathFactory
          ) -> tuple[Any, Ends]:
    """All events, and where epochs end."""
    path = tmp_path_factory.mktemp("events") / "events.parquet"
    pq.write_table(pa.concat_tables(moved(one, n) for n, one in enumerate(told)), path)
    ends = [(epoch + n * EPOCHS, lsn + n * LSNS, ns) for n, one in enumerate(told)
            for epoch, lsn, ns in one.ends]
    return spark.read.parquet(str(path)).persist(), ends


def test_every_queue_is_as_the_model_says(world: tuple[Any, Ends], told: list[Told]) -> None:
    events, ends = world
    walls = F.array(*(F.lit(one.snapshot.wall) for one in told))
    number = (F.floor(F.col("qpool") / QPOOLS) + 1).cast("int")
    found: list[Seen] = [{} for _ in told]
    just_due: list[set[tuple[int, int]]] = [set() for _ in told]
    for row in state_of(events, ends, F.element_at(walls, number)).collect():
        history, qpool = divmod(row["qpool"], QPOOLS)
        found[history][qpool, row["queue"]] = (row["state"], row["priority"], row["attempts"])
        wall = told[history].snapshot.wall
        if row["state"] == "READY" and (row["until_ns"] or 0) > wall - NS:
            just_due[history].add((qpool, row["queue"]))
    for seed, (one, seen) in enumerate(zip(told, found, strict=True)):
        expected = dict(one.snapshot.seen)
        if one.persistent_only:  # others may have gone with what was never synced
            alive = one.snapshot.persistent
            expected = {key: value for key, value in expected.items() if key[0] in alive}
            seen = {key: value for key, value in seen.items() if key[0] in alive}
        for key in [*expected, *seen]:
            if key[1] == IDEL:  # hand-outs from IDEL leave no frame
                expected[key] = seen[key] = ("", 0, 0)
        for key in just_due[seed] & expected.keys() & seen.keys():
            if expected[key][0] == "DEFERRED":  # a restart waits for whole seconds (ADR 0037)
                seen[key] = ("DEFERRED", *seen[key][1:])
        assert seen == expected, (seed // 2, one.persistent_only)
    states = [state for one in told for state, _, _ in one.snapshot.seen.values()]
    for state in ("READY", "ACTIVE", "DEFERRED", "HELD", "PREPARED"):
        assert states.count(state) > HISTORIES / 10, state
    kinds = {row["type"] for row in events.select("type").distinct().collect()}
    assert {FrameType(kind).name for kind in kinds} >= EVENTS
    why = events.where(is_type(lambda rule: rule.reasoned)).select("reason").distinct().collect()
    assert {row["reason"] for row in why} >= REASONS
    ended = events.where(f"type = {int(FrameType.EXPIRE)}").selectExpr(
        "max(target)", "min(target)").first()
    assert ended is not None and ended[0] > 0 and ended[1] == 0, "moved, and discarded"


def these(ids: set[int], frame: Any) -> Any:
    return frame.sparkSession.createDataFrame([(one,) for one in ids] * 2, "qpool bigint")


def test_nothing_is_reported_that_did_not_happen(world: tuple[Any, Ends], told: list[Told]
                                                 ) -> None:
    events, ends = world
    messages, spans = lifecycle(events, ends).persist(), stays(events, ends).persist()
    there = {qpool + n * QPOOLS for n, one in enumerate(told) for qpool in one.snapshot.persistent}
    told_lines = in_turn(lines(spans, messages), chosen(events))
    rows = message_findings(messages, ATTEMPTS).unionByName(out_of_order(told_lines)).unionByName(
        lost(messages, these(there, messages))).collect()
    assert [row.asDict() for row in rows] == []
    left = spans.where("left_ns IS NULL").groupBy("queue").count().collect()
    flow = _routes(Basis(spans, messages, events, events, 0)).collect()
    for row in left:
        queue = row["queue"]
        assert row["count"] == (sum(r["came"] for r in flow if r["to_queue"] == queue)
                                - sum(r["departed"] for r in flow if r["from_queue"] == queue))
    gone = next(iter(there))  # and somebody who is missing is missed
    others = these(there - {gone}, messages)
    assert [row["qpool"] for row in lost(messages, others).collect()] == [gone]
    died = messages.where("end_type = 0")
    assert died.count() > HISTORIES / 10
    assert died.where("persistent").count() == 0


def test_the_oldest_of_each_minute(spark: Any) -> None:
    """Against counting by hand; some wait for days, and some are there at the end of the data,
    which is within a minute."""
    pick = random.Random(5)
    rows: list[tuple[int, int, int | None]] = []
    for _ in range(120):
        came = pick.randrange(3 * 3600) * 10**9
        rows.append((pick.randrange(3), came, came + int(10**9 * pick.choice(
            [3, 70, 500, 3600, 3 * 86400]))))
    end = 4 * 86400 * 10**9 + 7 * 10**9
    rows += [(0, 30 * 10**9, None), (1, end - 3 * 10**9, None), (2, end - 200 * 10**9, None)]
    frame = spark.createDataFrame(rows, "queue int, arrived_ns bigint, left_ns bigint")
    minute = 60 * 10**9
    found = {(r["queue"], r["minute_ns"]): r["oldest_ns"] for r in _minutes(
        Basis(frame, frame, frame, frame, end)).where("oldest_ns IS NOT NULL").collect()}
    expected: dict[tuple[int, int], int] = {}
    for queue, came, left in rows:
        behind = left or end + minute
        for at in range(came // minute * minute, behind // minute * minute, minute):
            key = (queue, at)
            expected[key] = max(expected.get(key, 0), min(at + minute, end) - came)
    assert found == expected
