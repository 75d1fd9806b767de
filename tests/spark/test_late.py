"""Tables of before are upgraded; what a manifest knows of late files. (How these come to be told:
test_days.py.)"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omq.base.errors import BadRequest
from omqtools.omqspark import tables
from omqtools.omqspark.gold import ANSWERS
from omqtools.omqspark.job import chosen
from omqtools.omqspark.lake import Lake, all_messages, all_stays
from omqtools.omqspark.manifest import Batch, FileRecord, Manifest, missing
from omqtools.omqspark.out_directory import CURRENT, VERSIONS
from omqtools.omqspark.pipeline import run
from tests.spark.test_spark import rows_of

Made = tuple[Path, dict[str, Any]]


def the_same(one: Lake, other: Lake) -> None:
    for answer in ANSWERS:
        assert rows_of(one.gold(answer.name)) == rows_of(other.gold(answer.name)), answer.name
    assert rows_of(all_messages(one)) == rows_of(all_messages(other))
    assert rows_of(all_stays(one)) == rows_of(all_stays(other))


def test_tables_of_version_1_are_upgraded(spark: Any, made: Made, lake: Lake, tmp_path: Path
                                          ) -> None:
    out = tmp_path / "tables"
    shutil.copytree(lake.out, out)
    for name in tables.PUBLISHED:  # there were none
        shutil.rmtree(out / name / "_delta_log")
    (out / VERSIONS).unlink()
    last = max(lake.known().files)
    (out / CURRENT).write_text(json.dumps({"batch": lake.current(), "file": last}))
    old = Lake(spark, str(out))
    with pytest.raises(BadRequest, match="--incremental' upgrades it"):
        old.known()
    said = run(spark, str(made[0] / "archive"), str(out), incremental=True)
    assert said["passed_over"] == []
    the_same(old, lake)
    assert tables.frame(old, "messages").count() == all_messages(old).count() > 0


def record(number: int, batch: int, epoch: int = 1) -> FileRecord:
    return FileRecord(number, batch, epoch, number * 10, number * 10 + 9, number * 10 - 1, 10,
                      number, number, number, 7, 100)


def known() -> Manifest:
    """Three batches of two files each, an epoch a batch."""
    made = Manifest("ab", batches=[Batch(n, [2 * n + 1, 2 * n + 2]) for n in range(3)])
    for number in range(1, 7):
        made.take(record(number, (number - 1) // 2, 1 + (number - 1) // 2))
    return made


@pytest.mark.parametrize(("number", "kept", "stay"), [
    (7, [2], 3), (5, [0, 1, 2], 2), (4, [0, 1, 2], 1), (1, [0, 1, 2], 0), (5, [0, 2], 1),
    (5, [2], 0)])
def test_a_late_file_goes_back_to_a_state_before_it(number: int, kept: list[int], stay: int
                                                    ) -> None:
    assert known().base(number, kept) == stay


@pytest.mark.parametrize(("again", "files"), [
    ("4", {4}), ("batch:1", {3, 4}), ("1970-01-02", {5, 6}), ("1970-01-01", {1, 2, 3, 4, 5})])
def test_what_is_to_be_read_again(again: str, files: set[int]) -> None:
    """A file, a batch, or a day: a file over midnight is of both."""
    day_ns, made = 86_400 * 10**9, known()
    made.files[5] = replace(made.files[5], time_max=day_ns)
    made.files[6] = replace(made.files[6], time_min=day_ns + 1, time_max=2 * day_ns - 1)
    there: Any = dict.fromkeys(made.files)
    assert chosen(made, there, again) == files
    del there[max(files)]
    with pytest.raises(BadRequest, match=f"files {max(files)} are not in the archive"):
        chosen(made, there, again)


@pytest.mark.parametrize("again", ["7", "batch:9", "1971-01-01", "yesterday", "batch:", "-1"])
def test_what_cannot_be_read_again_is_said(again: str) -> None:
    with pytest.raises(BadRequest, match=again if again != "batch:" else "takes the number"):
        chosen(known(), {}, again)


def test_the_manifest_survives_its_file_and_knows_what_was_read_again() -> None:
    one = known()
    one.take(record(3, 3))
    assert one.void == {1: [3]}
    back = Manifest.decode(one.encode(), "OUT")
    assert back == one
    assert (back.current, back.next_number, back.bronze()) == (2, 4, [0, 1, 2, 3])
    one.take(record(4, 3))
    one.forget_void()
    assert one.void == {}, "nothing of that batch counts"
    newer = json.loads(one.encode()) | {"version": 99}
    with pytest.raises(BadRequest, match="newer omq-spark"):
        Manifest.decode(json.dumps(newer).encode(), "OUT")


def test_epochs_end_where_the_next_begins() -> None:
    assert known().epoch_ends() == [(1, 30, 3), (2, 50, 5)]
    assert known().epoch_ends([1, 2, 5]) == [(1, 50, 5)]


def test_numbers_that_are_missing_are_intervals() -> None:
    assert missing([1, 2, 4, 4_000_000_000]) == [(3, 3), (5, 3_999_999_999)]
    assert missing([]) == missing([7]) == []
