"""The copy with which a standby begins: cut at any piece it goes on, with what is on its disk;
hostile words about that, and a rate."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from omq.base.errors import Exit, StreamBroken
from omq.base.paths import SpoolPaths
from omq.format.standby import Piece, PieceKind
from omq.services.standby.base_had import CHUNK_BYTES, Had, digest, survey
from omq.services.standby.base_receiving import BaseReceiving
from omq.services.standby.follower import REST_MAX_S, Pace
from omq.storage.files import open_file
from omq.storage.spool import lock, make_directories
from tests.process.instance import MANAGER, WRITER
from tests.process.test_standby import Pair, client, harmed, pair

__all__ = ["pair"]


def cut_at(pair: Pair, pieces: int) -> None:
    """A copy whose line ends in the middle of that piece."""
    done = pair.run("init", "--member", "b", "--", *harmed(pair, f"end:{pieces}"))
    assert done.returncode == Exit.TEMPORARY, done.stderr
    assert not (pair.root / "instance.json").exists() and (pair.root / "copying").exists()


def test_a_copy_that_is_cut_goes_on(pair: Pair) -> None:
    """At each of its pieces, while the primary's pool changes; whatever is here already is not sent
    once more, and what is not of this copy goes."""
    large = [os.urandom(1_500_000) for _ in range(3)]
    with client(pair) as c:
        for body in large:
            c.put("A", body)
        c.put("A", b"first")
    for pieces in (1, 4, 9, 16):
        cut_at(pair, pieces)
        with client(pair) as c:
            c.put("A", b"after %d" % pieces)
    strange = pair.root / "store/0000009999.sto"
    strange.write_bytes(b"of an earlier run")
    for torn in sorted(pair.root.glob("msgpool/*QP"))[:1]:  # as a power cut left it
        torn.write_bytes(torn.read_bytes()[:-4096] + bytes(8192))
    hold = lock(pair.root / "copying", "a test")
    done = pair.run("init", "--member", "b", "--", *pair.send)
    assert done.returncode == Exit.TEMPORARY and "a test" in done.stderr
    hold.close()
    counted = pair.log.with_name("counted")
    done = pair.run("init", "--member", "b", "--rate", "1G", "--", sys.executable, "-m",
                    "tests.process.bad_wire", f"count:{counted}", *pair.send)
    assert done.returncode == 0, done.stderr
    sent = {PieceKind(int(kind)): count for kind, count in json.loads(counted.read_text()).items()}
    assert sent[PieceKind.COPY] < 1_500_000, "a chunk that the torn end lies in"
    # Each comes with the block that names it; of the copy none but the one that was cut.
    assert sent[PieceKind.CONTAINER] < 6_200_000
    assert not strange.exists() and not (pair.root / "copying").exists()
    pair.follow()
    pair.caught_up()
    pair.end()
    pair.primary.kill(MANAGER, WRITER)
    pair.primary.root.rename(pair.primary.root.with_name("gone"))
    assert pair.run("promote").returncode == 0
    assert pair.bodies() == [*large, b"first", *(b"after %d" % i for i in (1, 4, 9, 16))]
    pair.primary.root.with_name("gone").rename(pair.primary.root)


def test_what_a_copy_says_that_it_has_is_looked_at(pair: Pair, tmp_path: Path) -> None:
    """By the primary, hostile words; a rate that is none; a directory of somebody's."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "letter").write_text("mine")
    pair.root = other
    done = pair.run("init", "--member", "b", "--", *pair.send)
    assert done.returncode == Exit.USAGE and (other / "letter").read_text() == "mine"
    for rate in ("0", "-1", "fast"):
        done = pair.run("init", "--member", "b", "--rate", rate, "--", *pair.send)
        assert done.returncode == Exit.USAGE and "--rate" in done.stderr, rate


