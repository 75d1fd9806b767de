"""Large bodies: bytes per second of durable puts and gets, beside synced sequential writes.

The disk's own rate is that of one process which writes pieces of the same size one after the other
into a file of zeros, each piece synced: the fastest a lone durable write of that size can be.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

from tests.bench.aims.finding import Finding, Setting, at_least, said
from tests.bench.peers.omq_peer import OmqPeer
from tests.bench.peers.peer import Wire
from tests.bench.peers.rounds import running

MIB = 1 << 20
SIZES = ((MIB, 64), (32 * MIB, 8))  # bytes, messages a round
SHARE_MIN = 0.5
IDEL = "idel.server"


def bench(setting: Setting) -> list[Finding]:
    peer = OmqPeer(setting.folder("large"), 1000)
    findings = []
    with running([peer]):
        peer.thaw()
        peer.instance.start(IDEL)  # what has ended is removed, or written over
        for size, count in SIZES[:1] if setting.quick else SIZES:
            count = 4 if setting.quick else count
            findings.append(_one(peer, setting, size, count))
        peer.instance.stop(IDEL)
    return findings


def _one(peer: OmqPeer, setting: Setting, size: int, count: int) -> Finding:
    body = os.urandom(size)
    disk, puts, gets = [], [], []
    putter, getter = peer.putter(), peer.getter(0, 1)
    file = setting.root / "sequential"
    for number in range(setting.timing.rounds):
        disk.append(_sequential(file, body, count))
        puts.append(_put(putter, body, count))
        gets.append(_get(getter, body, count))
        said(f"large: round {number + 1}, {size >> 20} MiB: disk {disk[-1]:.0f}, put "
             f"{puts[-1]:.0f}, get and done {gets[-1]:.0f} MB/s\n")
    putter.close()
    getter.close()
    file.unlink()
    shares = [put / own for put, own in zip(puts, disk, strict=True)]
    share = statistics.median(shares)
    return at_least(
        f"{size >> 20} MiB bodies: put at 50 % of the disk's synced sequential rate or more",
        share, SHARE_MIN, f"{share:.0%}: put {statistics.median(puts):,.0f} MB/s, disk "
        f"{statistics.median(disk):,.0f} MB/s; get and done {statistics.median(gets):,.0f} MB/s",
        shares=shares)


def _sequential(path: Path, body: bytes, count: int) -> float:
    """MB/s of synced writes over what is there already: no time goes into making the file."""
    if not path.exists():
        with path.open("wb") as made:
            for _ in range(count):
                made.write(bytes(len(body)))
            os.fsync(made.fileno())
    fd = os.open(path, os.O_WRONLY)
    began = time.perf_counter()
    for _ in range(count):
        left = memoryview(body)
        while left:
            left = left[os.write(fd, left):]
        os.fdatasync(fd)
    passed = time.perf_counter() - began
    os.close(fd)
    return len(body) * count / passed / 1e6


def _put(wire: Wire, body: bytes, count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        wire.put([body])
    return len(body) * count / (time.perf_counter() - began) / 1e6


def _get(wire: Wire, body: bytes, count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        (found,) = wire.take(1, 60.0)
        assert found == body, "a body came back changed"
    assert wire.take(1, 0.0) == [], "there is a message too many"
    return len(body) * count / (time.perf_counter() - began) / 1e6
