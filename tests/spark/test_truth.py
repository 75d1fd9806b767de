"""A real instance with real clients that write down what they do; its archive, and all tables,
compared with that. Messages of every kind there is (scenes.py).

The first archive file comes late, too. What the index said at several LSNs is compared with time
travel. Times are those of the journal, which must lie where the clients saw them (SLACK_NS: a
manager takes the time once for a group of requests); everything else must be equal.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omq.core.index.view import IndexView
from omq.storage import durable
from omq.storage.disk import Disk
from omq.storage.journal import numbers_in
from omq.storage.journal_retire import retire
from omqtools.omqspark import tables, views
from omqtools.omqspark.audit import audit
from omqtools.omqspark.buckets import ERROR
from omqtools.omqspark.lake import Lake
from omqtools.omqspark.pipeline import run
from omqtools.omqspark.report_tables import queue_names
from omqtools.omqspark.session import Later
from omqtools.omqspark.state import state_at
from tests.process.operator_world import WAIT_S, Instance
from tests.spark.recorded import Life, Stay, read_facts, told
from tests.spark.scenes import QUEUES, RULES, SCENES, Stage, manager_dies, operated
from tests.spark.told import no_session
from tests.spark.told import told as tables_by

NS = 10**9
SLACK_NS = 5 * NS
HOUR, MINUTE = 3600 * NS, 60 * NS
LOOKED_BEHIND = (operated, manager_dies)
STORM = "STORM"  # clients cannot know what the dying manager handed out there
Entry = tuple[str, int, str, int]  # queue, QPoolId, state, priority
Row = dict[str, Any]


def dump(live: Instance) -> tuple[int, list[Entry]]:
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
class World:
    """What clients recorded, what the index said, and the tables."""

    lives: dict[int, Life]
    dumps: list[tuple[int, list[Entry]]]
    lake: Lake
    archive: Path
    verdict: Row
    verdict_before: Row
    names: dict[int, str]
    rows: dict[str, list[Row]]

    def of(self, table: str) -> list[Row]:
        return self.rows[table]


def states(live: Instance, dumps: list[tuple[int, list[Entry]]]) -> None:
    """Messages in every state there is; the index at three instants."""
    for priority in (2, 1, 3):
        live.put("P", b"one", b"two", b"three", b"four", priority=priority)
    live.put(["Q", "R"], b"twice", priority=7)
    with live.connect("clerk") as c, c.reader("P", batch=6) as reader:
        c.put("R", b"tomorrow", delay_s=86_400)
        dumps.append(dump(live))
        done, later, moved, failed, back, _kept = reader.next(6, timeout_s=WAIT_S)
        done.done()
        later.defer(3600, "not now")
        moved.move(["Q", "R"])
        failed.fail("no")
        back.release()
        reader.flush()
        dumps.append(dump(live))
        live.run("omhold", "--where", "queue=R priority=7", "--reason", "look", "--yes")
        c.put("P", b"last")
        dumps.append(dump(live))


@pytest.fixture(scope="module")
def world(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    base = tmp_path_factory.mktemp("truth")
    live, folder = Instance(base / "spool"), base / "facts"
    folder.mkdir()
    (live.conf / "queues.conf").write_text(QUEUES)
    stage, dumps = Stage(live, folder), []
    try:
        live.start()
        for scene in SCENES:
            scene(stage)
            if scene in LOOKED_BEHIND:
                dumps.append(dump(live))
        states(live, dumps)
    finally:
        live.end()
    before = durable.use(Disk())
    for number in numbers_in(live.paths.journal):
        retire(live.paths, number, keep=True)
    assert live.run("omq-archive", "--quiet").code == 0
    archive, out = live.paths.archive, str(base / "tables")
    late = sorted(archive.glob("*.oma"))[0]
    late.rename(base / late.name)  # the first file comes late
    run(spark, str(archive), out, incremental=False)
    lake = Lake(spark, out)
    missed = audit(lake, str(archive), pool=live.root)
    (base / late.name).rename(late)
    run(spark, str(archive), out, incremental=True)
    verdict = audit(lake, str(archive), pool=live.root)
    with views.database(out) as database:
        rows = {name: database.table(name).to_arrow_table().to_pylist()
                for name in tables.PUBLISHED}
    yield World(told(read_facts(folder), RULES, STORM), dumps, lake, archive, verdict, missed,
                queue_names(lake), rows)
    durable.use(before)


def test_the_audit_says_so(world: World) -> None:
    assert world.verdict["clean"], world.verdict["findings"]
    assert world.verdict["not_judged"] == {}
    assert list(world.verdict_before["not_judged"]) == ["before"], "the first file was not there"


def test_files_one_by_one_give_the_same_tables(world: World, tmp_path: Path) -> None:
    """What clients did, as hourly runs see it: each file a batch of its own, by DuckDB; and the
    audit after each of them, by turns in steps and at once."""
    out, here = tmp_path / "tables", tmp_path / "archive"
    here.mkdir()
    paths = sorted(world.archive.glob("*.oma"))
    assert len(paths) > 2
    for place, path in enumerate(paths):
        shutil.copy2(path, here)
        run(Later(no_session), str(here), str(out), incremental=True)
        lake = Lake(Later(no_session, place % 2 or None), str(out))
        assert audit(lake, str(here), pool=None)["clean"]
    assert tables_by(out) == tables_by(world.lake.out)


def test_time_travel_is_what_the_index_said_then(world: World) -> None:
    assert {state for _, entries in world.dumps for _, _, state, _ in entries} == {
        "READY", "ACTIVE", "DEFERRED", "HELD", "PREPARED"}
    for lsn, entries in world.dumps:
        found = [(world.names[row["queue"]], row["qpool"], row["state"], row["priority"])
                 for row in state_at(world.lake, lsn=lsn).collect()]
        assert sorted(found, key=lambda entry: entry[0]) == entries, lsn


BY_UNITS = {"ORDERS", "AUDIT", "WEAK", "PAIRS"}
"""Where units of work take: a client that does nothing else has said no name to the journal."""


def within(time_ns: int, span: tuple[int, int]) -> bool:
    return span[0] - SLACK_NS <= time_ns <= span[1] + SLACK_NS


def settled(life: Life) -> bool:
    return all(stay.queue != STORM for stay in life.stays)


def test_every_message_is_as_its_clients_saw_it(world: World) -> None:
    rows = {row["qpool"]: row for row in world.of("messages")}
    assert len(rows) == len(world.of("messages"))
    for qpool, life in world.lives.items():
        row = rows[qpool]
        assert (row["size"], row["priority"], row["persistent"], row["puts"]) == (
            life.size, life.priority, life.persistent, 1), life
        found = (row["group_id"], row["group_sequence"], row["group_last"])
        assert found == (life.group or (None, None, None)), life
        assert row["producer_pid"] == life.pid or life.stays[0].queue in ("REPLIES", "AUDIT")
        assert within(row["born_ns"], life.born)
        if settled(life):
            assert (row["gives"], row["moves"], row["defers"], row["poisoned"], row["failed"],
                    row["end_how"]) == (
                sum(s.gives for s in life.stays), life.moves, life.defers, life.poisoned,
                sum(s.failed for s in life.stays), life.end_how), life
            assert row["ended"] == (life.end_how is not None)
            assert (row["end_ns"] is not None) == (life.end_how is not None)
        elif life.end_how == "done" and life.persistent:
            assert (row["end_how"], row["gives"] >= 1) == ("done", True)
    told_of = Counter(stay.left_how for life in world.lives.values() for stay in life.stays)
    assert set(told_of) == {None, "done", "move", "poison", "expire", "backout", "deleted", "died",
                            "delete"}
    ended = {(life.large, life.end_how) for life in world.lives.values()}
    assert {how for large, how in ended if large} == {how for _, how in ended} - {
        "died", "move"}, "each end, large too; a body that is not persistent is small"


def expected_stay(world: World, stay: Stay, life: Life) -> Row:
    return {
        "arrived_how": stay.how, "came_from_name": stay.came or None,
        "priority": stay.priority, "gives": stay.gives, "failed": stay.failed,
        "deaths": stay.deaths, "put_off": stay.put_off, "attempts": stay.attempts,
        "reader_pid": stay.reader, "left_how": stay.left_how, "size": life.size,
        "went_to_name": stay.went or None}


def test_every_stay_is_as_its_clients_saw_it(world: World) -> None:
    found: dict[int, list[Row]] = defaultdict(list)
    for row in world.of("stays"):
        found[row["qpool"]].append(row)
    for qpool, life in world.lives.items():
        rows = {(row["queue_name"], row["visit"]): row for row in found[qpool]}
        assert sorted(rows) == sorted((stay.queue, stay.visit) for stay in life.stays), life
        for stay in life.stays:
            row = rows[stay.queue, stay.visit]
            assert within(row["arrived_ns"], stay.arrived)
            kept = stay.queue == "IDEL" and not stay.swept
            assert bool(row["until_s"]) == (stay.delayed or kept)
            if stay.queue == STORM:
                assert row["gives"] >= stay.gives
                assert stay.left_how in (None, row["left_how"]) or not life.persistent
                continue
            expected = expected_stay(world, stay, life)
            assert {name: row[name] for name in expected} == expected, (life, row)
            if stay.first_give:
                assert within(row["given_ns"], stay.first_give)
                assert row["wait_ns"] == row["given_ns"] - row["arrived_ns"] >= 0
                assert row["arrived_ns"] <= row["ready_ns"] <= row["given_ns"]
                assert row["ready_wait_ns"] == row["given_ns"] - row["ready_ns"]
                assert row["reader_name"] or stay.queue in BY_UNITS, (life, row)
                assert row["reader_uid"] == os.getuid()
            if stay.left:
                assert within(row["left_ns"], stay.left)


def test_minutes_and_hours_are_those_of_the_stays(world: World) -> None:
    """Counted by hand from the rows of `stays`, which clients vouch for."""
    spans = world.of("stays")
    end = max(s["left_ns"] or s["arrived_ns"] for s in spans)
    for queue in {s["queue"] for s in spans}:
        mine = [s for s in spans if s["queue"] == queue]
        depth = 0
        rows = sorted((r for r in world.of("queue_minute") if r["queue"] == queue),
                      key=lambda r: int(r["minute_ns"]))
        for row in rows:
            at = row["minute_ns"]
            came = sum(at <= s["arrived_ns"] < at + MINUTE for s in mine)
            left = sum(at <= (s["left_ns"] or -1) < at + MINUTE for s in mine)
            depth += came - left
            assert (row["arrivals"], row["departures"], row["depth"]) == (came, left, depth)
            there = [s["arrived_ns"] for s in mine if s["arrived_ns"] < at + MINUTE
                     <= (s["left_ns"] or end + MINUTE)]
            if there and at + MINUTE <= end:
                assert row["oldest_s"] == pytest.approx((at + MINUTE - min(there)) / NS)
            elif there:  # the last minute; the data may end with an event that is of no stay
                assert row["oldest_s"] >= (end - min(there)) / NS > 0
            if not there:
                assert row["oldest_s"] == 0
        assert sum(r["arrivals"] for r in rows) == len(mine)
    for row in world.of("queue_hour"):
        mine = [s for s in spans if s["queue"] == row["queue"]
                and row["hour_ns"] <= s["arrived_ns"] < row["hour_ns"] + HOUR]
        waits = [s["wait_ns"] for s in mine if s["wait_ns"] is not None]
        assert (row["arrivals"], row["departures"], row["waits"], row["failed"], row["deaths"],
                row["bytes"]) == (
            len(mine), sum(s["left_ns"] is not None for s in mine), len(waits),
            sum(s["failed"] for s in mine), sum(s["deaths"] for s in mine),
            sum(s["size"] for s in mine))
        if waits:
            exact = np.quantile(waits, [0.5, 0.9, 0.95, 0.99], method="inverted_cdf") / NS
            assert [row[f"wait_p{n}_s"] for n in (50, 90, 95, 99)] == pytest.approx(
                exact.tolist(), rel=ERROR)
            assert row["wait_max_s"] == pytest.approx(max(waits) / NS)


def recorded(world: World) -> Iterator[tuple[Life, Stay]]:
    for life in world.lives.values():
        yield from ((life, stay) for stay in life.stays if stay.queue != STORM)


def mine(world: World, rows: list[Row], name: str = "queue_name") -> list[Row]:
    """Of queues where all that happens is recorded."""
    return [row for row in rows if row[name] in ("ORDERS", "AUDIT", "SHIPPED", "RETRY", "DEAD",
                                                 "WEAK", "ONCE", "HUGE", "TIMED", "SHORT", "LATE",
                                                 "REPLIES", "GROUPS", "WHOLE", "PAIRS", "FORMER",
                                                 "LATTER", "KEYED", "FEW")]


def test_readers_poison_and_sizes_are_what_was_recorded(world: World) -> None:
    did: Counter[tuple[str, int]] = Counter()
    failed: Counter[str] = Counter()
    poisoned: Counter[str] = Counter()
    size: dict[str, list[int]] = defaultdict(list)
    for life, stay in recorded(world):
        if stay.left and stay.reader:
            did[stay.now, stay.reader] += 1
        failed[stay.now] += stay.failed
        poisoned[stay.now] += stay.left_how == "poison"
        size[stay.now].append(life.size)
    found: Counter[tuple[str, int]] = Counter()
    for row in mine(world, world.of("readers")):
        found[row["queue_name"], row["reader_pid"]] += row["messages"]
    assert found == {key: n for key, n in did.items() if key[0] not in ("A", "B", "LOCAL", "ERROR")}
    for name in ("AUDIT", "RETRY", "WEAK", "ORDERS"):
        rows = [row for row in world.of("poison") if row["queue_name"] == name]
        assert sum(row["failed"] for row in rows) == failed[name], name
        assert sum(row["poisoned"] for row in rows) == poisoned[name], name
        sizes = [row for row in world.of("sizes") if row["queue_name"] == name]
        assert sum(row["messages"] for row in sizes) == len(size[name])
        assert sum(row["bytes"] for row in sizes) == sum(size[name])
        assert max(row["largest"] for row in sizes) == max(size[name])


def test_orders_and_routes_are_what_was_recorded(world: World) -> None:
    orders = Counter(row["messages"] for row in world.of("operators"))
    assert orders[1] >= 7, "each order of the scene changed one message"
    came: Counter[tuple[str, str, str]] = Counter()
    went: Counter[tuple[str, str]] = Counter()
    for _, stay in recorded(world):
        came[stay.came, stay.now, stay.how] += 1
        if stay.left_how:
            went[stay.now, stay.left_how] += 1
    routes = world.of("routes")
    found = Counter({(row["from_queue_name"] or "", row["to_queue_name"], row["how"]): row["came"]
                     for row in mine(world, routes, "to_queue_name") if row["came"]})
    kept = {row["to_queue_name"] for row in mine(world, routes, "to_queue_name")}
    assert found == {key: n for key, n in came.items() if key[1] in kept}
    left: Counter[tuple[str, str]] = Counter()
    for row in mine(world, routes, "from_queue_name"):
        left[row["from_queue_name"], row["how"]] += row["departed"]
    assert +left == {key: n for key, n in went.items() if key[0] in kept}
    for queue, name in world.names.items():
        here = sum(row["left_ns"] is None for row in world.of("stays") if row["queue"] == queue)
        assert here == (sum(row["came"] for row in routes if row["to_queue"] == queue)
                        - sum(row["departed"] for row in routes if row["from_queue"] == queue)
                        ), name
