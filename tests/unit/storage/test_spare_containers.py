"""Containers made ahead: storage.spare_containers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.base import clock
from omq.base.errors import SpoolFull
from omq.base.paths import SpoolPaths
from omq.storage import containers, durable
from omq.storage.disk import Disk
from omq.storage.spare_containers import AGE_S_MAX, SpareContainers
from omq.storage.spool import create_spool

BODY = b"large" * 1000


class Counting(Disk):
    """The real disk; what was synced, and a full one."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []
        self.left = 1 << 30

    def fsync(self, fd: int) -> None:
        self.synced.append("file")
        super().fsync(fd)

    def sync_directory(self, path: str) -> None:
        self.synced.append("directory")
        super().sync_directory(path)

    def open_beneath(self, root: str, relative: str, flags: int, mode: int = 0o600) -> int:
        if flags & os.O_CREAT:
            self.left -= 1
            if self.left < 0:
                raise OSError(28, "No space left on device")
        return super().open_beneath(root, relative, flags, mode)


@pytest.fixture
def disk() -> Iterator[Counting]:
    made = Counting()
    before = durable.use(made)
    yield made
    durable.use(before)


@pytest.fixture
def paths(tmp_path: Path, disk: Counting) -> SpoolPaths:
    return create_spool(tmp_path / "spool").paths


@pytest.fixture
def spares(paths: SpoolPaths) -> Iterator[SpareContainers]:
    made = SpareContainers(paths)
    yield made
    made.close()


def create(paths: SpoolPaths, spares: SpareContainers) -> str:
    ref, size, _ = containers.create(paths, [BODY], spares)
    assert size == len(BODY) and containers.read_item(paths, ref, size) == BODY
    return ref


def there(paths: SpoolPaths) -> dict[str, int]:
    """Bytes of all containers by their reference."""
    return {f"~/{path.relative_to(paths.root)}": path.stat().st_size
            for path in paths.data.glob("*/*")}


def test_one_body_pays_for_no_other(paths: SpoolPaths, spares: SpareContainers) -> None:
    ref = create(paths, spares)
    assert there(paths) == {ref: len(BODY)}


def test_many_bodies_need_one_sync_each(paths: SpoolPaths, spares: SpareContainers, disk: Counting
                                        ) -> None:
    refs = [create(paths, spares) for _ in range(16)]
    disk.synced.clear()
    refs += [create(paths, spares) for _ in range(16)]
    assert disk.synced.count("file") == 16 and disk.synced.count("directory") <= 2
    assert len(set(refs)) == 32
    assert {ref for ref, size in there(paths).items() if size} == set(refs)


def test_a_name_is_synced_before_it_is_used(paths: SpoolPaths, spares: SpareContainers,
                                            disk: Counting) -> None:
    create(paths, spares)
    disk.synced.clear()
    create(paths, spares)
    assert disk.synced == ["directory", "directory", "file"]


def test_what_is_not_used_goes_at_the_end(paths: SpoolPaths, spares: SpareContainers) -> None:
    refs = {create(paths, spares) for _ in range(9)}
    assert len(there(paths)) > 9
    spares.close()
    assert set(there(paths)) == refs
    refs.add(create(paths, spares))  # and it can still be used
    assert refs <= set(there(paths))


def test_what_is_old_is_not_used(paths: SpoolPaths, spares: SpareContainers,
                                 monkeypatch: pytest.MonkeyPatch) -> None:
    """omscan may be about to remove it."""
    for _ in range(5):
        create(paths, spares)
    old = {ref for ref, size in there(paths).items() if not size}
    assert old
    now = clock.monotonic_ns()
    monkeypatch.setattr(clock, "monotonic_ns",
                        lambda: now + (AGE_S_MAX + 1) * 1_000_000_000)
    assert create(paths, spares) not in old
    assert not old & set(there(paths))


def test_one_that_is_gone_or_changed_is_passed_over(paths: SpoolPaths, spares: SpareContainers
                                                    ) -> None:
    for _ in range(9):
        create(paths, spares)
    first, second, third, *_ = reversed(spares._refs)
    (paths.root / containers.relative_path(first)).unlink()
    (paths.root / containers.relative_path(second)).write_bytes(b"x")
    os.link(paths.root / containers.relative_path(third), paths.data / "other")
    assert create(paths, spares) not in (first, second, third)


def test_a_child_leaves_them_to_its_parent(paths: SpoolPaths, spares: SpareContainers) -> None:
    for _ in range(5):
        create(paths, spares)
    ours = {ref for ref, size in there(paths).items() if not size}
    child = os.fork()
    if not child:
        code = 1
        try:
            code = int(create(paths, spares) in ours)
            spares.close()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert ours <= set(there(paths))


def test_a_full_disk_leaves_none(paths: SpoolPaths, spares: SpareContainers, disk: Counting
                                 ) -> None:
    """In the middle of making them: those that are there go, and nothing latches."""
    refs = {create(paths, spares) for _ in range(3)}
    spares._remove()
    disk.left = 1
    with pytest.raises(SpoolFull):
        create(paths, spares)
    assert durable.latched() is None and set(there(paths)) == refs
    disk.left = 1 << 30
    create(paths, spares)
