"""A spool in a scratch folder, and no error latched before or after a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.base import fault
from omq.storage import durable
from omq.storage.disk import Disk
from omq.storage.spool import SpoolInfo, create_spool


@pytest.fixture(autouse=True)
def _fresh_disk() -> Iterator[None]:
    durable.use(Disk())
    yield
    durable.use(Disk())
    fault.arm("")


@pytest.fixture
def info(tmp_path: Path) -> SpoolInfo:
    return create_spool(tmp_path / "spool")
