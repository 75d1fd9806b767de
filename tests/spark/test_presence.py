"""Times without a reader: what the journal says of them, what the replay does then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from omq.format.journal import FrameType
from omq.storage import durable
from omq.storage.disk import Disk
from omq.storage.journal import numbers_in
from omq.storage.journal_retire import retire
from omqtools.omqspark.advise import day_rows
from omqtools.omqspark.lake import Lake, all_stays
from omqtools.omqspark.pipeline import run
from omqtools.omqspark.reader_presence import away, counted, is_known, steps, there_at
from omqtools.omqspark.replay import ERROR_SHARE_MAX, replay
from omqtools.omqspark.whatif import queue_rows, whatif
from tests.process.operator_world import WAIT_S, Instance

UP, DOWN = int(FrameType.READER_UP), int(FrameType.READER_DOWN)
S = 10**9


def told(*rows: tuple[int, int, int, int]) -> pd.DataFrame:
    """(epoch, client, type, second) in the order of their LSNs."""
    return pd.DataFrame([{"queue": 3, "epoch": epoch, "client": client, "type": kind,
                          "time_ns": at * S, "lsn": lsn}
                         for lsn, (epoch, client, kind, at) in enumerate(rows)])


def pairs(frame: pd.DataFrame) -> list[tuple[int, int]]:
    return [(int(at) // S, int(count)) for at, count in zip(frame["at_ns"], frame["readers"],
                                                            strict=True)]


def test_readers_are_counted_over_heads_of_files_and_deaths_of_managers() -> None:
    rows = told((1, 7, UP, 10), (1, 8, UP, 20), (1, 7, UP, 25), (1, 8, DOWN, 30), (2, 7, UP, 60),
                (2, 7, DOWN, 70), (2, 9, DOWN, 71))
    found = counted(rows.sample(frac=1, random_state=1), {1: 50 * S, 2: 100 * S})
    assert pairs(found) == [(10, 1), (20, 2), (25, 2), (30, 1), (50, 0), (60, 1), (70, 0),
                            (71, 0)]
    assert there_at([9 * S, 10 * S, 29 * S, 55 * S, 99 * S], found).tolist() == [0, 1, 2, 0, 0]
    dead = counted(told((1, 7, UP, 10)), {1: 50 * S, 2: 100 * S})
    assert pairs(dead) == [(10, 1), (50, 0)], "no reader came to the next manager"


def test_each_reader_of_a_replay_has_times_of_its_own() -> None:
    steps = pd.DataFrame({"queue": 3, "at_ns": [10 * S, 20 * S, 30 * S, 50 * S],
                          "readers": [1, 2, 0, 1]})
    one, two, asked = away(steps, (10 * S, 90 * S), 3, 2)
    assert one == asked == [(-np.inf, 0.0), (20.0, 40.0)]
    assert two == [(-np.inf, 10.0), (20.0, 80.0)], "until the last hand-out at most"


def test_nothing_is_handed_out_while_nobody_is_there() -> None:
    arrival, four = np.array([0.0, 10.0, 21.0, 22.0, 45.0]), np.full(5, 4)
    gone = [[(20.0, 40.0)]]
    done = replay(arrival, four, np.full(5, 6.0), 1, away=gone)
    assert done.start.tolist() == [0.0, 10.0, 40.0, 46.0, 52.0]
    later = np.array([4, 4, 4, 9, 4])
    assert replay(arrival, later, np.full(5, 6.0), 1, away=gone).start.tolist() == [
        0.0, 10.0, 46.0, 40.0, 52.0], "who comes meanwhile is in turn"
    second = replay(arrival, four, np.full(5, 6.0), 2, away=[*gone, [(0.0, 21.5), (30.0, 99.0)]])
    assert second.start.tolist() == [0.0, 10.0, 21.5, 27.5, 45.0]
    busy = replay(np.array([0.0, 1.0]), np.full(2, 4), np.full(2, 30.0), 1, away=gone)
    assert busy.start.tolist() == [0.0, 40.0], "what it had it finished"
    at_end = replay(np.array([25.0]), np.array([4]), np.array([1.0]), 1, away=gone)
    assert at_end.start.tolist() == [40.0]


def outage(count: int = 200) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Stays of a queue whose two readers died and came back a minute later, and its steps."""
    random = np.random.default_rng(3)
    arrival = np.cumsum(random.exponential(1.0, count)).round(6)
    work = random.exponential(1.2, count).round(6)
    gone = [(40.0, 100.0)]
    done = replay(arrival, np.full(count, 4), work, 2, away=[gone, gone])
    frame = pd.DataFrame({
        "queue": 3, "arrived_ns": (arrival * 1e9).astype("<i8"), "arrived_lsn": np.arange(count),
        "given_ns": (done.start * 1e9).astype("<i8"), "priority": 4,
        "left_ns": ((done.start + work) * 1e9).astype("<i8"),
        "work_ns": (work * 1e9).astype("<i8"), "reader": done.reader, "last_epoch": 1,
        "apart": False, "elsewhere": False})
    steps = pd.DataFrame({"queue": 3, "at_ns": [-S, 40 * S, 100 * S], "readers": [2, 0, 2]})
    return frame, steps


