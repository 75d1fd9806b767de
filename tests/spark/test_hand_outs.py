"""Accounting per hand-out: counted by hand from the archive's frames, without a JVM."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from omq.format.frame_rules import RULES, Hand, Reason
from omq.format.journal import FrameFlag, FrameType
from omq.format.pool import PartState
from omqtools.omqspark import decode, plan, views
from omqtools.omqspark.gold import DAY_NS, HAND_OUT_COUNTS
from omqtools.omqspark.pipeline import run
from omqtools.omqspark.session import Later
from tests.spark.conftest import generated
from tests.spark.test_splits import archive

__all__ = ("archive",)  # messages that one reader failed and another one finished
FIELDS = ["time_ns", "type", "flags", "queue", "attempt", "qpool", "size", "client", "pid", "uid",
          "reason", "epoch", "bad"]


def no_session() -> Any:
    raise AssertionError("a JVM for few rows")


def counted(where: Path) -> dict[tuple[int, ...], Counter[str]]:
    """(pid, uid, client, queue, day) -> HAND_OUT_COUNTS."""
    found: dict[tuple[int, ...], Counter[str]] = {}
    heads = plan.heads(str(where), plan.listing(str(where)))
    for task in plan.splits(heads, plan.SPLIT_BYTES):
        for batch in decode.event_batches(task, FIELDS, where=str(where)):
            for row in batch.to_pylist():
                if row["bad"] is not None or not row["qpool"] or row["type"] not in set(FrameType):
                    continue
                rule = RULES[FrameType(row["type"])]
                if rule.hand is Hand.NOTHING:
                    continue
                one = found.setdefault((row["epoch"], row["client"], row["pid"], row["uid"],
                                        row["queue"], row["time_ns"] // DAY_NS), Counter())
                if rule.hand is Hand.GIVEN:
                    one.update(gives=1, give_bytes=row["size"], again=row["attempt"] > 1)
                elif row["flags"] & FrameFlag.FAILED:
                    one.update(failed=1, deaths=rule.reasoned and row["reason"] == Reason.DIED)
                else:
                    one.update(done=rule.leaves, deferred=rule.is_in(PartState.DEFERRED),
                               returned=rule.is_in(PartState.READY))
    return found


def told(out: Path) -> dict[tuple[int, ...], Counter[str]]:
    with views.database(str(out)) as database:
        rows = database.table("hand_outs").to_arrow_table().to_pylist()
    assert rows and all(row["queue_name"] for row in rows)
    found: dict[tuple[int, ...], Counter[str]] = {
        (row["epoch"], row["client"], row["pid"], row["uid"], row["queue"],
         row["day"].toordinal() - 719_163): Counter({name: row[name] for name in HAND_OUT_COUNTS})
        for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("files", [1, 200])
def test_each_hand_out_counts_for_who_got_it(archive: Path, tmp_path: Path, files: int) -> None:
    """Also where the answer is in another batch than the hand-out."""
    run(Later(no_session), str(archive), str(tmp_path / "out"), incremental=False,
        files_per_batch=files)
    expected = counted(archive)
    assert told(tmp_path / "out") == expected
    failed = {key[2] for key, one in expected.items() if one["failed"]}
    assert failed and any(one["again"] for one in expected.values())
    with views.database(str(tmp_path / "out")) as database:
        [(gives, of_stays)] = database.sql(
            "SELECT sum(gives), (SELECT sum(gives) FROM stays) FROM hand_outs").fetchall()
        others = {row[0] for row in database.sql(
            "SELECT DISTINCT reader_pid FROM stays WHERE failed > 0").fetchall()} - failed
    assert gives == of_stays > 0
    assert others, "somebody finished what another one had failed, and has no failure of his own"


def test_deaths_names_and_damage(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    made, _ = generated(tmp_path_factory, 200, file_frames=500, faults=1, stories=1)
    run(Later(no_session), str(made / "archive"), str(tmp_path / "out"), incremental=False)
    found = told(tmp_path / "out")
    assert found == counted(made / "archive")
    assert sum(one["deaths"] for one in found.values()) and sum(
        one["returned"] + one["deferred"] for one in found.values())
    with views.database(str(tmp_path / "out")) as database:
        names = {row[0] for row in database.sql(
            "SELECT DISTINCT program FROM hand_outs WHERE gives > 0").fetchall()}
    assert {"router main", "local main"} <= names and None not in names
