"""Where a start of the queue manager spends its processor time, step by step.

    python -m tests.bench.start_steps [MESSAGES] [BUSY]

Fills a spool with MESSAGES (100,000), stops in order, and takes the steps of a start in this
process, with the page cache of the spool dropped: the loop over plain records and numpy by turns,
three rounds. With BUSY so many more messages are put and finished before both daemons are killed
with the pool behind, and the start has their frames to redo (once: then the pool is up to date).
One line a step: seconds of processor time, user and kernel, and by the clock.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omq.base.config import load_settings
from omq.core.check.invariants import check_index
from omq.core.engine.state import Core
from omq.core.index.tables import Tables
from omq.core.load.missing_bodies import missing_bodies
from omq.core.load.rebuild import load
from omq.core.load.recovery import recover
from omq.services.manager.parts import plain_rows
from omq.storage import spool
from omq.storage.pool import PoolFiles
from omq.storage.slots import SlotAllocator
from omq.storage.volatile import VolatileBodies
from tests.bench.aims.restart import BATCH, BODY_BYTES, drop_caches, live_and_die
from tests.bench.peers.omq_peer import OmqPeer
from tests.bench.peers.rounds import running

ROUNDS = 3


def step(what: str, work: Callable[[], Any]) -> Any:
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    result = work()
    passed, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    print(f"  {what:36} {after.ru_utime - before.ru_utime:.3f} + "
          f"{after.ru_stime - before.ru_stime:.3f} s, {passed:.3f} s by the clock")
    return result


def start(folder: Path, *, plain: bool) -> None:
    """The steps of omq.services.manager.parts up to the index, and what an index costs to check."""
    info = spool.open_spool(folder / "spool", writer=True)
    paths, settings = info.paths, load_settings(folder / "conf")
    drop_caches(folder)
    pool = PoolFiles(paths, info.uuid)
    recovered = step("recover: compare, redo", lambda: recover(
        paths, settings, info.uuid, pool, lambda _text: None, term=info.instance.term))
    tables = Tables.private(settings.messages_max, settings.queue_entries_max, 1000)
    core = Core(tables, SlotAllocator(), VolatileBodies(paths, settings, info.uuid), info.uuid)
    core.now_ns = time.time_ns()
    rows = plain_rows() if plain else None
    loaded = step(f"load, by {'the loop' if rows else 'numpy'}",
                  lambda: load(core, pool, SlotAllocator(), lambda _text: None, rows))
    step("are the bodies there", lambda: missing_bodies(core, paths))
    tables.publish()
    step("(the invariants of the index)", lambda: check_index(tables.buffer, tables.layout))
    pool.close()
    print(f"  {loaded.messages:,} messages, {recovered.frames:,} frames redone, load "
          f"{os.getloadavg()[0]:.1f}")


def main(argv: list[str]) -> int:
    count, busy = [int(each) for each in (*argv, *("100000", "0")[len(argv):])]
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".start-") as name:
        folder = Path(name)
        peer = OmqPeer(folder, count + 50_000)
        with running([peer]):
            peer.thaw()
            putter = peer.putter()
            for _ in range(count // BATCH):
                putter.put([bytes(BODY_BYTES)] * BATCH)
            peer.settle()
            live_and_die(peer, busy)
            putter.close()
            (peer.kill if busy else peer.stop)()
            for _ in range(ROUNDS):
                for plain in (True, False):
                    start(folder, plain=plain)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