def test_dead_readers_that_were_not_back_yet_are_known_to_the_replay() -> None:
    frame, steps = outage()
    without = queue_rows(frame, {3: 4})[2]
    assert without["refused"] and without["error_share"] > 2 * ERROR_SHARE_MAX
    real, replayed, asked = queue_rows(frame, {3: 4}, steps.sample(frac=1, random_state=2))
    assert replayed["mean_s"] == pytest.approx(real["mean_s"], abs=1e-5)
    assert not asked["refused"]
    assert real["mean_s"] / 4 < asked["mean_s"] < real["mean_s"], "the outage is still there"
    assert {row["readers"] for row in day_rows(frame, 1e6, steps)} == {1}


def test_steps_that_do_not_fit_are_not_believed() -> None:
    """Units of work take messages without a reader."""
    frame, steps = outage()
    assert is_known(steps, frame["given_ns"])
    assert not is_known(steps.assign(readers=0), frame["given_ns"])
    assert not is_known(steps[:0], frame["given_ns"])
    real, _, asked = queue_rows(frame, {3: 4}, steps.assign(readers=0))
    assert asked["refused"] and real["error_share"] > ERROR_SHARE_MAX


def test_a_reader_of_a_real_instance_dies_and_another_comes(spark: Any, tmp_path: Path) -> None:
    """While nobody is there messages wait; the replay waits with them."""
    before = durable.use(Disk())
    made = Instance(tmp_path / "spool")
    try:
        made.start()
        for count in (10, 120):
            if count == 10:
                made.put("A", *(b"%d" % n for n in range(count)))
            with made.connect("reads") as connection, connection.reader("A", batch=count) as reader:
                for _ in range(count):
                    for message in reader.next(timeout_s=WAIT_S):
                        message.done()
                        count -= 1
                    if not count:
                        break
            if not count:
                made.put("A", *(b"%d" % n for n in range(120)))
        made.stop()
        for number in numbers_in(made.paths.journal):
            retire(made.paths, number, keep=True)
        assert made.run("omq-archive", "--quiet").code == 0
    finally:
        made.end()
        durable.use(before)
    out = tmp_path / "tables"
    run(spark, str(made.paths.archive), str(out), incremental=False)
    lake = Lake(spark, str(out))
    (queue,) = {row["queue"] for row in all_stays(lake).where("queue_name = 'A'").collect()}
    there = steps(lake).where(f"queue = {queue}").orderBy("at_ns").collect()
    assert [row["readers"] for row in there][:3] == [1, 0, 1]
    real, replayed, asked = whatif(all_stays(lake), {queue: 2}, steps(lake)).collect()
    assert real["messages"] == 130 and not asked["refused"], real
    nobody = lake.spark.createDataFrame([], "queue int, at_ns bigint, readers int")
    assert whatif(all_stays(lake), {queue: 2}, nobody).collect()[2]["refused"]
    assert replayed["mean_s"] == pytest.approx(real["mean_s"], rel=ERROR_SHARE_MAX)
