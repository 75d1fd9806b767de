"""The archive out of an object store, for analytics, and a year of pieces: pruned, restored, looked
at by omq-spark's reader."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from omq.base import clock
from omq.base.checksum import crc32c
from omq.base.clock import NS_PER_S
from omq.base.errors import Exit, NothingToRestore, OtherHistory, PlaceDamaged
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.format.archive import Section
from omq.format.findings import Finding
from omq.format.index import Counter
from omq.format.shipped import IDENTITY, decode, decode_start, encode, journal_name
from omq.format.standby import Piece, PieceKind
from omq.services.pool.live_index import LiveIndex
from omq.services.ship.archiving import Archiving, Made
from omq.services.ship.bases import bases_of, prune
from omq.services.ship.places import Place
from omq.services.ship.restoring import Point, Restored, Restoring
from omq.services.ship.sealing import stream
from omq.services.ship.shipping import MEMBER, Shipping
from omq.services.standby import base_sending
from omq.services.standby.stream import PieceReader
from omq.storage import standby_holds
from omq.storage.archive import archive_name
from omq.storage.archive_file import open_archive
from omq.storage.files import open_file
from omq.storage.journal import file_name, numbers_in
from omq.storage.spool import open_spool
from omq.testing.instance import LiveInstance
from tests.process.test_ship import Ship, lose, made, put, take, tool
from tests.waiting import until

__all__ = ["made"]
SMALL = {"journal_file_bytes": 1 << 18, "block_bytes_max": 160 << 10,
         "container_threshold_bytes": 68 << 10, "channel_bytes": 1 << 19}
DAY_S = 86_400


class Memory:
    """A place."""

    url = "memory"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.listed: list[str] = []  # of the journal, at the last question

    def create(self, name: str, data: bytes) -> bool:
        if name in self.objects:
            return False
        self.objects[name] = data
        return True

    def read(self, name: str, first: int = 0) -> bytes | None:
        found = self.objects.get(name)
        return found[: first or None] if found is not None else None

    def names(self, prefix: str, after: str = "", before: str = "") -> list[str]:
        found = sorted(each for each in self.objects if each.startswith(prefix)
                       and each > after and (not before or each < before))
        if prefix.startswith("journal/"):
            self.listed = found
        return found

    def delete(self, name: str) -> None:
        self.objects.pop(name, None)


def unsaid(text: str) -> None:
    """Nobody reads what they say."""
    del text


def archive(place: Place, folder: Path) -> Made:
    folder.mkdir(exist_ok=True)
    return Archiving(place, folder, unsaid, level=3, bodies=False).run()


def frames(path: Path) -> list[bytes]:
    """The frames of an archive file."""
    file = open_file(path)
    found = open_archive(file, path.name)
    try:
        assert not isinstance(found, Exception) and hasattr(found, "rows"), found
        return [row.tobytes() for row in found.rows(Section.FRAMES)]
    finally:
        file.close()


def fill(ship: Ship, files: int) -> None:
    """Put and take until so many journal files more were begun."""
    first = numbers_in(ship.instance.paths.journal)[-1]
    while numbers_in(ship.instance.paths.journal)[-1] < first + files:
        put(ship, *(b"%d " % i * 9000 for i in range(4)))
        take(ship, 4)


def test_the_archive_is_that_of_the_instance(made: Callable[..., Ship], tmp_path: Path) -> None:
    """By the command; the second run goes on; what omq-archive makes has the same frames."""
    ship = made(**SMALL, journal_files_kept=0)
    ship.once()
    fill(ship, 3)
    ship.once()
    folder = tmp_path / "archive"
    folder.mkdir()
    words = ("omqrecover", "archive", str(folder), "--from", ship.url)
    done = ship.tool(*words)
    assert done.returncode == 0, done.stderr
    first = numbers_in(folder, ".oma")
    assert len(first) >= 2 and f"{len(first)} archive files made" in done.stdout
    kept = {number: (folder / archive_name(number)).stat().st_mtime_ns for number in first}
    fill(ship, 2)
    ship.once()
    assert ship.tool(*words).returncode == 0
    again = numbers_in(folder, ".oma")
    assert again == list(range(first[0], again[-1] + 1)) and again[-1] >= first[-1] + 2
    assert kept == {number: (folder / archive_name(number)).stat().st_mtime_ns for number in first}
    assert not list(folder.glob("*.omb"))
    assert "0 archive files made" in ship.tool(*words).stdout
    ship.instance.stop()
    retired = numbers_in(ship.instance.paths.archive)
    assert ship.tool(*ship.at("omq-archive")).returncode == 0
    both = set(retired) & set(again)
    assert both, "nothing to compare"
    for number in both:
        assert frames(folder / archive_name(number)) == frames(
            ship.instance.paths.archive / archive_name(number))
    ship.instance.start("queue.manager")
    missing = ship.tool("omqrecover", "archive", str(tmp_path / "none"), "--from", ship.url)
    assert missing.returncode == Exit.USAGE and "no directory" in missing.stderr


def test_what_does_not_fit_ends_it(made: Callable[..., Ship], tmp_path: Path) -> None:
    ship = made(**SMALL)
    ship.once()
    for _ in range(4):
        fill(ship, 1)
        ship.once()
    place, folder = Memory(), tmp_path / "archive"
    place.objects = {name: ship.place.read(name) or b"" for name in ship.place.names("")}
    archive(place, folder)
    mine = numbers_in(folder, ".oma")
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(folder / archive_name(mine[1]), other / archive_name(mine[0]))
    with pytest.raises(OtherHistory):  # it has what the next file does not follow
        archive(place, other)
    (other / archive_name(mine[0])).write_bytes(b"\0" * 4096)
    with pytest.raises(OtherHistory):
        archive(place, other)
    names = place.names("journal/")
    gone, data = next((name, place.objects[name]) for name in names[2:-1])
    found = decode(data)
    assert not isinstance(found, Finding)
    another = encode(replace(found[0], previous=found[0].previous ^ 1), bytes(found[1]))
    for bad in (b"", data[:-1], data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
                place.objects[names[-1]], another):
        place.objects[gone] = bad
        with pytest.raises(PlaceDamaged, match=gone):
            archive(place, tmp_path / "bad")
    del place.objects[gone]
    with pytest.raises(PlaceDamaged, match="it is not there"):
        archive(place, tmp_path / "bad")
    place.objects[gone] = data
    assert archive(place, tmp_path / "bad").number == mine[-1], "it goes on where it was"
    identity = place.objects.pop(IDENTITY)
    with pytest.raises(PlaceDamaged, match="nothing was shipped"):
        archive(place, tmp_path / "bad")
    place.objects[IDENTITY] = identity.replace(identity[-20:-5], b"0" * 15)
    with pytest.raises(OtherHistory):
        archive(place, tmp_path / "bad")


def test_a_file_that_was_not_shipped_whole_is_not_made(made: Callable[..., Ship], tmp_path: Path
                                                       ) -> None:
    """The place was away for longer than the journal was kept; and a promotion takes over."""
    ship = made(**SMALL, journal_files_kept=0, checkpoint_journal_bytes_max=1 << 16)
    ship.once()
    fill(ship, 2)
    ship.once()
    at = numbers_in(ship.instance.paths.journal)[-1]
    standby_holds.note(ship.instance.paths, MEMBER, None)
    fill(ship, 4)
    until(lambda: numbers_in(ship.instance.paths.journal)[0] > at, ship.instance.said)
    ship.once()
    fill(ship, 2)
    ship.once()
    folder = tmp_path / "archive"
    folder.mkdir()
    done = ship.tool("omqrecover", "archive", str(folder), "--from", ship.url)
    there = numbers_in(folder, ".oma")
    begins = [decode_start(ship.place.read(name) or b"") for name in ship.place.names("journal/")]
    if all(getattr(each, "previous", 0) for each in begins[1:]):
        pytest.fail("the journal was kept after all")
    assert done.returncode == Exit.DATA and f"{file_name(at)[:10]}" in done.stderr, done.stderr
    assert at not in there and at - 1 in there and there[-1] > at + 2
    lose(ship)
    root = tmp_path / "restored"
    assert ship.restore(root, "--take-place").returncode == 0
    ship.serve(root)


def test_what_others_put_there_is_left_alone(made: Callable[..., Ship], tmp_path: Path) -> None:
    """By name it is no object of ours: all who read, ship or prune pass over it."""
    ship = made(**SMALL)
    strays = ["journal/README", "journal/000000/notes", "journal/000000/00000000000x",
              "journal/999999/1", "journal/999999/0000000000001", "base/README",
              "base/backup/base.json", "base/000000/old/base.json", "base/000000/now/00000000",
              "base/0000000/00000000000000000001/base.json", ".DS_Store",
              "notes/journal/000000/000000000000"]
    for name in strays:
        assert ship.place.create(name, b"not ours")
    ship.once()
    fill(ship, 2)
    put(ship, b"one")
    ship.once()
    prune(ship.place, 1)
    assert all(ship.place.read(name) == b"not ours" for name in strays)
    made_of_it = archive(ship.place, tmp_path / "archive")
    assert made_of_it.files and not made_of_it.gaps
    lose(ship)
    done = ship.restore(tmp_path / "restored", "--take-place")
    assert done.returncode == 0, done.stderr
    assert ship.serve(tmp_path / "restored") == [b"one"]


def test_a_base_begins_no_later_than_its_checkpoint(
        made: Callable[..., Ship], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the pool is copied a checkpoint may retire files: what is shipped holds none. A base
    that began with what is oldest then would lack what stands between."""
    ship = made(**SMALL)
    fill(ship, 3)
    ship.instance.stop()
    copy = SpoolPaths(tmp_path / "copy")
    shutil.copytree(ship.instance.root, copy.root)
    oldest = numbers_in(copy.journal)[0]
    retired = list[int]()

    def containers(paths: SpoolPaths, *_: object) -> Iterator[Piece]:
        while len(left := numbers_in(paths.journal)) > 1:
            (paths.journal / file_name(left[0])).unlink()
            retired.append(left[0])
        return iter(())

    monkeypatch.setattr(base_sending, "_containers", containers)
    pieces = list(base_sending.base(copy, open_spool(copy.root).instance, MEMBER, lambda: True))
    first, last = pieces[-2:]
    assert (first.kind, last.kind) == (PieceKind.FILE, PieceKind.COPIED)
    assert retired and first.number == oldest <= last.number
    ship.instance.start("queue.manager", "pool.writer")


