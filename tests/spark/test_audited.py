"""An audit looks at what is new and says what one that looks at everything says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from omqtools.omqspark import audit_steps, audited
from omqtools.omqspark import lake as lakes
from omqtools.omqspark.audit import audit
from omqtools.omqspark.audited import Audited, Basis, earlier
from omqtools.omqspark.findings import out_of_order
from omqtools.omqspark.lake import Lake, all_messages
from omqtools.omqspark.out_directory import AUDITED, BESIDE
from omqtools.omqspark.pipeline import run
from omqtools.omqspark.session import Later, sized
from tests import share
from tests.spark.conftest import Made, generated
from tests.spark.test_audit_steps import damaged, steps, verdict
from tests.spark.told import no_session


def said(lake: Lake, archive: str, **how: Any) -> dict[str, Any]:
    found = audit(lake, archive, pool=None, **how)
    return {key: value for key, value in found.items() if key != "audited"}


def test_what_was_judged_is_not_looked_at_again(
        spark: Any, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
        ) -> None:
    sizes: list[int] = []

    def watched(session: Any, frames: int) -> bool:
        sizes.append(frames)
        return sized(session, frames)

    monkeypatch.setattr(lakes, "sized", watched)
    made, _ = generated(tmp_path_factory, 300, file_frames=400)
    archive, out = made / "archive", str(tmp_path_factory.mktemp("audited") / "tables")
    late = sorted(archive.glob("*.oma"))[2:]
    for path in late:
        path.rename(made / path.name)
    run(spark, str(archive), out, incremental=False)
    lake = Lake(spark, out)
    first = said(lake, str(archive))
    for path in late:
        (made / path.name).rename(path)
    run(spark, str(archive), out, incremental=True, files_per_batch=1)
    known = lake.known()
    before = earlier(lake, known, 3)
    assert before.batches == [0] and before.ended == first["ended"] > 0
    looked = Basis(lake, known, before)
    assert 0 < looked.messages.where("ended = 1").count() < all_messages(lake).count()
    assert not looked.totals.comes_back
    told = said(lake, str(archive))
    assert told["clean"] and told["messages"] == 300 and told["ended"] > first["ended"]
    assert 0 < sizes[-1] < lake.frames(), "its plans are those of what is new"
    assert earlier(lake, known, 3).batches == [batch.number for batch in known.batches]
    assert said(lake, str(archive)) == told, "and again, with nothing new"
    assert earlier(lake, known, 4).batches == [], "another limit: from the beginning"
    (Path(out) / AUDITED).unlink()
    assert said(lake, str(archive)) == told
    old = before.__class__(3, batches=[0], last_lsn=known.files[1].last_lsn, born_min=1,
                           born_max=1 << 40)
    assert Basis(lake, known, old).totals.comes_back, "ids of the time that was judged"


LINES = "qpool bigint, queue int, priority int, producer_pid bigint, arrived_lsn bigint, " \
        "given_lsn bigint"


def test_order_is_judged_with_what_was_handed_out_before(spark: Any) -> None:
    """A line of two audits: 7 came before what the first one saw handed out."""
    new: DataFrame = spark.createDataFrame(
        [(7, 3, 4, 100, 10, 50), (8, 3, 4, 100, 30, 51), (9, 3, 4, 100, 25, 52),
         (10, 3, 4, 200, 11, 53)], LINES)
    turns = spark.createDataFrame([(3, 4, 100, 20)], audited.TURN)
    assert {row["qpool"] for row in out_of_order(new).collect()} == {9}
    assert {row["qpool"] for row in out_of_order(new, turns).collect()} == {7, 9}


def test_findings_that_need_both_rows_are_not_kept(lake: Lake) -> None:
    Audited(3, [0], counts={"attempts": 1}).keep(lake)
    assert json.loads(lake.get(AUDITED) or b"")["batches"] == [0]
    Audited(3, [0], counts={"resurrected": 1}).keep(lake)
    assert json.loads(lake.get(AUDITED) or b"") == {}


@pytest.mark.parametrize("rows", [1200, 1 << 20])
def test_steps_say_what_one_look_says(made: Made, lake: Lake, rows: int, rows_max: Any,
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    """All kinds of faults and of messages, with and without the pool; and once more behind it, when
    what was judged is known. Few lines are remembered from step to step."""
    rows_max(rows)
    monkeypatch.setattr(audit_steps, "TURNS_HELD", 3)
    said: list[str] = []
    for pool in (None, made[0]):
        for anew in (True, False):
            one = verdict(lake, made[0] / "archive", pool=pool, anew=anew)
            mine = verdict(steps(lake.out), made[0] / "archive", pool=pool, anew=anew,
                           say=said.append)
            assert mine == one
    assert one["counts"]["lost"] and one["counts"]["out_of_order"] and one["counts"]["duplicated"]
    assert (len(said) > 40) == (rows == 1200)
    assert not list((Path(lake.out) / BESIDE).iterdir())


@pytest.mark.parametrize("seed", share.of_cases([1, 4]))
def test_spark_judges_them_so_too(spark: Any, wholes: list[Made], seed: int, rows_max: Any,
                                  tmp_path: Path) -> None:
    whole = wholes[seed % 2]
    archive, later = damaged(whole, seed, tmp_path)
    for path in later:
        path.with_suffix(".later").rename(path)
    out = str(tmp_path / "tables")
    run(Later(no_session), str(archive), out, incremental=True, files_per_batch=2)
    rows_max(700)
    assert verdict(Lake(spark, out), archive, pool=whole[0]) == verdict(
        steps(out), archive, pool=whole[0])
