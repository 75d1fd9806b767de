"""An engine with its journal and pool, on a disk that can lose writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omq.storage import durable
from tests.model.disk import LossyDisk
from tests.model.driver import rules
from tests.model.instance import Instance

Make = Callable[[Path], Instance]


@pytest.fixture
def make_instance() -> Make:
    """Of what kind it is; modules have their own."""
    return lambda spool: Instance(spool, rules())


@pytest.fixture
def instance(tmp_path: Path, make_instance: Make) -> Iterator[Instance]:
    disk = LossyDisk()
    before = durable.use(disk)
    made = make_instance(tmp_path / "spool")
    made.start()
    yield made
    disk.die(lambda count: count)
    durable.use(before)
