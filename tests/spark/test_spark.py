"""The data source, the pipeline and its answers, on one shared session and one small archive."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from omq.base.errors import BadRequest, MixedArchives, NoArchive
from omq.format.frame_rules import RULES, Rule
from omq.format.journal import FrameType
from omqtools.omqspark.advise import advise
from omqtools.omqspark.audit import audit
from omqtools.omqspark.failures import told
from omqtools.omqspark.gold import ANSWERS
from omqtools.omqspark.interactive import library
from omqtools.omqspark.lake import Lake, all_messages, all_stays
from omqtools.omqspark.lifecycle import LEAVES, STAYS, roles
from omqtools.omqspark.pipeline import run
from omqtools.omqspark.pool import pool_messages
from omqtools.omqspark.reader_presence import steps
from omqtools.omqspark.report import make
from omqtools.omqspark.report_tables import queue_names
from omqtools.omqspark.state import biography, state_at
from omqtools.omqspark.state import told as line
from omqtools.omqspark.whatif import whatif
from tests.made.stories import STORIES
from tests.made.truth import differences
from tests.made.writer import UUID
from tests.spark.conftest import MESSAGES
from tests.spark.conftest import STORIES as TIMES
from tests.unit.format.new_row import ROW

Made = tuple[Path, dict[str, Any]]


def read(spark: Any, made: Made, **options: Any) -> Any:
    return spark.read.format("omqj").options(path=str(made[0] / "archive"), **options)


def test_the_source_gives_every_frame(spark: Any, made: Made) -> None:
    frame = read(spark, made).load()
    kinds = {row["type"]: row["count"] for row in
             frame.where("bad IS NULL").groupBy("type").count().collect()}
    expected: Counter[str] = Counter(made[1]["events"]) + Counter(made[1]["story_events"])
    assert {FrameType[name]: count for name, count in expected.items()}.items() <= kinds.items()
    bad = [json.loads(row["bad"]) for row in frame.where("bad IS NOT NULL").collect()]
    assert sorted(row["reason"] for row in bad) == [
        "block fails its CRC", f"file number {made[1]['faults'][5]['file']} is missing"]


def test_chosen_columns_and_pushed_filters(spark: Any, made: Made) -> None:
    chosen = read(spark, made, pushdown="true").schema("qpool bigint, type int, lsn bigint")
    found = chosen.load().where("type = 1 AND lsn < 500")
    plain = read(spark, made).load().where("type = 1 AND lsn < 500")
    assert found.columns == ["qpool", "type", "lsn"]
    assert found.count() == plain.count() > 0
    (middle,) = plain.agg(F.max("ts")).first()
    found, plain = (read(spark, made, pushdown=how).load().where(F.col("ts") > F.lit(middle))
                    for how in ("true", "false"))
    assert found.count() == plain.count() > 0


def test_the_source_ends_at_damage_or_is_never_null(spark: Any, made: Made) -> None:
    """Through Spark: the archive here has a bad block, and a file that is missing behind it."""
    last = made[1]["faults"][5]["file"] - 1
    whole = {"mode": "FAILFAST", "columns": "lsn, qpool, onto"}
    sound = next(n for n in range(1, last) if not read(spark, made, first=n, last=n).load().where(
        "bad IS NOT NULL").count())
    quick = read(spark, made, first=sound, last=sound, **whole).load()
    assert [field.nullable for field in quick.schema] == [False, False, True]
    usual = read(spark, made, first=sound, last=sound).load().select("lsn", "qpool", "onto")
    assert quick.count() == usual.count() > 0
    assert not quick.exceptAll(usual).count()
    with pytest.raises(Exception, match=r"at offset .*: (block fails its CRC|file number)"):
        read(spark, made, **whole).load().count()


def test_seals_and_names(spark: Any, made: Made) -> None:
    blocks = read(spark, made, table="blocks").load().where("bad IS NULL")
    assert blocks.agg({"count": "sum"}).first()[0] == made[1]["frames"]
    names = read(spark, made, table="dict").load().where("kind = 'queue'")
    assert {row["text"] for row in names.select("text").distinct().collect()} == {
        "IDEL", "POISON", "ROUTER", "LOCAL", "INTERNET", "SIDE", "WORK", "LATE", "DEAD"}


def test_stays_follow_a_new_row(spark: Any) -> None:
    """As redo, ledger and text: tests/unit/format/test_new_row.py."""
    event = spark.createDataFrame([(int(FrameType.PREPARE), 3, [4], 0, 0)],
                                  "type int, queue int, onto array<int>, flags int, target int")

    def touched(rules: Mapping[FrameType, Rule]) -> list[tuple[int, int]]:
        (row,) = event.select(F.expr(roles(rules)).alias("roles")).collect()
        return [(one["role"], one["at"]) for one in row["roles"]]

    assert touched(RULES) == [(STAYS, 3)], "reserved: it moves nothing"
    assert touched({**RULES, FrameType.PREPARE: ROW}) == [(LEAVES, 3)]


def test_an_unknown_table_is_refused(spark: Any, made: Made) -> None:
    with pytest.raises(Exception, match="there are events, blocks, dict"):
        read(spark, made, table="secrets").load().count()


def test_every_message_is_counted_once(lake: Lake, made: Made) -> None:
    messages = all_messages(lake).where(f"qpool <= {MESSAGES}")
    row = messages.selectExpr("count(*)", "count(DISTINCT qpool)", "sum(puts)").first()
    assert row is not None
    assert tuple(row) == (MESSAGES, MESSAGES, MESSAGES + 1)  # one was put twice: a planted fault
    opened = messages.where("end_lsn IS NULL").count()
    assert opened == made[1]["open"] + 1  # and one is lost


def test_every_kind_of_message_is_told_as_its_story_says(lake: Lake, made: Made) -> None:
    which = made[1]["stories"]
    assert sorted(which.values()) == sorted(list(STORIES) * TIMES)
    rows = {row["qpool"]: row for row in all_messages(lake).where(f"qpool > {MESSAGES}").collect()}
    spans: dict[int, list[Any]] = {qpool: [] for qpool in rows}
    for row in all_stays(lake).where(f"qpool > {MESSAGES}").orderBy("arrived_lsn", "queue"
                                                                    ).collect():
        spans[row["qpool"]].append(row)
    assert len(rows) == sum(1 + kind.more for kind in STORIES.values()) * TIMES
    for qpool, name in which.items():
        row, mine, kind = rows[qpool], spans[qpool], STORIES[name]
        assert (row["end_how"], row["persistent"], row["gives"], row["failed"]) == (
            kind.ends, kind.persistent, kind.gives, kind.failed), name
        assert tuple((each["queue_name"], each["arrived_how"], each["left_how"])
                     for each in mine) == kind.stays, name
        assert sum(each["deaths"] for each in mine) == kind.deaths, name
        assert all(each["until_s"] > 0 for each in mine) == ("delayed" in name), name


def test_depth_adds_up(lake: Lake) -> None:
    last = lake.gold("queue_minute").groupBy("queue").agg({"arrivals": "sum", "departures": "sum"})
    spans = all_stays(lake)
    queues = last.collect()
    assert len(queues) > 1
    for row in queues:
        here = spans.where(f"queue = {row['queue']} AND left_ns IS NULL").count()
        assert row["sum(arrivals)"] - row["sum(departures)"] == here


def test_sketches_are_near_the_exact_percentiles(lake: Lake) -> None:
    exact = {row["queue"]: row["p"] for row in all_stays(lake).groupBy("queue")
             .agg(F.percentile("wait_ns", F.lit(0.9)).alias("p")).collect()}
    hours = lake.gold("queue_hour").where("queue IN (3, 4, 5)").collect()
    assert len(hours) == 3, "those with many messages"
    for row in hours:
        assert row["wait_p90_s"] == pytest.approx(exact[row["queue"]] / 1e9, rel=0.02, abs=1e-3)


def test_routes_and_readers(lake: Lake, made: Made) -> None:
    rows = lake.gold("routes").collect()
    routes = {(row["from_queue"], row["to_queue"]): row["messages"] for row in rows}
    for queue in {row["to_queue"] for row in rows} - {0}:
        here = all_stays(lake).where(f"queue = {queue} AND left_ns IS NULL").count()
        assert here == (sum(row["came"] for row in rows if row["to_queue"] == queue)
                        - sum(row["departed"] for row in rows if row["from_queue"] == queue))
    assert routes[0, 3] == MESSAGES
    assert routes[3, 4] + routes[3, 5] == made[1]["events"]["MOVE"]
    readers = lake.gold("readers").collect()
    assert sum(row["messages"] for row in readers if row["queue"] == 3) >= MESSAGES - 5
    assert all(0 <= row["busy_share"] <= 1.01 for row in readers)


def test_the_audit_finds_what_was_planted_and_nothing_else(lake: Lake, made: Made) -> None:
    verdict = audit(lake, str(made[0] / "archive"), pool=made[0])
    assert differences(made[1], verdict) == (set(), set())
    assert not verdict["clean"]


def test_a_pool_of_another_instance_is_refused(made: Made, tmp_path: Path) -> None:
    found: list[Any] = []
    pool_messages(made[0], UUID, found.append)
    assert sum(map(len, found)) == made[1]["open"]
    with pytest.raises(MixedArchives):
        pool_messages(made[0], bytes(16), found.append)
    with pytest.raises(NoArchive):
        pool_messages(tmp_path, UUID, found.append)


def rows_of(frame: Any) -> list[str]:
    """All rows, in an order of their own."""
    kept = frame.columns
    return sorted(str(row) for row in frame.select(*kept).collect())


@pytest.mark.usefixtures("by_spark")
def test_a_killed_run_repeats_to_the_same_rows_and_goes_on_when_files_are_pruned(
        spark: Any, made: Made, lake: Lake, tmp_path: Path) -> None:
    """Killed behind all tables of the second batch, before it counted; repeated by Spark alone,
    from state that the driver wrote."""
    archive, out = tmp_path / "archive", str(Path(lake.out).with_name("killed"))
    shutil.copytree(made[0] / "archive", archive)
    again = Lake(spark, out)
    assert again.current() == 0
    alone = next(int(q) for q, name in made[1]["stories"].items() if name == "manager_died")

    def waits() -> int:  # its manager's end stands in the second batch
        return state_at(again, lsn=made[1]["last_lsn"]).where(f"qpool = {alone}").count()

    assert waits() == 1, "what does not count yet is not read"
    assert run(spark, str(archive), out, incremental=True)["batches"] == [1]
    assert waits() == 0
    for answer in ANSWERS:
        assert rows_of(again.gold(answer.name)) == rows_of(lake.gold(answer.name)), answer.name
    assert rows_of(all_messages(again)) == rows_of(all_messages(lake))
    assert run(spark, str(archive), out, incremental=True)["batches"] == []
    files = sorted(archive.iterdir())
    for path in files[:2]:
        path.unlink()
    said = run(spark, str(archive), out, incremental=True)
    assert (said["batches"], said["files"]) == ([], len(files)), "what was read stays"
    with pytest.raises(BadRequest, match="files 1 are not in the archive"):
        run(spark, str(archive), out, incremental=True, again="1")


@pytest.mark.parametrize("mode", ["PERMISSIVE", "FAILFAST"])
def test_a_stream_reads_each_file_once(spark: Any, made: Made, tmp_path: Path, mode: str) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    rows: list[tuple[int, int]] = []

    def stream() -> None:
        found = (spark.readStream.format("omqj").option("path", str(archive))
                 .option("maxFilesPerTrigger", 1).option("mode", mode).load().select("lsn", "file")
                 .writeStream.trigger(availableNow=True)
                 .option("checkpointLocation", str(tmp_path / "checkpoint"))
                 .foreachBatch(lambda frame, number: rows.append((number, frame.count()))).start())
        found.awaitTermination()

    files = sorted((made[0] / "archive").iterdir())
    shutil.copy(files[0], archive)
    stream()
    assert [number for number, _ in rows] == [0]
    for path in files[1:3]:
        shutil.copy(path, archive)
    stream()
    assert [number for number, _ in rows] == [0, 1, 2]
    whole = spark.read.format("omqj").option("path", str(archive)).load().count()
    assert sum(count for _, count in rows) == whole


def test_strange_directories_are_not_touched(spark: Any, made: Made, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(BadRequest, match="thesis"):
        run(spark, str(made[0] / "archive"), str(tmp_path), incremental=False)
    with pytest.raises(NoArchive):
        run(spark, str(tmp_path), str(tmp_path / "out"), incremental=False)
    assert (tmp_path / "thesis.txt").exists()


def test_state_at_an_lsn_is_what_a_count_by_hand_gives(lake: Lake, made: Made) -> None:
    middle = made[1]["last_lsn"] // 2
    rows = state_at(lake, lsn=middle).collect()
    on: set[tuple[int, int]] = set()
    active: set[int] = set()
    events = lake.read("bronze").where(f"bad IS NULL AND lsn <= {middle}").orderBy("lsn").select(
        "type", "qpool", "queue", "onto", "target")
    for row in events.toLocalIterator():
        kind, qpool, queue = row["type"], row["qpool"], row["queue"]
        if kind == FrameType.PUT:
            on.add((queue, qpool))
        elif kind == FrameType.GIVE:
            active.add(qpool)
        elif kind in (FrameType.DONE, FrameType.MOVE, FrameType.DEFER):
            active.discard(qpool)
            if kind != FrameType.DEFER:
                on.discard((queue, qpool))
                on |= {(q, qpool) for q in row["onto"] or []}
    planted = {fault.get("qpool") for fault in made[1]["faults"]}
    found = {(row["queue"], row["qpool"]) for row in rows if row["qpool"] not in planted}
    assert found == {pair for pair in on if pair[1] not in planted}
    assert {row["qpool"] for row in rows if row["state"] == "ACTIVE"} - planted == active - planted


def test_the_biography_of_a_message(lake: Lake) -> None:
    names = queue_names(lake)
    lines = [line(row, names) for row in biography(lake, "qpool = 17").collect()]
    assert "PUT  ROUTER" in lines[0]
    assert "MOVE  ROUTER  onto " in lines[2]
    assert "DONE" in lines[-1]
    assert biography(lake, "qpool = -1").count() == 0
    with pytest.raises(BadRequest, match="colour"), told():
        biography(lake, "colour = 'red'").count()


def test_what_if_first_reproduces_what_happened(lake: Lake) -> None:
    rows = whatif(all_stays(lake), {3: 1}, steps(lake)).collect()
    by_kind = {row["kind"]: row for row in rows}
    real, replayed, asked = by_kind["real"], by_kind["replayed"], by_kind["asked"]
    assert replayed["p90_s"] == pytest.approx(real["p90_s"], rel=0.1, abs=2e-3)
    assert replayed["error_s"] == asked["error_s"] < 0.1 * real["mean_s"] + 2e-3
    assert real["left_out"] == 0
    assert asked["readers"] == 1
    assert asked["p90_s"] > 2 * real["p90_s"]
    assert (real["error_share"] < 0.2, asked["refused"]) == (True, False)
    found = advise(all_stays(lake), 60.0, steps(lake)).collect()
    rows = [row for row in found if row["queue"] == 3]
    assert sum(row["arrivals"] for row in rows) == real["messages"]
    assert all(row["p95_s"] <= 60.0 and row["readers"] >= 1 for row in rows)


def test_the_report_stands_alone(lake: Lake) -> None:
    verdict = {"clean": False, "counts": {"duplicated": 1, "lost": 0}, "messages": MESSAGES}
    files = make(lake, verdict)
    page = files["report.html"].decode()
    assert "1 message that was put or ended twice" in page
    own = page.replace(library(), "")
    assert own.count("<noscript><img") == len(files) - 1 >= 6
    assert "http" not in own and "<link" not in own
    assert all(data.startswith(b"\x89PNG") for name, data in files.items() if name != "report.html")
