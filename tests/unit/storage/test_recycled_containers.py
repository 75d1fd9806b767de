"""Containers that are used again: storage.recycled_containers."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import os
import socket
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omq.base import clock
from omq.base.errors import SpoolFull
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.cli.operate import omscan
from omq.cli.operate.omscan import scan
from omq.services.standby.base_had import Had
from omq.services.standby.base_sending import _containers
from omq.storage import containers, durable, recycled_containers
from omq.storage.disk import Disk
from omq.storage.recycled_containers import (
    AGE_S_MAX,
    LABEL_BYTES,
    OFFERS_MAX,
    PREFIX,
    Recycler,
    Taker,
    is_spare,
    offered,
    offers,
    resting,
)
from omq.storage.spare_containers import SpareContainers
from omq.storage.spool import create_spool
from omqtools.omqrecover.body_survey import orphans
from tests.unit.storage.world import FULL, FaultyDisk

SIZE = 5000
_PROT_READ = 1
SETTINGS = replace(Settings(), disk_reserve_bytes=0, inode_reserve=0, journal_file_bytes=4096,
                   recycled_bytes_max=1 << 20)


@pytest.fixture
def paths(tmp_path: Path) -> Iterator[SpoolPaths]:
    made = create_spool(tmp_path / "spool").paths
    yield made
    durable.use(Disk())


@pytest.fixture
def recycler(paths: SpoolPaths) -> Recycler:
    made = Recycler(paths, SETTINGS)
    made.open()
    return made


def body(letter: str, size: int = SIZE) -> bytes:
    return (letter.encode() * size)[:size]


def put(paths: SpoolPaths, content: bytes) -> str:
    """As a client that has no empty ones made ahead."""
    ref, size, _ = containers.create(paths, [content[:1000], content[1000:]],
                                     SpareContainers(paths), len(content))
    assert containers.read_item(paths, ref, size) == content
    return ref


def path(paths: SpoolPaths, ref: str) -> Path:
    return containers.path_of(paths, ref)


def node(paths: SpoolPaths, ref: str) -> int:
    return path(paths, ref).stat().st_ino


def files(paths: SpoolPaths) -> list[Path]:
    return sorted(paths.data.glob("*/*"))


def test_the_next_body_is_written_over_the_one_that_has_ended(paths: SpoolPaths,
                                                              recycler: Recycler) -> None:
    first = put(paths, body("a"))
    number = node(paths, first)
    assert recycler.end(first)
    assert not path(paths, first).exists(), "who looks for it finds none"
    (offer,) = offers(paths)
    assert offer.ref != first and offered(paths) == {offer.ref}
    second = put(paths, body("b"))
    assert second == offer.ref and node(paths, second) == number
    assert not offers(paths) and not os.listdir(paths.spares)
    assert stat.S_IMODE(path(paths, second).stat().st_mode) == 0o600
    assert not recycler.end(first), "its name does not come back"
    assert containers.read_item(paths, second, SIZE) == body("b")


def test_its_new_name_is_on_the_disk_before_it_is_offered(paths: SpoolPaths, recycler: Recycler
                                                          ) -> None:
    first = put(paths, body("a"))
    disk = FaultyDisk()
    durable.use(disk)
    recycler.end(first)
    offer = next(iter(offers(paths)))
    item, folder, old = offer.ref.rpartition("/")[2], *first.split("/")[2:]
    assert disk.calls == [f"write {old}", f"fdatasync {old}", f"rename {item}", f"dirsync {folder}",
                          f"create {offer.name}"]


def test_one_sync_of_the_data_alone_is_enough(paths: SpoolPaths, recycler: Recycler) -> None:
    recycler.end(put(paths, body("a")))
    disk = FaultyDisk()
    durable.use(disk)
    (offer,) = offers(paths)
    put(paths, body("b"))
    item = offer.ref.rpartition("/")[2]
    assert disk.calls == [f"unlink {offer.name}", f"write {item}", f"fdatasync {item}"]


@pytest.mark.parametrize(("size", "used"), [(SIZE // 2 - 1, False), (SIZE // 2, True),
                                            (SIZE - 1, True), (SIZE + 1, True), (2 * SIZE, True),
                                            (2 * SIZE + 1, False), (LABEL_BYTES - 1, False)])
def test_a_body_of_about_its_size_takes_it_and_is_exactly_as_long(
        paths: SpoolPaths, recycler: Recycler, size: int, used: bool) -> None:  # noqa: FBT001
    recycler.end(put(paths, body("a")))
    (offer,) = offers(paths)
    disk = FaultyDisk()
    durable.use(disk)
    ref = put(paths, body("b", size))
    assert (ref == offer.ref) == used and path(paths, ref).stat().st_size == size
    assert f"fsync {ref.rpartition('/')[2]}" in disk.calls, "its new length is synced"


def test_the_nearest_is_taken(paths: SpoolPaths, recycler: Recycler) -> None:
    refs = [put(paths, body("a", size)) for size in (4000, 5100, 7000)]
    numbers = [node(paths, ref) for ref in refs]
    for ref in refs:
        recycler.end(ref)
    assert node(paths, put(paths, body("b"))) == numbers[1]
    assert node(paths, put(paths, body("b"))) == numbers[0]


def test_of_two_takers_one_gets_it(paths: SpoolPaths, recycler: Recycler) -> None:
    one, other = Taker(paths), Taker(paths)
    for each in [put(paths, body("a")) for _ in range(3)]:
        recycler.end(each)
    tried = [taker.take(SIZE) for taker in (one, other, one, other)]
    taken = [each for each in tried if each is not None]
    assert len({ref for ref, _, _ in taken}) == len(taken) == 3
    for _, file, _ in taken:
        file.close()


@pytest.mark.parametrize("way", ["open", "sent"])
def test_what_somebody_has_open_is_removed(paths: SpoolPaths, recycler: Recycler, way: str) -> None:
    """A reader, a sender to a standby, a tool: it gets what it got before, a file that ends."""
    ref = put(paths, body("a"))
    held = os.open(path(paths, ref), os.O_RDONLY)
    here, there = socket.socketpair()
    if way == "sent":  # nobody has taken it yet
        socket.send_fds(here, [b"x"], [held])
        os.close(held)
    assert recycler.end(ref)
    assert not offers(paths) and not files(paths)
    if way == "sent":
        _, (held,), _, _ = socket.recv_fds(there, 1, 1)
    assert os.fstat(held).st_size == 0
    for each in (held, here.detach(), there.detach()):
        os.close(each)


@pytest.mark.parametrize("flags", [1, 2])  # MAP_SHARED, MAP_PRIVATE
def test_what_somebody_has_mapped_is_removed(paths: SpoolPaths, recycler: Recycler, flags: int
                                             ) -> None:
    """A mapping needs no descriptor any more."""
    library = ctypes.CDLL(None)
    library.mmap.restype, size = ctypes.c_void_p, ctypes.c_size_t(SIZE)
    ref = put(paths, body("a"))
    held = os.open(path(paths, ref), os.O_RDONLY)
    found = ctypes.c_void_p(library.mmap(None, size, _PROT_READ, flags, held, ctypes.c_long(0)))
    os.close(held)
    assert ref[2:].rpartition("/")[2] in Path("/proc/self/maps").read_text()
    try:
        assert recycler.end(ref) and not offers(paths) and not files(paths)
    finally:
        library.munmap(found, size)


def test_nothing_is_written_into_what_somebody_has_open(paths: SpoolPaths, recycler: Recycler
                                                        ) -> None:
    """Its reader finds that it has ended, not bytes that are none of its body."""
    ref = put(paths, body("a"))
    disk = FaultyDisk()
    with path(paths, ref).open("rb"):
        durable.use(disk)
        recycler.end(ref)
    assert not [call for call in disk.calls if call.startswith("write")]


def test_one_that_is_given_out_at_the_last_moment_is_removed(paths: SpoolPaths, recycler: Recycler
                                                              ) -> None:
    """Between the look at its mode and the lease; nobody has it open any more."""
    for change in (lambda path: path.chmod(0o1600), lambda path: os.link(path, paths.root / "x")):
        ref = put(paths, body("a"))

        class Late(Disk):
            def lease(self, fd: int) -> None:
                change(path(paths, ref))  # noqa: B023
                super().lease(fd)

        durable.use(Late())
        assert recycler.end(ref) and not offers(paths) and not files(paths)
        durable.use(Disk())
    assert (paths.root / "x").read_bytes() == body("a")


def test_who_found_the_name_and_opens_too_late_has_nothing(paths: SpoolPaths, recycler: Recycler
                                                           ) -> None:
    """It was not seen to be open, and has become another body's."""
    ref = put(paths, body("a"))

    class Slow(Disk):
        def open_beneath(self, root: str, relative: str, flags: int, mode: int = 0o600) -> int:
            durable.use(Disk())
            recycler.end(ref)
            return os.open(path(paths, put(paths, body("b"))), flags)

    durable.use(Slow())
    with pytest.raises(FileNotFoundError):
        containers.open_item(paths, ref)
    assert len(files(paths)) == 1


