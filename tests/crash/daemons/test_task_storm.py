"""10,000 tasks of Celery, chains and chords among them, and of dramatiq, while workers and the
queue manager die by kill -9: each is done. Part of `make crash` (OMQ_CRASH_LONG=1); the short ones
are in tests/process/test_celery.py and test_dramatiq.py."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.process import test_celery, test_dramatiq
from tests.process.instance import MANAGER, WRITER, Instance, instance
from tests.process.task_storm import CELERY, DRAMATIQ, Kind, storm

COUNT = int(os.environ.get("OMQ_STORM_TASKS", "10000"))
KILLS = 40

pytestmark = pytest.mark.skipif(
    not os.environ.get("OMQ_CRASH_LONG"),
    reason="10,000 tasks are part of `make crash` (OMQ_CRASH_LONG=1)")


WORKERS: dict[str, tuple[Kind, Callable[[Instance], Any]]] = {
    "prefork": (CELERY, lambda made: test_celery.worker(made, "prefork")),
    "threads": (CELERY, lambda made: test_celery.worker(made, "threads")),
    "dramatiq": (DRAMATIQ, test_dramatiq.worker)}


@pytest.mark.parametrize("name", WORKERS)
def test_no_task_is_lost(tmp_path: Path, name: str) -> None:
    kind, worker = WORKERS[name]
    with instance(tmp_path) as made:
        made.start(MANAGER, WRITER)
        made.ready()
        again = storm(made, kind, lambda: worker(made), tmp_path / "noted", COUNT, KILLS, 1)
        print(f"{name}: {COUNT} tasks, {KILLS} kills, nothing lost, {again} were begun twice")