def test_what_is_here_is_what_the_disk_has(tmp_path: Path) -> None:
    paths = SpoolPaths(tmp_path)
    make_directories(paths)
    (paths.msgpool / "0QP").write_bytes(b"a" * CHUNK_BYTES + b"bc")
    (paths.store / "0000000001.sto").write_bytes(b"")
    (paths.data / "0AB").mkdir()
    (paths.data / "0AB/0000000000CD").write_bytes(b"body")
    told = survey(paths)
    assert set(told["files"]) == {"msgpool/0QP", "store/0000000001.sto", "~/data/0AB/0000000000CD"}
    had = Had(told)
    assert had.chunk("msgpool/0QP", 0, b"a" * CHUNK_BYTES)
    assert had.chunk("msgpool/0QP", CHUNK_BYTES, b"bc")
    assert not had.chunk("msgpool/0QP", CHUNK_BYTES, b"bd")
    assert not had.chunk("msgpool/0QP", CHUNK_BYTES, b"b"), "it is shorter now"
    assert not had.chunk("msgpool/0QP", 2 * CHUNK_BYTES, b"bc")
    assert not had.chunk("msgpool/1QP", 0, b"a" * CHUNK_BYTES)
    for name, body, whole in (("c", b"body", True), ("d", b"bodY", False), ("e", b"body2", False),
                              ("f", b"", False)):
        (tmp_path / name).write_bytes(body)
        file = open_file(tmp_path / name)
        assert had.whole("~/data/0AB/0000000000CD", file) is whole, name
        file.close()


@pytest.mark.parametrize("told", [
    None, [], 7, "x", {}, {"chunk": CHUNK_BYTES}, {"chunk": 1, "files": {"n": [1, "00" * 16]}},
    {"chunk": CHUNK_BYTES, "files": []}, {"chunk": CHUNK_BYTES, "files": {"n": 1}},
    {"chunk": CHUNK_BYTES, "files": {"n": [1]}}, {"chunk": CHUNK_BYTES, "files": {"n": ["1", ""]}},
    {"chunk": CHUNK_BYTES, "files": {"n": [1, "xy"]}},
    {"chunk": CHUNK_BYTES, "files": {"n": [1, 0]}}])
def test_words_that_say_nothing(told: Any) -> None:
    had = Had(told)
    assert not had.chunk("n", 0, b"\0") and not had.chunk("n", 0, b"")


def test_nothing_is_taken_as_here_that_was_not_said_to_be(tmp_path: Path) -> None:
    """A primary that says of what this side lacks, or has otherwise, that it has it."""
    paths = SpoolPaths(tmp_path)
    make_directories(paths)
    (paths.msgpool / "0QP").write_bytes(b"abc")
    (paths.data / "0AB").mkdir()
    (paths.data / "0AB/0000000000CD").write_bytes(b"body")
    had = frozenset({"msgpool/0QP", "~/data/0AB/0000000000CD"})

    def copied(name: str, size: int, same: int, data: bytes = b"") -> Piece:
        return Piece(PieceKind.COPY, 0, len(name), 0, size, same, name.encode() + data)

    for piece in (copied("msgpool/1QP", 3, 3), copied("msgpool/0QP", 3, 4),
                  copied("msgpool/0QP", 3, 3, b"abc"),
                  Piece(PieceKind.CONTAINER, 0, 0, 0, 5, 5, b"~/data/0AB/0000000000CD"),
                  Piece(PieceKind.CONTAINER, 0, 0, 0, 4, 4, b"~/data/0AB/0000000000CE"),
                  Piece(PieceKind.CONTAINER, 0, 0, 0, 4, 3, b"~/data/0AB/0000000000CD")):
        copy = BaseReceiving(paths, had)
        with pytest.raises(StreamBroken):
            copy.take(piece)
        copy.close()
    copy = BaseReceiving(paths, had)
    copy.take(copied("msgpool/0QP", 2, 2))
    assert (paths.msgpool / "0QP").read_bytes() == b"ab" and copy.kept == 2, "it is shorter there"
    copy.close()
    assert digest(b"ab") != digest(b"abc")


def test_a_rate_is_kept_and_rests_are_short() -> None:
    now, slept = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    pace = Pace(1000, lambda: now[0], sleep)
    for _ in range(10):
        pace.took(500)
    assert now[0] == 5.0, "500 bytes are half a second each"
    now[0] += 100
    pace.took(1000)
    assert slept[-1] == 1.0, "a slow time is not made up for"
    pace.took(10**9)
    assert slept[-1] == REST_MAX_S
    Pace(0, lambda: now[0], sleep).took(10**12)
    assert len(slept) == 12
