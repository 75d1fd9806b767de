"""Fuzzing: every decoder of omq.format, and the whole recovery of a spool with foreign bytes in it.

Seconds here, minutes with OMQ_CRASH_LONG=1 (make crash)."""

from __future__ import annotations

import os
import random
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.base.errors import OmqError
from omq.format.findings import Finding
from omqtools.omqtest import tree
from omqtools.omqtest.clients import body_of
from omqtools.omqtest.cuts import load, store
from omqtools.omqtest.history import Found
from omqtools.omqtest.instance import instance
from omqtools.omqtest.offline import contents
from tests.crash.daemons.fuzz import fuzz, mutate, repair_of, targets
from tests.crash.daemons.test_storm import LONG
from tests.crash.daemons.world import private_ipc

DECODER_S = 60.0 if LONG else 0.6
RECOVERIES = 20_000 if LONG else 100
MESSAGES = 40


@pytest.mark.parametrize("name", targets())
def test_decoders(name: str) -> None:
    """A finding or bounded data, never an exception."""
    target, sample, start, end = targets()[name]
    found = fuzz(target, [sample], DECODER_S, 1, repair=repair_of(start, end))
    assert not found.crashes, found.crashes[0]
    assert found.runs > 50 and found.lines > 5
    print(f"{name}: {found.runs} runs, {found.lines} lines")


def test_the_fuzzer_bites() -> None:
    """A decoder with a bug behind two conditions is found out."""
    def broken(data: bytes) -> Finding | int:
        if data[:1] == b"a" and len(data) > 4 and data[3] > 200:
            return data[100]  # IndexError
        return 0

    assert fuzz(broken, [b"abcdefgh"], 5.0, 1).crashes


@pytest.fixture(scope="module")
def spool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tree.Node]:
    """A spool with messages in journal, pool, store and containers, after a crash."""
    place = tmp_path_factory.mktemp("fuzz")
    (place / "spool").mkdir(mode=0o750)
    with private_ipc(), instance(place / "spool", place / "run") as run:
        run.start()
        run.ready()
        with run.connect() as c:
            for number in range(MESSAGES):
                c.put(["A", "B"][: 1 + number % 2], body_of(f"p:{number}"))
        run.stop()
        run.start()
        run.ready()
        with run.connect() as c:
            for number in range(MESSAGES, MESSAGES + 10):
                c.put("A", body_of(f"p:{number}"))
        run.kill()
    yield load(place / "spool")


def _files(node: tree.Node, under: str = "") -> Iterator[tuple[str, tree.Node, tree.Node]]:
    for name, child in sorted(node.entries.items()):
        path = f"{under}/{name}"
        if child.is_dir:
            yield from _files(child, path)
        else:
            yield path, node, child


def _harm(chance: random.Random, root: tree.Node) -> list[str]:
    """Change files as no crash does: bytes, lengths, names, kinds."""
    done = []
    files = [item for item in _files(root)
             if item[0].startswith(("/journal", "/msgpool", "/store", "/data"))]
    for _ in range(chance.choice((1, 1, 2, 3))):
        path, parent, node = chance.choice(files)
        name = path.rpartition("/")[2]
        what = chance.randrange(8)
        if what < 5:
            # Where there is something: most of a journal file is zeros.
            used = len(bytes(node.data).rstrip(b"\0")) or 1
            at = chance.randrange(used)
            end = at + chance.choice((64, 512, 4096))
            node.data[at:end] = mutate(chance, bytes(node.data[at:end]), bytes(node.data[:4096]))
        elif what == 5:
            parent.entries.pop(name, None)
        elif what == 6:
            del node.data[chance.randrange(len(node.data) + 1) :]
        else:
            other = chance.choice(files)[2]
            node.data = bytearray(other.data)
        done.append(f"{path}: {what}")
    return done


def _copy(node: tree.Node) -> tree.Node:
    made = tree.Node(node.mode, node.uid, node.gid, node.mtime_ns, data=bytearray(node.data))
    made.entries = {name: _copy(child) for name, child in node.entries.items()}
    return made


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory if there is one: syncs cost nothing there."""
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="omq-", dir=where) as name:
        yield Path(name)


def test_recovery(spool: tree.Node, memory: Path) -> None:
    """A start with whatever lies there: it serves what is whole, or refuses with an error of ours;
    it never raises anything else and never invents a message."""
    chance = random.Random(4 if not LONG else None)
    served = refused = 0
    for number in range(RECOVERIES):
        root = _copy(spool)
        harm = _harm(chance, root)
        store(root, memory / "spool")
        try:
            found = contents(memory / "spool")
        except OmqError:
            refused += 1
            continue
        served += 1
        bad = [item for item in found if _invented(item)]
        assert not bad, f"{number}: {harm}: {bad}"
    assert served > refused, "nearly every damage stops the start"
    print(f"{served} served, {refused} refused")


def _invented(found: Found) -> bool:
    """A body that nobody put, read without an error."""
    if found.bad:
        return not found.key.startswith("body of")
    return not (found.key.startswith("p:") and int(found.key[2:]) < MESSAGES + 10)


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
@pytest.mark.parametrize("place", ["msgpool/poolctrl", "journal", "msgpool/pool"])
def test_other_things_than_files(spool: tree.Node, tmp_path: Path, place: str, kind: str) -> None:
    """A link, a pipe or a directory in a file's place is not followed and does not hang us."""
    root = tmp_path / "spool"
    store(_copy(spool), root)
    if place == "journal":
        victim = sorted((root / "journal").glob("0*.jnl"))[-1]
    elif place == "msgpool/pool":
        victim = next(path for path in sorted((root / "msgpool").iterdir())
                      if path.name.endswith("QP"))
    else:
        victim = root / place
    victim.rename(tmp_path / "elsewhere")
    if kind == "link":
        victim.symlink_to(tmp_path / "elsewhere")
    elif kind == "fifo":
        os.mkfifo(victim)
    else:
        victim.mkdir()
    before = (tmp_path / "elsewhere").read_bytes()
    try:
        contents(root)
    except OmqError as error:
        assert str(victim.name) in str(error)
    mode = victim.lstat().st_mode
    assert {"link": stat.S_ISLNK, "fifo": stat.S_ISFIFO, "directory": stat.S_ISDIR}[kind](mode)
    assert (tmp_path / "elsewhere").read_bytes() == before
    shutil.rmtree(root)
