"""What all tests of the simulator share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from omq.storage import durable
from omq.storage.disk import Disk


@pytest.fixture(autouse=True)
def _real_disk_again() -> Iterator[None]:
    yield
    durable.use(Disk())
