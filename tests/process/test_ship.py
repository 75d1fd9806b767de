"""The journal in an object store, and a spool from it: at its end, at a point of time, after kills,
with objects missing or exchanged, in a directory and in a real S3 server."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import omq
from omq.base.errors import Exit, ForeignPlace, PlaceUnfit
from omq.cli.watch.metrics import text
from omq.format.index import Counter
from omq.format.shipped import decode_start
from omq.services.daemon.options import Location
from omq.services.pool.live_index import LiveIndex
from omq.services.ship.places import Directory, Place, place
from omq.services.ship.shipping import Shipping
from omq.storage.instance_file import LEAP
from omq.storage.journal import numbers_in
from omq.storage.spool import open_spool
from tests.process import instance as world
from tests.process import operator_state as state
from tests.process.instance import MANAGER, WRITER
from tests.process.processes import WAIT_S, start_program
from tests.waiting import until

LAUNCH = [sys.executable, "-m", "omq.cli.launch"]
S3 = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1",
      "AWS_ALLOW_HTTP": "true"}


def tool(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*LAUNCH, *words], capture_output=True, text=True, timeout=WAIT_S,
                          check=False)


class Ship:
    """An instance that ships to a place."""

    def __init__(self, instance: world.Instance, url: str) -> None:
        self.instance, self.url = instance, url
        self.log = instance.root.with_name("ship.log")
        self.children: list[subprocess.Popen[bytes]] = []

    @property
    def place(self) -> Place:
        return place(self.url)

    def tool(self, *words: str) -> subprocess.CompletedProcess[str]:
        return tool(*words)

    def at(self, *words: str, root: Path | None = None) -> list[str]:
        return [*words, "--spool", str(root or self.instance.root), "--conf",
                str(self.instance.conf)]

    def once(self) -> None:
        done = self.tool(*self.at("omq", "ship", "run", "--once", "--to", self.url))
        assert done.returncode == 0, done.stderr

    def run(self) -> subprocess.Popen[bytes]:
        with open(self.log, "ab") as log:
            child = subprocess.Popen([*LAUNCH, *self.at("omq", "ship", "run", "--to", self.url)],
                                     stderr=log)
        self.children.append(child)
        return child

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self.tool(*self.at("omq", "ship", "status", "--json")).stdout)
        return found

    def durable(self) -> int:
        return self.counter(Counter.DURABLE_LSN)

    def counter(self, which: Counter) -> int:
        index = LiveIndex(self.instance.paths)
        try:
            return index.counter(which)
        finally:
            index.close()

    def shipped(self) -> None:
        """Until everything that is durable now is there."""
        wanted = self.durable()

        def there() -> bool:
            found = self.status()
            mine = not self.children or found.get("pid") == self.children[-1].pid
            return mine and found.get("shipped_lsn", 0) >= wanted and found["base_time_ns"] > 0

        until(there, lambda: f"{self.status()} {self.log.read_text() if self.log.exists() else ''}")

    def restore(self, root: Path, *words: str) -> subprocess.CompletedProcess[str]:
        root.mkdir(exist_ok=True)
        conf = self.instance.conf if self.instance.conf.exists() else self.burned / "conf"
        shutil.copytree(conf, root / "conf", dirs_exist_ok=True)
        return self.tool("omqrecover", "restore", str(root), "--from", self.url, *words)

    def serve(self, root: Path) -> list[bytes]:
        """What a restored instance has on A."""
        child = start_program(MANAGER, self.at(root=root), output=self.log)
        try:
            with omq.connect(root, name="judge", timeout_s=WAIT_S) as c:
                with c.reader("A", batch=100) as reader:
                    out = list[bytes]()
                    while batch := reader.next(timeout_s=0):
                        for message in batch:
                            out.append(message.body)
                            message.done()
                self.new = int(str(c.put("A", b"new"))[32:], 16)
            return out
        finally:
            child.signal(signal.SIGTERM)
            assert child.wait() == 0, self.log.read_text()

    @property
    def burned(self) -> Path:
        return self.instance.root.with_name("burned")

    def end(self) -> None:
        for child in self.children:
            child.kill()
            child.wait()
        if self.burned.exists():
            self.burned.rename(self.instance.root)


@pytest.fixture
def made(omq_instance: world.Instance, tmp_path: Path) -> Iterator[Callable[..., Ship]]:
    ships = list[Ship]()

    def make(url: str = "", **settings: Any) -> Ship:
        omq_instance.settings(ship_interval_ms=20, **settings)
        omq_instance.start(MANAGER, WRITER)
        omq_instance.ready()
        (tmp_path / "place").mkdir(exist_ok=True)
        ships.append(Ship(omq_instance, url or f"file://{tmp_path}/place"))
        return ships[-1]

    yield make
    for each in ships:
        each.end()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with served_bucket(monkeypatch) as url:
        yield url


@contextmanager
def served_bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A URL at a real S3 server (moto's, on loopback)."""
    for module in ("moto.server", "obstore", "flask"):
        pytest.importorskip(module, reason="the extra `dev` is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    running = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p",
                                str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: _made_bucket(port), lambda: f"moto's exit code: {running.poll()}")
        own = dict.fromkeys(("AWS_ENDPOINT", "AWS_ENDPOINT_URL"), f"http://127.0.0.1:{port}")
        for key, value in (S3 | own).items():
            monkeypatch.setenv(key, value)
        yield "s3://archive/omq"
    finally:
        running.kill()
        running.wait()