def test_a_block_behind_the_end_of_its_file(made: Callable[..., Ship], tmp_path: Path) -> None:
    """A place that is somebody else's may say anything with a right sum: no memory is taken for
    it."""
    ship = made(**SMALL)
    ship.once()
    fill(ship, 1)
    ship.once()
    put(ship, b"one")
    ship.once()
    place = Memory()
    place.objects = {name: ship.place.read(name) or b"" for name in ship.place.names("")}
    name = place.names("journal/")[-1]
    found = decode(place.objects[name])
    assert not isinstance(found, Finding)
    seal, pieces = found[0], list(PieceReader(name).feed(found[1]))
    at = next(i for i, each in enumerate(pieces) if each.kind is PieceKind.BLOCK)
    pieces[at] = replace(pieces[at], offset=1 << 40)
    data = bytes(stream(pieces))
    place.objects[name] = encode(replace(seal, length=len(data), crc=crc32c(data)), data)
    with pytest.raises(PlaceDamaged, match="a block lies after the end of journal file"):
        archive(place, tmp_path / "archive")


class Racing(Memory):
    """Whoever ships removes all bases but the newest before the read of this number."""

    def __init__(self, objects: dict[str, bytes], at: int) -> None:
        super().__init__()
        self.objects, self.reads, self.at = dict(objects), 0, 0
        self.bases = bases_of(self)
        self.reads, self.at = 0, at

    def read(self, name: str, first: int = 0) -> bytes | None:
        self.reads += 1
        if self.reads == self.at:
            prune(self, 1)
        return super().read(name, first)


