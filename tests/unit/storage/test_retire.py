"""Retirement of journal files: in one of the two directories at every instant."""

from __future__ import annotations

import pytest

from omq.base import fault
from omq.base.errors import DiskError
from omq.storage.journal import file_name, numbers_in
from omq.storage.journal_retire import retirable, retire
from omq.storage.spool import SpoolInfo
from tests.unit.storage.world import BROKEN, use_faulty


@pytest.fixture
def info(info: SpoolInfo) -> SpoolInfo:
    for number in (3, 4, 10):
        (info.paths.journal / file_name(number)).write_bytes(b"journal %d" % number)
    return info


def test_which(info: SpoolInfo) -> None:
    assert retirable(info.paths, 10) == [3, 4]
    assert retirable(info.paths, 0) == retirable(info.paths, -5) == []


def test_kept_files_go_to_the_archive_unchanged(info: SpoolInfo) -> None:
    assert retire(info.paths, 3, keep=True)
    assert (info.paths.archive / file_name(3)).read_bytes() == b"journal 3"
    assert numbers_in(info.paths.journal) == [4, 10]


def test_both_directories_are_synced(info: SpoolInfo) -> None:
    disk = use_faulty()
    retire(info.paths, 3, keep=True)
    assert disk.calls == [f"rename {file_name(3)}", "dirsync archive", "dirsync journal"]


def test_others_are_removed(info: SpoolInfo) -> None:
    disk = use_faulty()
    assert retire(info.paths, 3, keep=False)
    assert disk.calls == [f"unlink {file_name(3)}", "dirsync journal"]
    assert numbers_in(info.paths.archive) == []


@pytest.mark.parametrize("keep", [True, False])
def test_a_file_that_is_gone_is_no_error(info: SpoolInfo, keep: bool) -> None:  # noqa: FBT001
    assert not retire(info.paths, 7, keep=keep)


@pytest.mark.parametrize("point", ["journal.retire", "archive.before_rename",
                                   "durable.before_rename", "durable.after_rename"])
def test_it_is_never_in_neither(info: SpoolInfo, point: str) -> None:
    fault.arm(f"{point}:eio:1")
    with pytest.raises(DiskError):
        retire(info.paths, 3, keep=True)
    there = numbers_in(info.paths.journal) + numbers_in(info.paths.archive)
    assert there.count(3) == 1


def test_a_failed_sync_is_an_error(info: SpoolInfo) -> None:
    disk = use_faulty()

    def broken(path: str) -> None:
        raise OSError(BROKEN, "no")

    disk.sync_directory = broken  # type: ignore[method-assign]
    with pytest.raises(DiskError):
        retire(info.paths, 3, keep=True)