def _made_bucket(port: int) -> bool:
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/archive", method="PUT")
    try:
        with urllib.request.urlopen(asked, timeout=WAIT_S) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def put(ship: Ship, *bodies: bytes, queue: str = "A") -> list[int]:
    with ship.instance.connect("puts") as c:
        return [int(str(c.put(queue, body))[32:], 16) for body in bodies]


def take(ship: Ship, count: int) -> None:
    with ship.instance.connect("takes") as c, c.reader("A") as reader:
        for _ in range(count):
            (message,) = reader.next(timeout_s=WAIT_S)
            message.done()


def lose(ship: Ship) -> None:
    """The host burns; the end of the test finds its System V objects by what is left."""
    ship.instance.kill()
    ship.instance.root.rename(ship.burned)


def everything_comes_back(ship: Ship, root: Path, before: Sequence[bytes] = ()) -> None:
    """What is there `before` is taken."""
    large = os.urandom(600_000)
    put(ship, b"taken")
    take(ship, len(before) + 1)
    ship.once()
    last = put(ship, b"one", large, b"two")[-1]
    ship.once()
    lose(ship)
    done = ship.restore(root, "--take-place")
    assert done.returncode == 0, done.stderr
    assert "primary of term 1" in done.stdout
    assert ship.serve(root) == [b"one", large, b"two"]
    assert ship.new > last + LEAP // 2, "numbers leap: the lost one may have given more"


def test_everything_comes_back(made: Callable[..., Ship], tmp_path: Path) -> None:
    everything_comes_back(made(), tmp_path / "restored")


def test_what_an_operator_has_set_comes_back(made: Callable[..., Ship], tmp_path: Path) -> None:
    ship = made()
    ship.once()
    with ship.instance.connect() as connection:
        state.set_all(connection)
        before = state.found(connection)
    ship.once()
    lose(ship)
    root = tmp_path / "restored"
    assert ship.restore(root, "--take-place").returncode == 0
    child = start_program(MANAGER, ship.at(root=root), output=ship.log)
    try:
        with omq.connect(root, name="judge", timeout_s=WAIT_S) as connection:
            after = state.found(connection)
            state.whole(after)
            assert after == before
    finally:
        child.signal(signal.SIGTERM)
        assert child.wait() == 0, ship.log.read_text()


LISTS = """
import json, sys
from omq.services.ship.places import place
names = (found := place(sys.argv[1]).names)("journal/")
for each in (names, found("journal/", names[0], names[-1]), found("journal/", before=names[-1])):
    print(json.dumps(each))
"""


def test_from_a_bucket(made: Callable[..., Ship], bucket: str, tmp_path: Path) -> None:
    ship = made(bucket)
    everything_comes_back(ship, tmp_path / "restored")
    listed = [json.loads(line) for line in subprocess.run(
        [sys.executable, "-c", LISTS, bucket], capture_output=True, text=True, check=True,
        timeout=WAIT_S).stdout.splitlines()]  # a store leaves threads and descriptors
    assert listed[1:] == [listed[0][1:-1], listed[0][:-1]] and listed[0]


