"""Fixtures of the process tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process import operator_world
from tests.process.instance import Instance, instance


@pytest.fixture
def omq_instance(tmp_path: Path) -> Iterator[Instance]:
    """An instance that must end consistent; nothing of it is started yet."""
    with instance(tmp_path) as made:
        yield made


@pytest.fixture
def live(tmp_path: Path) -> Iterator[operator_world.Instance]:
    """A running instance for the operator's tools."""
    made = operator_world.Instance(tmp_path / "spool")
    made.start()
    yield made
    made.end()
