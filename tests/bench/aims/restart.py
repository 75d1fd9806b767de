"""Restart with a deep queue, the page cache of its files dropped: omq, Redis, PostgreSQL, RabbitMQ.

Each gets the same backlog, is ended in order and then killed, and started again; the time goes from
the start of the process to the first message in a reader's hands. The caches are dropped by
posix_fadvise(2) on every file in the system's own folder after they are synced: nothing else on the
machine loses its cache. omq's restart is measured once more when twice as many messages as wait
have lived and died, with the pool up to date; when it is killed right after such work, with the
pool behind; and "warm": in order, with nothing dropped.
"""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

from tests.bench.aims.finding import Finding, Setting, at_most, said
from tests.bench.clients import Load
from tests.bench.crowd import Ledger, crowd
from tests.bench.instance import POOL_WRITER, BenchError
from tests.bench.peers.bench_peers import make
from tests.bench.peers.clients import filler
from tests.bench.peers.omq_peer import OmqPeer
from tests.bench.peers.peer import Peer
from tests.bench.peers.processes import pause
from tests.bench.peers.rounds import running

PEERS = ("redis", "postgresql", "rabbitmq-classic")
BODY_BYTES, BATCH, FILLERS = 200, 1000, 2
SECONDS_OF_MILLION = 2.0
FIRST_BOUND_S = 300.0
BACK_BOUND_S = 20.0
SAME_MAX = 1.2  # times the restart before: independent of what has died
_SPARE = 50_000


def bench(setting: Setting) -> list[Finding]:
    ours = OmqPeer(setting.folder("omq"), setting.depth + _SPARE)
    others = [] if setting.quick else [make(name, setting.root) for name in PEERS]
    found = {peer.name: _measure(peer, setting.depth) for peer in (*others, ours)}
    findings = [_deep(found, ours, others, setting.depth)]
    findings.append(at_most(
        "restart: independent of what has lived and died", found["omq"]["killed_after"],
        SAME_MAX * max(0.1, found["omq"]["killed"]),
        f"{found['omq']['killed_after']:.2f} s after {2 * setting.depth:,} more put and done, "
        f"{found['omq']['killed']:.2f} s before"))
    findings.append(Finding(
        "restart in order, nothing dropped (\"warm\")", f"{found['omq']['warm']:.2f} s at "
        f"{setting.depth:,}", None))
    return findings


def _deep(found: dict[str, dict[str, float]], ours: Peer, others: list[Peer], depth: int
          ) -> Finding:
    mine = found[ours.name]
    words = ", ".join(
        f"{peer.title} {found[peer.name]['ordered']:.1f} and {found[peer.name]['killed']:.1f} s "
        f"(omq {mine['killed'] / found[peer.name]['killed']:.2f} x)" for peer in others)
    limit = SECONDS_OF_MILLION * max(1.0, depth / 1_000_000)
    return at_most(
        f"restart, cold, {depth:,} messages, <= {limit:g} s",
        max(mine["ordered"], mine["killed"], mine["killed_busy"]), limit,
        f"{mine['ordered']:.2f} s after an order, {mine['killed']:.2f} s after kill -9, "
        f"{mine['killed_busy']:.2f} s after kill -9 at full work"
        + (f"; {words}" if words else ""), systems=found)


def _measure(peer: Peer, depth: int) -> dict[str, float]:
    """Seconds to the first message by way of ending; see the module."""
    found: dict[str, float] = {}
    with running([peer]):
        peer.thaw()
        _fill(peer, depth)
        steps: list[tuple[str, bool]] = [("ordered", False), ("killed", True)]
        if isinstance(peer, OmqPeer):
            steps += [("killed_after", True), ("killed_busy", True), ("warm", False)]
        for name, kills in steps:
            if name in ("killed_after", "killed_busy"):
                live_and_die(peer, 2 * depth)
            if isinstance(peer, OmqPeer) and name != "killed_busy":
                peer.settle()
            (peer.kill if kills else peer.stop)()
            if name != "warm":
                drop_caches(peer.folder)
            began = time.monotonic()
            peer.serve()
            _first(peer)
            found[name] = time.monotonic() - began
            if isinstance(peer, OmqPeer):
                peer.instance.start(POOL_WRITER)  # not needed for a message to be given
            said(f"restart: {peer.title}, {name}: {found[name]:.2f} s\n")
            _check(peer, depth)
    return found


def _fill(peer: Peer, depth: int) -> None:
    began = time.monotonic()
    load = Load(BODY_BYTES, batch=BATCH)
    ledger = Ledger()
    with crowd(peer, FILLERS) as made:
        shares = [depth // FILLERS + (number < depth % FILLERS) for number in range(FILLERS)]
        for share in shares:
            made.add(partial(filler, peer.putter, ledger.mark(), load, share))
        made.begin()
        made.results(list(range(FILLERS)))
    said(f"restart: {peer.title}: {depth / (time.monotonic() - began):,.0f} messages/s put\n")
    _check(peer, depth)


def live_and_die(peer: Peer, count: int) -> None:
    """Put and finish so many: the depth stays."""
    putter, getter = peer.putter(), peer.getter(0, BATCH)
    bodies = [bytes(BODY_BYTES)] * BATCH
    for _ in range(-(-count // BATCH)):
        putter.put(bodies)
        if len(getter.take(BATCH, 10.0)) != BATCH:
            raise BenchError(f"{peer.title}: messages do not come")
    putter.close()
    getter.close()


def _first(peer: Peer) -> None:
    """One message in hand, given back by going without finishing it."""
    wire = peer.getter(0, 1)
    bodies = wire.take(1, FIRST_BOUND_S)
    if len(bodies) != 1 or len(bodies[0]) != BODY_BYTES:
        raise BenchError(f"{peer.title}: no message after a restart")
    wire.abandon()


def _check(peer: Peer, depth: int) -> None:
    """What an abandoned client held may come back a little later."""
    deadline = time.monotonic() + BACK_BOUND_S
    while (found := peer.waiting()) != depth and time.monotonic() < deadline:
        pause(0.05)
    if found != depth:
        raise BenchError(f"{peer.title}: {found:,} messages wait, not {depth:,}")


def drop_caches(folder: Path) -> None:
    """Of every file there; dirty pages cannot be dropped, so they are synced first."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)

