"""One spool with a history, made once; each test damages a copy of its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from omq.base.paths import SpoolPaths
from omq.storage import durable
from omq.storage.disk import Disk
from tests.recovery.spool import Spool
from tests.storage_files import files_of_the_test
from tests.unit.core.redo_world import Known, QuietDisk

__all__ = ["files_of_the_test"]


@dataclass(frozen=True)
class Dead:
    """A spool whose manager is gone, and what a start must find in it."""

    root: Path
    paths: SpoolPaths
    uuid: bytes
    known: Known
    end_lsn: int


@pytest.fixture(scope="session")
def master(tmp_path_factory: pytest.TempPathFactory) -> Dead:
    before = durable.use(QuietDisk())
    try:
        root = tmp_path_factory.mktemp("recovery") / "spool"
        made = Spool(root)
        made.life()
        end = made.lsn
        return Dead(root, made.paths, made.info.uuid, made.stop(), end)
    finally:
        durable.use(before)


@pytest.fixture
def dead(master: Dead, tmp_path: Path) -> Iterator[Dead]:
    root = tmp_path / "spool"
    shutil.copytree(master.root, root)
    durable.use(QuietDisk())
    yield Dead(root, SpoolPaths(root), master.uuid, master.known, master.end_lsn)
    durable.use(Disk())
