"""Fixtures of the tests of pool.writer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.base import clock
from omq.storage import durable
from omq.storage.disk import Disk
from tests.unit.core.redo_world import QuietDisk
from tests.unit.services.pool_world import ManagerWorld


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ManagerWorld]:
    """A manager and a pool.writer in one process, with a clock that the test moves."""
    durable.use(QuietDisk())
    made = ManagerWorld(tmp_path / "spool")
    monkeypatch.setattr(clock, "monotonic_ns", lambda: made.signals.now_ns)
    yield made
    durable.use(Disk())
    made.close()
