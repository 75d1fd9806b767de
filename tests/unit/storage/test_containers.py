"""Containers, and item references that try to leave the spool."""

from __future__ import annotations

import errno
import multiprocessing
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omq.base.checksum import crc32c
from omq.base.errors import BadItemRef, BodyUnavailable, DiskError, SpoolFull
from omq.storage import containers, disk, durable
from omq.storage.containers import create, new_item_ref, open_item, read_item, relative_path, remove
from omq.storage.spool import SpoolInfo
from tests.unit.storage.world import BROKEN, FULL, use_faulty

KINDS = ("openat2", "components")


@pytest.fixture(params=KINDS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of opening beneath a directory; they must refuse the same."""
    if request.param == "components":
        def refuse(*_: object) -> int:
            raise OSError(errno.ENOSYS, "no openat2")
        monkeypatch.setattr(disk, "_openat2", refuse)
    return str(request.param)


def test_create_and_read(info: SpoolInfo, way: str) -> None:
    body = os.urandom(300_000)
    ref, size, crc = create(info.paths, [body[:100_000], body[100_000:], b""])
    assert (size, crc) == (len(body), crc32c(body))
    assert read_item(info.paths, ref, size) == body
    assert ref.startswith("~/data/") and (info.paths.root / ref[2:]).is_file()


def test_it_is_durable_before_it_is_named(info: SpoolInfo) -> None:
    faulty = use_faulty()
    ref, _, _ = create(info.paths, [b"x"])
    directory, name = ref.split("/")[-2:]
    assert faulty.calls == [f"mkdir {directory}", "dirsync data", f"write {name}", f"fsync {name}",
                            f"dirsync {directory}", "dirsync data"]


@pytest.mark.parametrize(("call", "number", "error"), [
    ("write", FULL, SpoolFull), ("fsync", FULL, SpoolFull), ("mkdir", FULL, SpoolFull),
    ("write", BROKEN, DiskError), ("fsync", BROKEN, DiskError), ("dirsync", BROKEN, DiskError)])
def test_a_failed_container_leaves_nothing(info: SpoolInfo, call: str, number: int,
                                           error: type[Exception]) -> None:
    faulty = use_faulty(**{call: number})
    with pytest.raises(error):
        create(info.paths, [b"x"])
    faulty.failures.clear()
    if error is SpoolFull:
        assert not [path for path in info.paths.data.rglob("*") if path.is_file()]
        create(info.paths, [b"x"])


@pytest.mark.parametrize(("number", "error"), [(FULL, SpoolFull), (BROKEN, DiskError)])
def test_a_refused_file_in_a_new_directory_is_an_error_of_ours(
        info: SpoolInfo, monkeypatch: pytest.MonkeyPatch, number: int, error: type[Exception]
        ) -> None:
    inner, opened = durable.current(), disk.Disk.open_beneath

    def refuse(root: str, relative: str, flags: int, mode: int = 0o640) -> int:
        if os.path.isdir(os.path.dirname(f"{root}/{relative}")):
            raise OSError(number, os.strerror(number))
        return opened(inner, root, relative, flags, mode)

    monkeypatch.setattr(inner, "open_beneath", refuse)
    with pytest.raises(error):
        create(info.paths, [b"x"])


def test_a_source_that_fails_leaves_nothing(info: SpoolInfo) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"x"
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        create(info.paths, chunks())
    assert not [path for path in info.paths.data.rglob("*") if path.is_file()]


def test_names_are_unique(info: SpoolInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "DIRECTORY_ITEMS", 10)
    refs = [create(info.paths, [b"x"])[0] for _ in range(35)]
    assert len(set(refs)) == 35
    assert len({ref.split("/")[2] for ref in refs}) >= 4
    taken = iter([refs[0], refs[1], "~/data/0000000/000000z"])
    monkeypatch.setattr(containers, "new_item_ref", lambda: next(taken))
    assert create(info.paths, [b"x"])[0] == "~/data/0000000/000000z"


def _child_ref(pipe: object) -> None:
    pipe.send(new_item_ref())  # type: ignore[attr-defined]


def test_a_forked_child_has_names_of_its_own() -> None:
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    here = new_item_ref()
    child = context.Process(target=_child_ref, args=(sender,))
    child.start()
    there = receiver.recv()
    child.join()
    assert there != new_item_ref() and there.split("/")[2] != here.split("/")[2]


@pytest.mark.parametrize("ref", [
    "", "~", "~/data/0000005/000084u\n", "~/data/0000005/../../../etc/passwd", "/etc/passwd",
    "~/data/0000005/000084U", "~/data/0000005", "~/data/0000005/000084u/x",
    "~/data/../data/0000001", "~/data/0000005/000084u\0", "~/temp/../msgpool/0QP",
    "~/msgpool/0000001", "data/0000005/000084u",
    "~/data/0000005//000084u", "~/data/000000٣/000084u", "x" * 4096])
def test_the_grammar_is_strict(info: SpoolInfo, ref: str) -> None:
    for action in (relative_path, lambda r: open_item(info.paths, r),
                   lambda r: remove(info.paths, r)):
        with pytest.raises(BadItemRef):
            action(ref)


@given(st.text(max_size=60))
def test_hostile_references_never_pass(ref: str) -> None:
    with pytest.raises(BadItemRef):
        relative_path(ref)


def test_temp_references(info: SpoolInfo) -> None:
    (info.paths.temp / "000084u").write_bytes(b"temporary")
    assert read_item(info.paths, "~/temp/000084u", 9) == b"temporary"
    assert remove(info.paths, "~/temp/000084u") and info.paths.temp.is_dir()


REF = "~/data/0000005/000084u"


@pytest.fixture
def item(info: SpoolInfo) -> Path:
    path = info.paths.root / REF[2:]
    path.parent.mkdir()
    return path


@pytest.mark.parametrize("kind", ["symlink", "hard link", "fifo", "directory", "device link"])
def test_only_a_regular_file_with_one_name(info: SpoolInfo, item: Path, way: str, kind: str
                                           ) -> None:
    secret = info.paths.root / "secret"
    secret.write_bytes(b"secret")
    make: dict[str, Callable[[], object]] = {
        "symlink": lambda: item.symlink_to(secret),
        "hard link": lambda: item.hardlink_to(secret), "fifo": lambda: os.mkfifo(item),
        "directory": item.mkdir, "device link": lambda: item.symlink_to("/dev/zero")}
    make[kind]()
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(BadItemRef):
        open_item(info.paths, REF)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("target", ["outside", "inside"])
def test_a_linked_directory_is_refused(info: SpoolInfo, tmp_path: Path, way: str, target: str
                                       ) -> None:
    elsewhere = tmp_path / "elsewhere" if target == "outside" else info.paths.data / "0000006"
    elsewhere.mkdir()
    (elsewhere / "000084u").write_bytes(b"x")
    (info.paths.data / "0000005").symlink_to(elsewhere)
    with pytest.raises((BadItemRef, FileNotFoundError)):
        open_item(info.paths, REF)
    assert not remove(info.paths, REF)
    assert (elsewhere / "000084u").exists()


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "data/../../secret", "data/link/x",
                                  "nul\0byte"])
def test_open_beneath_cannot_leave(info: SpoolInfo, way: str, path: str) -> None:
    (info.paths.root.parent / "secret").write_bytes(b"secret")
    (info.paths.data / "link").symlink_to("/etc")
    with pytest.raises(OSError) as caught:
        durable.current().open_beneath(str(info.paths.root), path, os.O_RDONLY)
    assert caught.value.errno in (errno.EXDEV, errno.ELOOP, errno.ENOTDIR, errno.EINVAL)


def test_a_missing_container(info: SpoolInfo, way: str) -> None:
    with pytest.raises(FileNotFoundError):
        open_item(info.paths, REF)
    with pytest.raises(BodyUnavailable):
        read_item(info.paths, REF, 5, 77)
    assert not remove(info.paths, REF)


@pytest.mark.parametrize("size", [0, 4, 6])
def test_a_container_of_another_length(info: SpoolInfo, item: Path, size: int) -> None:
    item.write_bytes(b"12345")
    with pytest.raises(BodyUnavailable):
        read_item(info.paths, REF, size)


def test_remove_takes_the_empty_directory_along(info: SpoolInfo, monkeypatch: pytest.MonkeyPatch
                                                ) -> None:
    monkeypatch.setattr(containers, "_names", containers._Names())  # far from a new directory
    first, second = (create(info.paths, [b"x"])[0] for _ in range(2))
    directory = (info.paths.root / first[2:]).parent
    assert (info.paths.root / second[2:]).parent == directory
    assert remove(info.paths, first) and directory.is_dir()
    assert remove(info.paths, second, sync=False)
    assert not directory.exists()
    assert not remove(info.paths, second)
    assert create(info.paths, [b"x"])[1] == 1, "the directory is made again"