def retention_races_restores(place: Memory, time_ns: int, folder: Path) -> None:
    """What a restore needs goes at one of its steps: it refuses and says why, and what was begun is
    no spool. One of the newest base goes on."""
    def restore(racing: Racing, point: Point) -> Restored:
        root = folder / f"races{racing.at}{point.time_ns is None}"
        root.mkdir()
        try:
            return Restoring(racing, SpoolPaths(root), Settings(), point, unsaid).run(
                clock.wall_ns(), takes_place=False)
        except NothingToRestore:
            assert not (root / "instance.json").exists()
            raise

    point, whole = Point(time_ns=time_ns), Racing(place.objects, 0)
    first = restore(whole, point)
    assert first.base == whole.bases[0] and first.ended, "the control: nothing is removed"
    listed = len(whole.bases)  # each is read before one is chosen
    for at, reason in ((1, "after that point"), (listed + 1, "while it was being restored"),
                       (whole.reads, "while it was being restored")):
        with pytest.raises(NothingToRestore, match=reason):
            restore(Racing(place.objects, at), point)
    for at in (1, listed + 1, listed + 2):
        racing = Racing(place.objects, at)
        assert restore(racing, Point()).base == racing.bases[-1]


def test_a_year_of_pieces(tmp_path: Path) -> None:
    """Two objects and a base a day: bases and the journal behind them go, what is kept restores at
    any time of it, and the archive has all that is there."""
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "omq.conf").write_text(
        "[journal]\njournal_file_bytes = 256 KiB\nblock_bytes_max = 160 KiB\n"
        "[pool]\ncheckpoint_journal_bytes_max = 64 KiB\n"
        "[store]\ncontainer_threshold_bytes = 68 KiB\n[ipc]\nchannel_bytes = 512 KiB\n")
    (tmp_path / "live").mkdir()
    place, kept, days = Memory(), 30, 365
    with LiveInstance(tmp_path / "live", conf) as live:
        live.queues.define("A")
        info = open_spool(live.spool)
        shipping, look = Shipping(info.paths, info.instance, place), LiveIndex(info.paths)
        shipping.start()
        puts, times = live.connect(), list[int]()
        with puts.reader("A") as reader:
            for day, part in itertools.product(range(days), range(2)):
                puts.put("A", b"%d.%d" % (day, part) + b" " * 9000)
                if day:  # a day's work waits
                    (message,) = reader.next(timeout_s=10)
                    message.done()
                    reader.flush()
                times.append(clock.wall_ns())
                if not part:
                    for _ in shipping.base(lambda: True, clock.wall_ns()):
                        shipping.turn(look.counter(Counter.DURABLE_LSN))
                    prune(place, kept)
                    assert not place.objects.keys() & {*place.listed}, "what is deleted alone"
                while shipping.turn(look.counter(Counter.DURABLE_LSN)):
                    pass
                live.pass_time(DAY_S / 2)
        shipping.close()
        look.close()
        again = Shipping(info.paths, info.instance, place)
        again.start()
        newest = bases_of(place)[-1]
        assert place.listed[0] == journal_name(newest.term, newest.journal - 1), "from there on"
        assert again.state.last_object == shipping.state.last_object
        again.close()
    bases = bases_of(place)
    journal = [int(name.rpartition("/")[2]) for name in place.names("journal/")]
    assert len(bases) == kept and journal == list(range(bases[0].journal, journal[-1] + 1))
    # A base begins with the journal file of the last checkpoint, which may be some files ago.
    assert journal[-1] >= 2 * days - 1 and journal[0] > 0
    assert bases[-1].time_ns - bases[0].time_ns >= (kept - 1) * DAY_S * NS_PER_S
    for which in (2 * (days - kept) + 1, 2 * (days - 11)):
        root = tmp_path / f"at{which}"
        root.mkdir()
        done = Restoring(place, SpoolPaths(root), Settings(), Point(time_ns=times[which]),
                         unsaid).run(
            clock.wall_ns(), takes_place=False)
        assert done.ended and done.time_ns <= times[which]
        found = open_spool(root).instance
        assert found.uuid == info.uuid
        bodies = tool("omqrecover", "extract", str(root), "--where", "queue=A", "--to",
                      str(root / "out"))
        assert bodies.returncode == 0, bodies.stderr
        said = sorted(each.read_bytes().split()[0] for each in (root / "out").glob("*.body"))
        wanted = [divmod(n, 2) for n in range(which - 1, which + 1)]
        assert said == sorted(b"%d.%d" % each for each in wanted)
    retention_races_restores(place, times[2 * (days - kept) + 1], tmp_path)
    made = archive(place, tmp_path / "archive")
    there = numbers_in(tmp_path / "archive", ".oma")
    assert made.files == len(there) > 1 and not made.gaps
    rows = sum(len(frames(tmp_path / "archive" / archive_name(number))) for number in there)
    assert rows == made.frames > 2 * (kept - 10)
