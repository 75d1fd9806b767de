"""Archive files of another instance, and files that were replaced behind a run: they stop nothing,
and the audit names them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omq.base.errors import MixedArchives
from omq.base.paths import SpoolPaths
from omq.format.archive import HEADER, MAGIC, ArchiveHeader, decode_header
from omq.format.findings import Finding
from omq.storage import spool
from omqtools.omqspark import plan, tables
from omqtools.omqspark.audit import audit
from omqtools.omqspark.lake import Lake, all_messages, all_stays
from omqtools.omqspark.options import FAIL_ON
from omqtools.omqspark.pipeline import run
from omqtools.omqspark.report import make
from tests.made.generate import generate
from tests.made.generator import Load
from tests.made.writer import UUID
from tests.spark.conftest import generated
from tests.spark.test_spark import rows_of


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generated(tmp_path_factory, 120, file_frames=210)[0] / "archive"


@pytest.fixture(scope="module")
def strays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An archive of another instance, with files of the same numbers."""
    where = tmp_path_factory.mktemp("strays")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.made.writer.UUID", bytes(range(16)))
        generate(where, 120, faults=0, load=Load(seed=9), file_frames=90)
    yield where / "archive"


def counted(lake: Lake, here: Path) -> dict[str, int]:
    """What an audit counts, without zeros; it names a file of each."""
    verdict = audit(lake, str(here), pool=None)
    assert set(verdict["counts"]) == set(FAIL_ON)
    assert {each["kind"] for each in verdict["findings"] if each["file"]} == {
        kind for kind, count in verdict["counts"].items() if count}
    return {kind: count for kind, count in verdict["counts"].items() if count}


def test_a_stray_file_stops_nothing_and_is_told(spark: Any, archive: Path, strays: Path,
                                                tmp_path: Path) -> None:
    here, out = tmp_path / "archive", tmp_path / "tables"
    shutil.copytree(archive, here)
    files = sorted(here.glob("*.oma"))
    assert len(files) >= 3
    held = files.pop()
    held.rename(tmp_path / held.name)
    run(spark, str(here), str(out), incremental=False)
    lake = Lake(spark, str(out))
    assert counted(lake, here) == {}
    number = held.name
    shutil.copy(sorted(strays.glob("*.oma"))[-1], here)
    (tmp_path / number).rename(here / number)
    said = run(spark, str(here), str(out), incremental=True)
    assert [each["kind"] for each in said["passed_over"]] == ["foreign"]
    assert "of another instance" in said["passed_over"][0]["reason"]
    assert said["files"] == len(files) + 1 and len(said["batches"]) == 1
    assert counted(lake, here) == {"crc": 1}, "one that is not ours"
    assert max(lake.known().files) == len(files) + 1, "and makes no hole"
    with pytest.raises(MixedArchives):
        run(spark, str(strays), str(out), incremental=True)


def test_the_uuid_of_a_spool_says_which_files_are_its_own(archive: Path, strays: Path,
                                                          tmp_path: Path) -> None:
    """Also before anything was read; without it nobody can say which of two is a stray."""
    here = tmp_path / "spool" / "archive"
    shutil.copytree(archive, here)
    shutil.copy(strays / "0000000001.oma", here / "0000000001.oma")
    with pytest.raises(MixedArchives):
        plan.heads(str(here), plan.listing(str(here)))
    spool.write_identity(SpoolPaths(here.parent), UUID)
    found = dict(plan.heads(str(here), plan.listing(str(here))))
    assert [item.number for item, head in found.items() if isinstance(head, Finding)] == [1]


def test_a_file_that_was_replaced_is_told_by_audit_and_run(spark: Any, archive: Path,
                                                           tmp_path: Path) -> None:
    here, out = tmp_path / "archive", tmp_path / "tables"
    shutil.copytree(archive, here)
    run(spark, str(here), str(out), incremental=False)
    lake = Lake(spark, str(out))
    second = here / "0000000002.oma"
    data, before = bytearray(second.read_bytes()), rows_of(all_messages(lake))
    os.utime(second, ns=(1, 1))
    assert counted(lake, here) == {}, "a copy of it is the same file"
    replace_head(second, data)
    assert counted(lake, here) == {"replaced": 1}
    said = run(spark, str(here), str(out), incremental=True)
    assert said["replaced"] == [2] and len(said["batches"]) == 1
    assert counted(lake, here) == {"replaced": 1}, "who reads the tables is told, too"
    assert rows_of(all_messages(lake)) == before
    (here / "0000000001.oma").unlink()
    verdict = audit(lake, str(here), pool=None)
    assert verdict["counts"]["replaced"] == 1, "a file that is gone was read"


def replace_head(path: Path, data: bytearray) -> None:
    """Another file with as many bytes: it was made a second later."""
    header = decode_header(bytes(data[: HEADER.size]))
    assert isinstance(header, ArchiveHeader)
    data[: HEADER.size] = replace(header, time_ns=header.time_ns + 10**9).encode(MAGIC)
    path.write_bytes(data)


def test_what_is_wrong_with_a_file_is_told_also_when_another_comes_late(
        spark: Any, archive: Path, tmp_path: Path) -> None:
    """The late file makes batches void: their messages are told again, and so is the damage."""
    here, out = tmp_path / "archive", tmp_path / "tables"
    shutil.copytree(archive, here)
    first = here / "0000000001.oma"
    first.rename(tmp_path / first.name)
    second = here / "0000000002.oma"
    data = bytearray(second.read_bytes())
    for at in range(HEADER.size + 64, len(data) - 4096, 97):
        data[at] ^= 0x10
    second.write_bytes(data)
    for other in here.glob("*.oma"):
        if other != second:
            other.unlink()
    run(spark, str(here), str(out), incremental=False)  # no message can be read at all
    lake = Lake(spark, str(out))
    assert all_messages(lake).count() == all_stays(lake).count() == 0
    assert tables.frame(lake, "stays").count() == 0
    assert b"The archive holds no messages." in make(lake, None)["report.html"]
    damaged = counted(lake, here)
    assert damaged["crc"] >= 1
    (tmp_path / first.name).rename(first)
    run(spark, str(here), str(out), incremental=True)
    assert len(lake.known().batches) == 1
    assert counted(lake, here)["crc"] == damaged["crc"]
    assert json.loads((out / "current.json").read_text())["files"][0]["number"] == 1