def test_a_point_is_a_copy_to_look_at(made: Callable[..., Ship], tmp_path: Path) -> None:
    ship = made()
    ship.once()
    put(ship, b"one")
    point = ship.durable()
    put(ship, b"two")
    take(ship, 2)
    ship.once()
    root = tmp_path / "then"
    done = ship.restore(root, "--at", str(point))
    assert done.returncode == 0, done.stderr
    assert f"at LSN {point}" in done.stdout and "copy to look at" in done.stdout
    looked = ship.tool("omqcheck", "--spool", str(root))
    assert looked.returncode == 0, looked.stdout + looked.stderr
    out = tmp_path / "out"
    taken = ship.tool("omqrecover", "extract", str(root), "--where", "queue=A", "--to", str(out))
    assert "1 messages written" in taken.stdout, taken.stderr
    served = ship.tool("queue.manager", "--spool", str(root), "--conf", str(ship.instance.conf))
    assert served.returncode == Exit.UNAVAILABLE, served.stderr
    assert ship.restore(root).returncode != 0, "the directory is not empty"


def test_a_time_before_the_first_base_is_refused(made: Callable[..., Ship], tmp_path: Path) -> None:
    ship = made()
    ship.once()
    done = ship.restore(tmp_path / "then", "--at", "2001-01-01T00:00")
    assert done.returncode == Exit.DATA and "oldest base" in done.stderr


def test_whoever_is_killed_goes_on_where_the_place_is(made: Callable[..., Ship], tmp_path: Path
                                                       ) -> None:
    ship = made(journal_file_bytes=1 << 18, block_bytes_max=160 << 10, container_threshold_bytes=68
                << 10, channel_bytes=1 << 19)
    bodies = list[bytes]()
    for number in range(6):
        child = ship.run()
        new = [b"%d.%d " % (number, i) * 400 for i in range(40)]
        put(ship, *new)
        bodies += new
        if number % 2:
            ship.shipped()
        child.kill()
        child.wait()
    ship.once()
    sequences = [int(name.rpartition("/")[2]) for name in ship.place.names("journal/")]
    assert sequences == list(range(len(sequences))) and len(sequences) >= 3
    lose(ship)
    assert ship.restore(tmp_path / "restored", "--take-place").returncode == 0
    assert ship.serve(tmp_path / "restored") == bodies


def test_a_manager_that_dies_is_followed(made: Callable[..., Ship], tmp_path: Path) -> None:
    ship = made()
    ship.run()
    put(ship, b"before")
    ship.shipped()
    ship.instance.kill()
    ship.instance.start(MANAGER)
    ship.instance.ready()
    put(ship, b"behind")
    ship.shipped()
    lose(ship)
    assert ship.restore(tmp_path / "restored", "--take-place").returncode == 0
    assert ship.serve(tmp_path / "restored") == [b"before", b"behind"]


def test_two_that_ship_to_one_place(made: Callable[..., Ship], tmp_path: Path) -> None:
    """A copied spool, and another instance."""
    ship = made()
    ship.once()
    child = ship.run()
    ship.shipped()
    copy = ship.place
    last = copy.names("journal/")
    sequence = len(last)
    assert copy.create(f"journal/000000/{sequence:012d}", b"somebody else's")
    put(ship, b"one")
    assert child.wait(WAIT_S) == Exit.UNAVAILABLE, ship.log.read_text()
    assert "somebody else" in ship.log.read_text()
    (tmp_path / "place/instance.json").write_text('{"format": 1, "uuid": "00"}\n')
    done = ship.tool(*ship.at("omq", "ship", "run", "--to", ship.url))
    assert done.returncode == Exit.CONFIG and "belongs to another instance" in done.stderr


class Replaces(Directory):
    """A store that knows nothing of If-None-Match."""

    def create(self, name: str, data: bytes) -> bool:
        self.delete(name)
        return super().create(name, data)


def test_a_store_that_replaces_what_is_there(made: Callable[..., Ship], tmp_path: Path) -> None:
    """It is refused at the start, before it could replace anything of somebody else's."""
    ship = made()
    instance = open_spool(ship.instance.root).instance
    unfit = Replaces(ship.url, tmp_path / "place")
    with pytest.raises(PlaceUnfit):
        Shipping(ship.instance.paths, instance, unfit).start()
    identity = tmp_path / "place/instance.json"
    assert instance.uuid.hex() in identity.read_text()
    identity.write_text(other := '{"format": 1, "uuid": "00"}\n')
    with pytest.raises(ForeignPlace):
        Shipping(ship.instance.paths, instance, unfit).start()
    assert identity.read_text() == other


