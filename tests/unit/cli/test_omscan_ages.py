"""omscan and the age of what nobody names: a put under way has its container before its frame."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omq.base import clock
from omq.cli.operate.omscan import scan
from omq.storage import containers
from omq.storage.spool import create_spool

HOUR_S = 3600


@pytest.mark.parametrize(("age_s", "found"), [(2 * HOUR_S, True), (60, False),
                                              (-86400, False)])
def test_a_file_of_the_future_is_young(tmp_path: Path, age_s: int,
                                       found: bool) -> None:  # noqa: FBT001
    """The clock was set back since it was made."""
    paths = create_spool(tmp_path / "spool").paths
    reference, _, _ = containers.create(paths, [b"x" * 1000])
    (file,) = (path for path in paths.data.rglob("*") if path.is_file())
    when = clock.wall_ns() // clock.NS_PER_S - age_s
    os.utime(file, (when, when))
    names = [each.name for each in scan(paths, HOUR_S * clock.NS_PER_S) if each.name == reference]
    assert names == [reference] * found
