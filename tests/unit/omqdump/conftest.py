"""A spool with known contents, in the original's time zone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.core.index.tables import Tables
from omq.storage.spool import SpoolInfo, create_spool
from tests.unit.omqdump import world


@pytest.fixture(autouse=True)
def _london(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/London")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def info(tmp_path: Path) -> SpoolInfo:
    """A spool with pool files and control file, and no index."""
    info = create_spool(tmp_path / "spool")
    world.put_payload(info.paths, world.container_payload())
    world.fill_pool(info)
    return info


@pytest.fixture
def running(info: SpoolInfo) -> Iterator[Tables]:
    """The same spool with the index of a living manager."""
    with world.indexed(info) as tables:
        world.fill(tables)
        yield tables