def test_a_place_that_is_away_is_asked_again(made: Callable[..., Ship], tmp_path: Path) -> None:
    ship = made(ship_late_s=1, ship_to=f"file://{tmp_path}/place")
    ship.run()
    ship.shipped()
    folder = tmp_path / "place"
    folder.rename(tmp_path / "away")
    folder.write_text("no directory")
    put(ship, b"one")
    until(lambda: bool(ship.status()["error"]), ship.log.read_text)
    until(lambda: ship.status()["waits_s"] > 0 and ship.status()["waits_bytes"] > 0,
          ship.log.read_text)
    assert ship.status()["problem"]
    watched = ship.tool(*ship.at("omq", "health"))
    assert watched.returncode == Exit.NO and "not shipped as it should be" in watched.stdout
    assert "has been away for" in watched.stdout and "the last object there is journal/" in (
        watched.stdout), watched.stdout
    location = Location(None, ship.instance.paths, ship.instance.conf)
    found = text(location)
    assert 'omq_ship_trouble{omq_instance="default"} 1.0' in found
    assert re.search(r"omq_ship_lag_bytes\S+ [1-9]", found) and re.search(
        r"omq_ship_away_seconds\S+ (?!0\.0)", found), found
    folder.unlink()
    (tmp_path / "away").rename(folder)
    ship.shipped()
    assert ship.status()["problem"] == ""
    until(lambda: ship.status()["waits_bytes"] == 0, lambda: str(ship.status()))
    assert 'omq_ship_trouble{omq_instance="default"} 0.0' in text(location)


def test_a_directory_that_is_not_mounted_is_not_made(made: Callable[..., Ship], tmp_path: Path
                                                     ) -> None:
    """Nor is an empty one taken for the place where the journal is."""
    ship = made()
    ship.once()
    (tmp_path / "place").rename(tmp_path / "mounted")
    ship.run()
    until(lambda: "No such file" in ship.status()["error"], ship.log.read_text)
    assert not (tmp_path / "place").exists()
    (tmp_path / "place").mkdir()
    assert ship.children[-1].wait(WAIT_S) == Exit.CONFIG
    assert "mount it" in ship.log.read_text() and not list((tmp_path / "place").iterdir())
    done = ship.tool(*ship.at("omq", "ship", "run", "--once", "--anew", "--to", ship.url))
    assert done.returncode == 0 and ship.place.names("base/"), done.stderr


def test_without_a_manager_nobody_says_that_all_is_there(made: Callable[..., Ship]) -> None:
    ship = made()
    ship.once()
    put(ship, b"one")
    ship.instance.stop()  # of one that is killed the index says it
    done = ship.tool(*ship.at("omq", "ship", "run", "--once", "--to", ship.url))
    assert done.returncode == Exit.UNAVAILABLE and "omrc" in done.stderr
    said = ship.tool(*ship.at("omq", "ship", "status"))
    assert "lost by now     not known" in said.stdout
    assert said.returncode == Exit.NO and "-> what is not there is not known" in said.stdout
    ship.instance.start(MANAGER)


def test_a_place_without_a_copy_of_the_pool_saves_nothing(made: Callable[..., Ship]) -> None:
    ship = made()
    ship.instance.stop()
    done = ship.tool(*ship.at("omq", "ship", "run", "--once", "--to", ship.url))
    assert done.returncode == Exit.UNAVAILABLE, done.stderr
    said = ship.tool(*ship.at("omq", "ship", "status"))
    assert said.returncode == Exit.NO and "nothing can be restored from there" in said.stdout
    assert "lost by now     not known" in said.stdout
    nowhere = ship.tool("omqrecover", "restore", str(ship.instance.paths.root.parent / "restored"),
                        "--from", ship.url + "-not-there")
    assert nowhere.returncode == Exit.TEMPORARY, nowhere.stderr
    assert "No such file" in nowhere.stderr and "tried again" not in nowhere.stderr
    ship.instance.start(MANAGER)


@pytest.mark.parametrize("wrong", ["missing", "cut", "flipped", "exchanged"])
def test_an_object_that_is_wrong_ends_the_journal(made: Callable[..., Ship], tmp_path: Path,
                                                   wrong: str) -> None:
    ship = made()
    ship.once()
    points = list[int]()
    for body in (b"one", b"two", b"three"):
        put(ship, body)
        points.append(ship.durable())
        ship.once()
    files = sorted((tmp_path / "place/journal/000000").iterdir())
    assert len(files) == 4
    bad = files[-2]
    data = bad.read_bytes()
    if wrong == "missing":
        bad.unlink()
    elif wrong == "cut":
        bad.write_bytes(data[:-1])
    elif wrong == "flipped":
        bad.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    else:
        bad.write_bytes(files[-1].read_bytes())
    done = ship.restore(tmp_path / "first")
    assert done.returncode == Exit.DATA
    assert bad.name in done.stderr and f"--at {points[0]}" in done.stderr, done.stderr
    lose(ship)
    again = ship.restore(tmp_path / "second", "--at", str(points[0]), "--take-place")
    assert again.returncode == 0, again.stderr
    assert ship.serve(tmp_path / "second") == [b"one"]