def test_who_opens_a_body_waits_for_a_lease_on_it(paths: SpoolPaths) -> None:
    """Of a file server that has it open, or of idel.server, which looks whether it is a spare."""
    ref = put(paths, body("a"))
    held = os.open(path(paths, ref), os.O_RDWR)

    class Waits(Disk):
        def open_beneath(self, root: str, relative: str, flags: int, mode: int = 0o600) -> int:
            if not flags & os.O_NONBLOCK:
                self.release(held)
            return super().open_beneath(root, relative, flags, mode)

    durable.use(disk := Waits())
    disk.lease(held)
    assert containers.read_item(paths, ref, SIZE) == body("a")
    disk.lease(held)
    assert sent(paths) == {ref}
    os.close(held)


def test_one_that_is_opened_at_the_last_moment_is_removed(paths: SpoolPaths, recycler: Recycler
                                                          ) -> None:
    """By who had found its old name when it went."""
    ref = put(paths, body("a"))
    opened: list[int] = []

    class Late(Disk):
        def sync_directory(self, path: str) -> None:
            super().sync_directory(path)
            if not opened:
                (name,) = os.listdir(path)
                opened.append(os.open(f"{path}/{name}", os.O_RDONLY))

    durable.use(Late())
    assert recycler.end(ref) and not offers(paths) and not files(paths)
    assert os.fstat(opened[0]).st_size == 0
    os.close(opened[0])


