"""The bench itself: that it counts rightly and that a short run works. No figure is judged."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import sysv_ipc

from omq.base.errors import ManagerUnavailable
from omq.storage import segment
from tests.bench import report
from tests.bench.clients import NUMBER_BITS, Load
from tests.bench.crowd import Ledger, Vector
from tests.bench.instance import MANAGER, POOL_WRITER, BenchError, running
from tests.bench.primitives import SyncProbe, checksum_rate, round_trips
from tests.bench.throughput import Figure, Timing, measure, percentiles

SHORT = Timing(warm_up_s=0.1, window_s=0.3, probe_s=0.05, rounds=1)
FIGURES = [
    Figure("lone", "1+1", 1, 1, Load(64), 0.4),
    Figure("batch", "2+2", 2, 2, Load(200, batch=20)),
]


def _heads(ledger_mark: int, *numbers: int) -> Vector:
    return np.array([((ledger_mark << NUMBER_BITS) + number, 0) for number in numbers], "<i8")


@pytest.mark.parametrize(
    ("numbers", "left", "words"),
    [
        ((0, 1), 0, "1 missing, 0 double"),
        ((0, 1, 2, 2), 0, "0 missing, 1 double"),
        ((0, 1, 2, 7), 0, "1 unknown"),
        ((0, 1, 2), 1, "the index has 1"),
    ],
)
def test_wrong_counts_are_noticed(numbers: tuple[int, ...], left: int, words: str) -> None:
    ledger = Ledger()
    mark = ledger.mark()
    ledger.put(mark, 3)
    ledger.got(_heads(mark, *numbers))
    with pytest.raises(BenchError, match=words):
        ledger.check(left)


def test_right_counts_in_any_order() -> None:
    ledger = Ledger()
    first, second = ledger.mark(), ledger.mark()
    ledger.put(first, 2)
    ledger.put(second, 1)
    ledger.got(_heads(second, 0))
    ledger.got(_heads(first, 1, 0))
    ledger.check(0)
    assert ledger.got_count == ledger.put_count == 3


def test_percentiles_are_in_milliseconds() -> None:
    assert percentiles(np.arange(1_000_001, dtype="<i8") * 1000)["p99.9"] == pytest.approx(999.0)


def test_short_run(tmp_path: Path) -> None:
    probe, ledger = SyncProbe(tmp_path), Ledger()
    with running(tmp_path, messages_max=60_000) as instance:
        found = measure(instance, ledger, probe, FIGURES, SHORT)
    probe.close()
    ledger.check(0)
    assert [figure["name"] for figure in found] == ["lone", "batch"]
    assert all(figure["rate"] > 0 and figure["fdatasync"] > 0 for figure in found)
    assert set(found[0]["cpu_us"]) == {"queue.manager", "pool.writer", "clients"}
    assert json.loads(json.dumps(found)) == found
    text = report.rates_table(found) + report.details_table(found)
    assert "2+2: put to done" in text


def test_failure_leaves_no_process_and_no_ipc_object(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="on purpose"), running(tmp_path, 1000) as instance:
        ids = segment.read_ids(instance.paths)
        pids = instance.pid(MANAGER), instance.pid(POOL_WRITER)
        raise BenchError("on purpose")
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert ids is not None
    with pytest.raises(ManagerUnavailable):
        segment.AttachedIndex(instance.paths)
    with pytest.raises(sysv_ipc.ExistentialError):
        sysv_ipc.MessageQueue(ids.requests[0])


def test_primitives() -> None:
    assert round_trips(0.05) > 0
    assert checksum_rate(1024, 0.01) > 0