def test_the_first_object_is_missing(made: Callable[..., Ship], tmp_path: Path) -> None:
    ship = made(checkpoint_interval_s=3600)
    ship.once()  # a base without a checkpoint needs no journal
    put(ship, b"one")
    ship.once()
    first = next(iter(sorted((tmp_path / "place/journal/000000").iterdir())))
    first.unlink()
    done = ship.restore(tmp_path / "first")
    assert done.returncode == Exit.DATA and done.stderr.endswith("--at 0\n"), done.stderr
    again = ship.restore(tmp_path / "again", "--at", "0")
    assert again.returncode == 0 and "as it was at LSN 0" in again.stdout, again.stderr


def test_a_base_whose_journal_is_missing_is_of_no_use(made: Callable[..., Ship],
                                                      tmp_path: Path) -> None:
    ship = made()
    put(ship, b"one")
    until(lambda: ship.counter(Counter.CHECKPOINT_LSN) > 0)
    ship.once()  # the base is of that checkpoint
    put(ship, b"two")
    ship.once()
    first = next(iter(sorted((tmp_path / "place/journal/000000").iterdir())))
    first.unlink()
    none = ship.restore(tmp_path / "first")
    assert none.returncode == Exit.DATA and "--at" not in none.stderr, none.stderr
    assert "of no use without it; there is no earlier one" in none.stderr, none.stderr


def test_a_base_that_is_not_whole(made: Callable[..., Ship], tmp_path: Path) -> None:
    ship = made()
    put(ship, b"x" * 100_000)
    ship.once()
    (part,) = [each for each in (tmp_path / "place/base").rglob("*") if each.name == "0" * 8]
    data = part.read_bytes()
    part.write_bytes(data[:-1])
    done = ship.restore(tmp_path / "first")
    assert done.returncode == Exit.DATA and part.name in done.stderr
    assert not (tmp_path / "first/instance.json").exists()
    part.unlink()
    assert "it is not there" in ship.restore(tmp_path / "second").stderr


def test_a_base_of_the_future_makes_a_new_one(made: Callable[..., Ship], tmp_path: Path) -> None:
    """A clock that was set back leaves one."""
    ship = made()
    ship.once()
    (base,) = (tmp_path / "place/base/000000").iterdir()
    later = base.with_name(f"{int(base.name) + 86_400 * 10**9:020d}")
    base.rename(later)
    found = json.loads((later / "base.json").read_text())
    (later / "base.json").write_text(json.dumps(found | {"time_ns": int(later.name)}))
    ship.once()
    assert len(list((tmp_path / "place/base/000000").iterdir())) == 2


def test_what_is_too_old_goes_and_the_rest_restores(made: Callable[..., Ship], tmp_path: Path
                                                    ) -> None:
    """Bases one by one: the newest stays, with the journal that it needs."""
    ship = made(ship_bases_kept=1, ship_base_hours=1, journal_file_bytes=1 << 18,
                block_bytes_max=160 << 10, container_threshold_bytes=68 << 10,
                channel_bytes=1 << 19, journal_files_kept=0, checkpoint_journal_bytes_max=1 << 16)
    bodies = list[bytes]()
    for number in range(4):
        new = [b"%d.%d " % (number, i) * 900 for i in range(60)]
        put(ship, *new)
        bodies += new
        if number < 2:
            take(ship, 60)
            del bodies[:60]
        ship.once()
        base = max((tmp_path / "place/base/000000").iterdir())  # as if two hours had passed
        older = base.with_name(f"{int(base.name) - 7200 * 10**9:020d}")
        base.rename(older)
        found = json.loads((older / "base.json").read_text())
        (older / "base.json").write_text(json.dumps(found | {"time_ns": int(older.name)}))
    until(lambda: numbers_in(ship.instance.paths.journal)[0] > 4, ship.instance.said)
    ship.once()
    assert len(list((tmp_path / "place/base").rglob("base.json"))) == 1
    first = ship.place.names("journal/")[0]
    start = decode_start((tmp_path / "place" / first).read_bytes())
    assert getattr(start, "sequence", 0) > 0, "older journal objects are gone"
    lose(ship)
    done = ship.restore(tmp_path / "restored", "--take-place")
    assert done.returncode == 0, done.stderr
    assert ship.serve(tmp_path / "restored") == bodies