def test_what_was_given_out_is_removed_when_nobody_has_it_open(paths: SpoolPaths,
                                                               recycler: Recycler) -> None:
    """A pipe has pages of it: they do not become another body's."""
    ref = put(paths, body("a", 4096))
    file = containers.open_item(paths, ref)
    containers.give_out(file)
    containers.give_out(file)
    source, sink = os.pipe()
    assert os.splice(file.fd, sink, 4096, 0) == 4096
    file.close()
    assert recycler.end(ref) and not offers(paths) and not files(paths)
    put(paths, body("b", 4096))
    assert os.read(source, 4096) == body("a", 4096)
    os.close(source)
    os.close(sink)


def test_one_of_another_mode_or_with_two_names_is_removed(paths: SpoolPaths, recycler: Recycler
                                                          ) -> None:
    wide, twice = put(paths, body("a")), put(paths, body("b"))
    path(paths, wide).chmod(0o644)
    os.link(path(paths, twice), paths.root / "kept")
    recycler.end(wide)
    recycler.end(twice)
    assert not offers(paths) and not files(paths)
    assert (paths.root / "kept").read_bytes() == body("b"), "its other name is nobody's business"


def test_one_of_another_user_is_left_to_who_removes(paths: SpoolPaths, recycler: Recycler,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    ref = put(paths, body("a"))
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    recycler.end(ref)
    assert not offers(paths) and not files(paths)


def stale(paths: SpoolPaths, ref: str, size: int = SIZE) -> None:
    """The offer of a container that has become a message's, as a power cut may bring it back."""
    _, _, folder, item = ref.split("/")
    now_s = clock.wall_ns() // clock.NS_PER_S
    (paths.spares / f"{size}.{now_s}.{'0' * 16}.{folder}.{item}").touch()


def test_an_offer_that_a_power_cut_brings_back_costs_no_message(paths: SpoolPaths,
                                                                recycler: Recycler) -> None:
    named, other = put(paths, body("a")), put(paths, body("b"))
    stale(paths, named)
    assert put(paths, body("c")) not in (named, other)
    assert not offers(paths)
    stale(paths, named)
    stale(paths, other, SIZE + 7)
    assert offered(paths) == set() and {name for name in sent(paths) if name == named}
    Recycler(paths, SETTINGS).open()
    assert not offers(paths)
    assert containers.read_item(paths, named, SIZE) == body("a")
    assert containers.read_item(paths, other, SIZE) == body("b")


def sent(paths: SpoolPaths) -> set[str]:
    """The containers that the copy for a new standby has."""
    return {bytes(piece.payload[: containers.REF_BYTES]).decode()
            for piece in _containers(paths, 1, Had())}


def test_a_new_standby_is_sent_no_spares(paths: SpoolPaths, recycler: Recycler) -> None:
    stays, ended = put(paths, body("a")), put(paths, body("b"))
    recycler.end(ended)
    assert sent(paths) == {stays}


def test_a_file_that_becomes_a_spare_is_not_sent(paths: SpoolPaths, recycler: Recycler) -> None:
    """While it becomes one it opens for nobody else; who waits for it finds it gone."""
    ref, stays = put(paths, body("a")), put(paths, body("b"))

    class Asked(Disk):
        def open(self, path: str, flags: int, mode: int = 0o600) -> int:
            if path.endswith(ref[2:]):
                recycler.end(ref)
                raise BlockingIOError(11, "Resource temporarily unavailable")
            return super().open(path, flags, mode)

    durable.use(Asked())
    assert sent(paths) == {stays}


def test_they_rest_within_their_bounds(paths: SpoolPaths) -> None:
    recycler = Recycler(paths, replace(SETTINGS, recycled_bytes_max=3 * SIZE))
    recycler.open()
    refs = [put(paths, body("a")) for _ in range(5)]
    for each in refs[:3]:
        assert recycler.end(each)
    kept = offers(paths)
    for each in refs[3:]:
        assert recycler.end(each)
    assert offers(paths) == kept, "nothing is gained by another one of its size"
    assert resting(paths) == (3, 3 * SIZE)
    recycler.end(put(paths, body("a", 4 * SIZE)))
    assert len(offers(paths)) == 3 == len(files(paths))
    recycler.give_back()
    assert not offers(paths) and not files(paths)


def test_their_number_is_bounded(paths: SpoolPaths, recycler: Recycler) -> None:
    for each in [put(paths, body("a", 100)) for _ in range(OFFERS_MAX + 2)]:
        recycler.end(each)
    assert len(offers(paths)) == OFFERS_MAX == len(files(paths))


def test_those_of_another_size_make_room(paths: SpoolPaths) -> None:
    recycler = Recycler(paths, replace(SETTINGS, recycled_bytes_max=3 * SIZE))
    recycler.open()
    for each in [put(paths, body("a")) for _ in range(3)]:
        recycler.end(each)
    recycler.end(put(paths, body("b", SIZE // 3)))
    assert sorted(each.size for each in offers(paths)) == [SIZE // 3, SIZE, SIZE]


def test_none_rests_where_none_may(paths: SpoolPaths, recycler: Recycler) -> None:
    resting, ref = put(paths, body("a")), put(paths, body("b"))
    recycler.end(resting)
    recycler = Recycler(paths, replace(SETTINGS, recycled_bytes_max=0))
    recycler.open()
    recycler.end(ref)
    assert not offers(paths) and not files(paths)


def test_a_short_disk_has_them_back(paths: SpoolPaths, recycler: Recycler) -> None:
    for each in [put(paths, body("a")) for _ in range(3)]:
        recycler.end(each)
    short = Recycler(paths, replace(SETTINGS, disk_reserve_bytes=1 << 60))
    ref = put(paths, body("b", 10 * SIZE))
    short.end(ref)
    assert not offers(paths) and not files(paths)


def test_what_is_old_is_not_taken_and_goes(paths: SpoolPaths, recycler: Recycler,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    """omscan may be about to remove it."""
    recycler.end(put(paths, body("a")))
    (old,) = offers(paths)
    ref = put(paths, body("b", 3 * SIZE))
    now = clock.wall_ns()
    monkeypatch.setattr(clock, "wall_ns", lambda: now + (AGE_S_MAX + 1) * clock.NS_PER_S)
    assert put(paths, body("c")) != old.ref
    recycler.end(ref)
    assert [each.size for each in offers(paths)] == [3 * SIZE] and not path(paths, old.ref).exists()
    monkeypatch.setattr(clock, "wall_ns", lambda: now - 3600 * clock.NS_PER_S)
    (ahead,) = offers(paths)
    assert put(paths, body("d", 3 * SIZE)) != ahead.ref, "the clock was ahead"


def test_what_is_none_is_passed_over(paths: SpoolPaths, recycler: Recycler, tmp_path: Path) -> None:
    recycler.end(put(paths, body("a")))
    (offer,) = offers(paths)
    for name in ("junk", "1.2.3", f"{SIZE}.1.{'0' * 16}.../../x.yyyyyyy", "٣.1.0.aaaaaaa.bbbbbbb"):
        if "/" not in name:
            (paths.spares / name).touch()
    target = path(paths, offer.ref)
    target.rename(tmp_path / "elsewhere")
    target.symlink_to(tmp_path / "elsewhere")
    assert put(paths, body("b")) != offer.ref
    assert (tmp_path / "elsewhere").stat().st_size == SIZE
    assert not is_spare(paths, offer.ref)


def test_without_the_folder_all_is_as_before(paths: SpoolPaths, recycler: Recycler,
                                             tmp_path: Path) -> None:
    """A client of this version beside an idel.server of one before; a link in its place."""
    paths.spares.rmdir()
    ref = put(paths, body("a"))
    assert recycler.end(ref) and not files(paths)
    (tmp_path / "other").mkdir()
    paths.spares.symlink_to(tmp_path / "other")
    ref = put(paths, body("b"))
    recycler.open()
    assert recycler.end(ref) and not files(paths) and not os.listdir(tmp_path / "other")


def test_a_full_disk_takes_no_part_of_a_body(paths: SpoolPaths, recycler: Recycler) -> None:
    """As where writing over a file takes new blocks."""
    for call in ("write", "fdatasync"):
        recycler.end(put(paths, body("a")))
        durable.use(FaultyDisk())
        disk = durable.current()
        assert isinstance(disk, FaultyDisk)
        disk.failures[call] = FULL
        with pytest.raises(SpoolFull):
            put(paths, body("b"))
        assert durable.latched() is None and not files(paths) and not offers(paths)
        durable.use(Disk())


def test_on_a_full_disk_it_is_removed(paths: SpoolPaths, recycler: Recycler) -> None:
    """There is no room for an offer, nor for another name."""
    for call in ("create", "rename"):
        ref = put(paths, body("a"))
        disk = FaultyDisk()
        disk.failures[call] = FULL
        durable.use(disk)
        assert recycler.end(ref)
        durable.use(Disk())
        assert not files(paths) and not offers(paths)


class Killed(BaseException):
    """The process ends in the middle of a call, or behind it."""


class KillDisk(Disk):
    """Kills at the n-th change; `behind`: when it is made."""

    def __init__(self, after: int, *, behind: bool) -> None:
        self.after, self.behind, self.count = after, behind, 0

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in ("pwritev", "fdatasync", "rename_new", "sync_directory", "unlink", "open",
                        "release"):
            return found

        def call(*words: Any) -> Any:
            self.count += 1
            if self.count == self.after and not self.behind:
                raise Killed
            result = found(*words)
            if self.count == self.after:
                if name == "open":
                    self.close(result)
                raise Killed
            return result

        return call


@pytest.mark.parametrize("behind", [False, True])
def test_a_kill_leaves_nothing_that_the_next_start_does_not_remove(
        paths: SpoolPaths, behind: bool) -> None:  # noqa: FBT001
    """Of its maker, at each call: the message is handed out again, and nobody is an operator."""
    stays = put(paths, body("b"))
    for after in itertools.count(1):
        ref, maker = put(paths, body("a")), Recycler(paths, SETTINGS)
        maker.open()
        durable.use(disk := KillDisk(after, behind=behind))
        with contextlib.suppress(Killed):
            maker.end(ref)
        durable.use(Disk())
        made = Recycler(paths, SETTINGS)
        made.open()
        made.look_behind()
        assert len(files(paths)) == 1 + path(paths, ref).exists(), after
        made.end(ref)
        made.give_back()
        assert files(paths) == [path(paths, stays)] and not os.listdir(paths.spares), after
        if disk.count < after:
            break
    assert after > 5


@pytest.mark.parametrize("same", [True, False])
def test_what_a_dead_taker_had_taken_goes(paths: SpoolPaths, recycler: Recycler,
                                          same: bool) -> None:  # noqa: FBT001
    """It has withdrawn the offer and has written nothing; idel.server is the same, or the next."""
    for each in [put(paths, body("a")) for _ in range(2)]:
        recycler.end(each)
    dead, stopped = (Taker(paths).take(SIZE) for _ in range(2))
    assert dead is not None and stopped is not None
    dead[1].close()
    if not same:
        recycler = Recycler(paths, SETTINGS)
        recycler.open()
    recycler.give_back()
    recycler.look_behind()
    assert files(paths) == [path(paths, stopped[0])], "it is open: its writer is about to write"
    stopped[1].write([body("c")], 0)
    stopped[1].close()
    recycler.give_back()
    Recycler(paths, SETTINGS).open()
    assert containers.read_item(paths, stopped[0], SIZE) == body("c")


def test_takers_that_die_cost_no_more_than_a_few(paths: SpoolPaths, recycler: Recycler,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    """While idel.server has work all the time."""
    monkeypatch.setattr(recycled_containers, "_MADE_MAX", 4)
    for _ in range(12):
        recycler.end(put(paths, body("a")))
        taken = Taker(paths).take(SIZE)
        assert taken is not None
        taken[1].close()
    assert len(files(paths)) <= 5


def test_what_a_message_has_stays(paths: SpoolPaths, recycler: Recycler) -> None:
    """Its name is that of one that was used again."""
    recycler.end(put(paths, body("a")))
    ref = put(paths, body("b"))
    assert ref.rpartition("/")[2].startswith(PREFIX)
    recycler.end(put(paths, body("a")))
    half = Taker(paths).take(SIZE)
    assert half is not None
    half[1].write([b"b"], 0)
    half[1].close()
    later = Recycler(paths, SETTINGS)
    later.open()
    later.look_behind()
    assert files(paths) == sorted([path(paths, ref), path(paths, half[0])])
    assert containers.read_item(paths, ref, SIZE) == body("b")


def test_no_name_is_taken_from_anybody(paths: SpoolPaths, recycler: Recycler,
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    recycler.end(put(paths, body("a")))
    had, ref = put(paths, body("b")), put(paths, body("c"))
    monkeypatch.setattr(containers, "new_item_ref", lambda: had)
    assert recycler.end(ref) and not offers(paths)
    assert containers.read_item(paths, had, SIZE) == body("b")
    assert files(paths) == [path(paths, had)]


@pytest.mark.parametrize("has", ["open", "leased"])
def test_omscan_leaves_what_a_writer_has_open(paths: SpoolPaths, recycler: Recycler,
                                              has: str) -> None:
    """It was stopped before its first write, for as long as `--older` says."""
    recycler.end(put(paths, body("a")))
    taken = Taker(paths).take(SIZE)
    assert taken is not None
    if has == "leased":
        Disk().lease(taken[1].fd)
    assert not omscan._take_away(paths, taken[0])
    taken[1].write([body("c")], 0)
    taken[1].close()
    assert containers.read_item(paths, taken[0], SIZE) == body("c")
    assert omscan._take_away(paths, taken[0]) and not files(paths)


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOLCK])
def test_where_the_kernel_cannot_tell_all_is_removed(paths: SpoolPaths, recycler: Recycler,
                                                     number: int) -> None:
    class None_(Disk):
        def lease(self, fd: int) -> None:
            raise OSError(number, os.strerror(number))

    durable.use(None_())
    ref, other = put(paths, body("a")), put(paths, body("b"))
    assert recycler.end(ref) and not offers(paths)
    assert omscan._take_away(paths, other) and not files(paths)


def test_omscan_tells_of_spares_and_takes_them_for_no_orphans(paths: SpoolPaths,
                                                              recycler: Recycler) -> None:
    """Also of one whose taker has died before he wrote into it."""
    for each in [put(paths, body("a")) for _ in range(2)]:
        recycler.end(each)
    taken = Taker(paths).take(SIZE)
    assert taken is not None
    taken[1].close()
    orphan = put(paths, body("c", 3 * SIZE))
    found = {each.name: each.kind for each in scan(paths, 0)}
    assert found.pop(orphan) == "container"
    assert sorted(found.values()) == ["spare", "spare"] and taken[0] in found


def test_a_body_that_looks_like_a_label_is_none(paths: SpoolPaths, recycler: Recycler) -> None:
    """Its writer cannot know the number that is to be in it."""
    ref, file = containers.create_empty(paths)
    file.write([recycled_containers._label(ref, "0" * 16) + body("x")], 0)
    file.close()
    folder, item = ref.split("/")[2:]
    size = LABEL_BYTES + SIZE
    now_s = clock.wall_ns() // clock.NS_PER_S
    (paths.spares / f"{size}.{now_s}.{'1' * 16}.{folder}.{item}").touch()
    assert offered(paths) == set()
    assert Taker(paths).take(size) is None
    assert path(paths, ref).stat().st_size == size
    file = containers.open_again(paths, ref)
    file.write([recycled_containers._label(ref, "") + body("x")], 0)
    file.close()
    assert not is_spare(paths, ref)


def test_the_kernel_tells_who_is_alone(tmp_path: Path) -> None:
    disk, name = Disk(), str(tmp_path / "file")
    fd = disk.open(name, os.O_RDWR | os.O_CREAT)
    assert disk.alone(fd) and disk.alone(fd)
    for flags in (os.O_RDONLY, os.O_RDWR, os.O_WRONLY):
        other = os.open(name, flags)
        assert not disk.alone(fd)
        os.close(other)
    assert disk.alone(fd)
    os.close(os.open(name, os.O_RDONLY | os.O_NONBLOCK))  # no lease is left
    disk.close(fd)


def test_omqrecover_takes_them_for_no_orphans(paths: SpoolPaths, recycler: Recycler) -> None:
    recycler.end(put(paths, body("a")))
    orphan = put(paths, body("c", 3 * SIZE))
    found, count = orphans(paths, set())
    assert [each.file for each in found] == [orphan.removeprefix("~/")] and count == 2


def test_a_body_shorter_than_the_label_takes_none(paths: SpoolPaths, recycler: Recycler) -> None:
    """A part of the label would be left, and what is written counts only when none is."""
    recycler.end(put(paths, body("a", LABEL_BYTES)))
    (offer,) = offers(paths)
    assert put(paths, body("b", LABEL_BYTES - 1)) != offer.ref
    recycler.end(put(paths, body("c", LABEL_BYTES - 1)))
    assert offers(paths) == [offer], "nor is there room for one in it"
    assert put(paths, body("d", LABEL_BYTES)) == offer.ref
