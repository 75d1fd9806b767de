"""poolctrl: one slot is whole at any instant."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from omq.base.errors import DiskError, SpoolFull
from omq.format.findings import Kind
from omq.format.poolctrl import SLOT_BYTES, PoolControl
from omq.storage import durable
from omq.storage import poolctrl as control
from omq.storage.spool import SpoolInfo
from tests.unit.storage.world import BROKEN, FULL, use_faulty


@pytest.fixture
def first(info: SpoolInfo) -> PoolControl:
    return PoolControl(info.uuid, 1, 100, 1, 1, 4096, 7, 0, 0, {1: "ROUTER"})


def test_none_yet(info: SpoolInfo) -> None:
    assert control.load(info.paths) == (None, [])


def test_the_newest_counts(info: SpoolInfo, first: PoolControl) -> None:
    for generation in range(1, 6):
        control.store(info.paths, replace(first, generation=generation, lsn=100 * generation))
        found, findings = control.load(info.paths, settle=generation == 3)
        assert found is not None and found.lsn == 100 * generation
        assert [finding.kind for finding in findings] == ([Kind.END] if generation == 1 else [])


def test_a_torn_slot_leaves_the_one_before(info: SpoolInfo, first: PoolControl) -> None:
    control.store(info.paths, first)
    control.store(info.paths, replace(first, generation=2, lsn=200))
    fd = os.open(info.paths.msgpool / control.NAME, os.O_RDWR)
    os.pwrite(fd, b"\x55" * 64, 64)  # generation 2 lies in slot 0
    os.close(fd)
    found, findings = control.load(info.paths)
    assert found is not None and found.lsn == 100
    assert [(f.kind, f.file) for f in findings] == [(Kind.TORN, "poolctrl")]
    control.store(info.paths, replace(first, generation=2, lsn=250))
    found, findings = control.load(info.paths)
    assert found is not None and found.lsn == 250 and not findings


def test_the_first_slot_of_all_torn_is_no_damage_but_two_bad_ones_are(
        info: SpoolInfo, first: PoolControl) -> None:
    control.store(info.paths, first)  # generation 1 lies in slot 1
    path = info.paths.msgpool / control.NAME
    fd = os.open(path, os.O_RDWR)
    os.pwrite(fd, b"\x55" * 64, SLOT_BYTES)
    found, findings = control.load(info.paths)
    assert found is None and {f.kind for f in findings} == {Kind.END, Kind.TORN}
    os.pwrite(fd, b"\x55" * 64, 0)
    os.close(fd)
    found, findings = control.load(info.paths)
    assert found is None and {f.kind for f in findings} == {Kind.CORRUPT}


def test_a_checkpoint_never_touches_the_slot_that_counts(
        info: SpoolInfo, first: PoolControl) -> None:
    control.store(info.paths, first)
    path = info.paths.msgpool / control.NAME
    before = path.read_bytes()
    control.store(info.paths, replace(first, generation=2))
    after = path.read_bytes()
    assert before[SLOT_BYTES:] == after[SLOT_BYTES:]
    assert before[:SLOT_BYTES] != after[:SLOT_BYTES]
    assert len(after) == 2 * SLOT_BYTES


def test_it_is_synced(info: SpoolInfo, first: PoolControl) -> None:
    control.store(info.paths, first)
    disk = use_faulty()
    control.store(info.paths, replace(first, generation=2))
    assert disk.calls == ["write poolctrl", "fdatasync poolctrl"]
    disk.failures["fdatasync"] = BROKEN
    with pytest.raises(DiskError):
        control.store(info.paths, replace(first, generation=3))


def test_a_full_disk_at_the_first_checkpoint(info: SpoolInfo, first: PoolControl) -> None:
    use_faulty(write=FULL)
    with pytest.raises(SpoolFull):
        control.store(info.paths, first)
    assert durable.latched() is None
    assert control.load(info.paths) == (None, [])
