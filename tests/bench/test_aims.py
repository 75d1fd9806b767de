"""The benchmarks of the aims: that they run, count and remember. No figure is judged."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.aims import bench_aims, deletes, floods, operations
from tests.bench.aims.finding import Setting, at_least, at_most, steady
from tests.bench.instance import BenchError
from tests.bench.primitives import SyncProbe


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    probe = SyncProbe(tmp_path)
    yield Setting(tmp_path, probe, bench_aims.QUICK, 2000, quick=True)
    probe.close()


def test_limits_are_reached_from_the_right_side() -> None:
    assert [at_most("", 1.0, 1.0, "").reached, at_most("", 1.1, 1.0, "").reached] == [True, False]
    assert [at_least("", 1.0, 1.0, "").reached, at_least("", 0.9, 1.0, "").reached] == [True, False]


def test_nothing_is_judged_where_the_machine_was_unsteady() -> None:
    finding = at_most("", 1.1, 1.0, "")
    assert [steady(finding, 0.1).reached, steady(finding, 0.6).reached] == [False, None]


def test_kept_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMQ_BENCH_DIR", str(tmp_path / "b"))
    kept, document = tmp_path / "kept.json", tmp_path / "DOCUMENT.md"
    document.write_text("<!-- aims: begin -->\n<!-- aims: end -->\n")
    old = {"aim": "an old aim", "found": "1 of 2", "reached": False, "details": {"limit": 2}}
    kept.write_text(json.dumps({"small": {
        "machine": {"time": "2026-01-01T00:00:00", "load_average": [3.0]}, "findings": [old]}}))
    words = ["--quick", "--only", "large", "--json", str(kept), "--document", str(document)]
    assert bench_aims.main(words) == 0
    found = json.loads(kept.read_text())
    assert set(found) == {"small", "large"}
    text = document.read_text()
    assert "| an old aim | 1 of 2 | not reached | 2026-01-01T00:00, 3.0 |" in text
    assert "| 1 MiB bodies:" in text
    assert not list((tmp_path / "b").iterdir())


def test_operations_at_two_depths(setting: Setting) -> None:
    found = operations.bench(setting)
    *deep, listing = found
    assert [set(each.details["costs"]) for each in deep] == [{1000, 2000}] * 4
    assert all(cost > 0 for each in deep for cost in each.details["costs"].values())
    assert listing.details["value"] > 0


@pytest.mark.skipif(os.geteuid() != 0, reason="members are other users: needs root")
def test_floods(setting: Setting) -> None:
    for folder in (setting.root, *setting.root.parents):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    found = floods.bench(setting)
    assert len(found) == len(floods.KINDS) - 1
    assert all(each.details["value"] > 0 for each in found)


def test_a_failed_benchmark_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OMQ_BENCH_DIR", str(tmp_path / "b"))

    def fail(_setting: Setting) -> None:
        raise BenchError("a count is wrong")

    monkeypatch.setattr(deletes, "bench", fail)
    assert bench_aims.main(["--quick", "--only", "deletes"]) == 1
    assert "deletes: a count is wrong" in capsys.readouterr().err
