"""What the bench of task brokers counts. No figure is judged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.bench.instance import BenchError
from tests.bench.tasks.counting import Count, count


def test_what_is_missing_is_lost(tmp_path: Path) -> None:
    """Acknowledged and not done; not what was done and never acknowledged."""
    path = tmp_path / "tasks"
    Path(f"{path}.sent").write_text("0\n1\n2\n")
    path.write_text("0 1.0 2.0\n7 1.0 2.0\n0 1.0 3.0\n2 1.0 2.5\n")
    assert count(path, quiet_s=0) == Count(sent=3, lost=1, twice=1)
    with path.open("a") as file:
        file.write("1 1.0 4.0\n")
    assert count(path) == Count(sent=3, lost=0, twice=1)


def test_what_cannot_be_measured_is_said_and_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("amqp", "hiredis", "redis"):
        pytest.importorskip(name, reason="the extra `peers` is not installed (make setup-peers)")
    from tests.bench.tasks import measures
    from tests.bench.tasks.bench_tasks import table

    def fails(*_: object) -> None:
        raise BenchError("no port 1\nand its log")

    monkeypatch.setattr(measures, "rates", fails)
    monkeypatch.setattr(measures, "FAULTS", {
        "worker": lambda _trial, _place, _size, found: found.faults.update(worker=Count(9, 0, 1)),
        "power": fails})
    found = measures.measure(measures.Trial("omq", "celery"), measures.Size(), lambda _: None)
    assert found.missing == ["omq, rates: no port 1", "omq, power: no port 1"]
    shown = table({"omq": found})
    assert shown.count("not measured") == 4 + 2 * 2 and "| 0 of 9 |" in shown


def test_nothing_was_done(tmp_path: Path) -> None:
    Path(f"{tmp_path / 'tasks'}.sent").write_text("0\n")
    assert count(tmp_path / "tasks", quiet_s=0) == Count(sent=1, lost=1, twice=0)


def test_where_the_table_goes_is_looked_at_before_anything_is_measured(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("amqp", "hiredis", "redis"):
        pytest.importorskip(name, reason="the extra `peers` is not installed (make setup-peers)")
    from tests.bench.tasks import bench_tasks

    monkeypatch.setattr(os, "getloadavg", lambda: pytest.fail("it has begun"))
    with pytest.raises(SystemExit) as ended:
        bench_tasks.main(["--quick", "--document", str(tmp_path / "absent.md")])
    assert ended.value.code == 2
    assert "No such file" in capsys.readouterr().err
