"""A queue that was cleared gives the disk back at once, not at the checkpoint of its time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from omq.base import clock
from omq.format.index import Counter
from omq.services.pool.following import PAUSE_NS, ROUNDS_MAX, ROUNDS_MIN, Hurry
from tests.process.instance import MANAGER, WRITER, Instance, instance
from tests.waiting import until

NEVER_S = 3600


@pytest.fixture
def late(tmp_path: Path) -> Iterator[Instance]:
    """No checkpoint is due while the test runs; bodies go to the store at once."""
    with instance(tmp_path) as made:
        made.settings(checkpoint_interval_s=1, journal_files_kept=0)
        yield made


def blocks(folder: Path, names: str = "*") -> int:
    total = 0
    for path in folder.rglob(names):
        with suppress(FileNotFoundError):  # it has gone meanwhile
            total += path.stat().st_blocks * 512
    return total


def test_clear_gives_the_disk_back_at_once(late: Instance) -> None:
    """Pool records and store files, with the next checkpoint an hour away; over a kill behind it
    nothing comes back."""
    late.start(WRITER, MANAGER)
    with late.connect() as c:
        c.put("B", b"stays")
        c.put_many("A", [b"x" * 4000] * 1500)
        until(lambda: blocks(late.paths.store) > 4_000_000, "bodies in the store")
    late.stop(WRITER)
    late.settings(checkpoint_interval_s=NEVER_S, journal_files_kept=0)
    late.start(WRITER)
    with late.connect() as c:
        before = blocks(late.paths.store), blocks(late.paths.msgpool, "*QP")
        assert c.queues.clear("A") == 1500
        until(lambda: blocks(late.paths.store) < before[0] // 10, "the store files to go")
        until(lambda: blocks(late.paths.msgpool, "*QP") < before[1] // 2, "the pool to shrink")
    late.kill()
    late.start()
    assert [message.body for message in late.drain("B")] == [b"stays"]
    assert late.drain("A") == []


class _Index:
    """What the manager says."""

    def __init__(self) -> None:
        self.said = {Counter.SPACE_WANTED: 0, Counter.DURABLE_LSN: 100}

    def counter(self, which: Counter) -> int:
        return self.said[which]


def test_one_hurry_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who clears without end has no checkpoints taken without end; what he wants is not lost."""
    now = 7 * PAUSE_NS
    monkeypatch.setattr(clock, "monotonic_ns", lambda: now)
    index, hurry = _Index(), Hurry()

    def due(*, pending: bool = False) -> bool:
        return hurry.is_due(index, pending=pending)  # type: ignore[arg-type]

    assert not due()
    index.said[Counter.SPACE_WANTED] = 120
    assert not due(), "it is not durable yet"
    index.said[Counter.DURABLE_LSN] = 120
    assert [due(pending=True) for _ in range(ROUNDS_MAX + 1)] == [True] * ROUNDS_MAX + [False]
    index.said |= {Counter.SPACE_WANTED: 130, Counter.DURABLE_LSN: 130}
    assert not due(), "one has ended just now"
    now += PAUSE_NS
    assert [due() for _ in range(ROUNDS_MIN + 2)] == [True] * (ROUNDS_MIN + 1) + [False]
    assert not due(pending=True)
