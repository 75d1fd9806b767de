"""The aims of standbys and of the object store that are not about a put that waits: what a standby
costs that nothing waits for, how long a promotion and a restore take, and how much work is lost.

    python -m tests.bench.standby_aims [PART [MESSAGES [SECONDS [ROUNDS]]]]

PART is one of those below, or `all` (the default). MESSAGES (1,000,000) have 100 bytes.

    asynchronous  eight clients put for SECONDS, by turns without a standby and with one: puts a
                  second, and the manager's processor time a put
    promotion     kill -9 of a primary with MESSAGES, 1,000 of them in a reader's hands; until the
                  standby that followed is promoted, and until it has answered a put
    restore       MESSAGES out of an object store (file://), until the new instance has answered
    lost          kill -9 of everything while a client puts: what of it an asynchronous standby, or
                  the object store, lacks, in messages and in seconds

Both spools, and the place of the objects, are on one disk.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import omq
from omq.base.errors import OmqError
from omq.base.paths import SpoolPaths
from omq.format.index import Counter
from omq.services.pool.live_index import LiveIndex
from tests.bench.peers.processes import pause
from tests.bench.standby_sync import putting, running_primary
from tests.process.instance import MANAGER, WRITER, Instance
from tests.process.processes import WAIT_S, start_program
from tests.process.test_ship import Ship
from tests.process.test_standby import Pair

CLIENTS: Final = 8
BATCH: Final = 1000
IN_HAND: Final = 1000
PUT: Final = """
import json, sys, time
import omq
times, count = [], 0
with omq.connect(sys.argv[1], name="bench", timeout_s=2) as client:
    print("ready", flush=True)
    try:
        while True:
            client.put("A", b"%d" % count)
            times.append(time.monotonic())
            count += 1
    except omq.OmqError:
        pass
print(json.dumps(times))
"""


def fill(primary: Instance, messages: int) -> None:
    """So many messages, acknowledged."""
    with primary.connect() as client:
        for _ in range(messages // BATCH):
            client.put_many("A", [bytes(100)] * BATCH)


def children_s() -> float:
    """Processor time of the commands that have ended."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


@contextmanager
def served(pair: Pair, root: Path) -> Iterator[omq.Client]:
    """The instance in `root`, when it has answered a put."""
    child = start_program(MANAGER, ["--spool", str(root), "--conf", str(pair.primary.conf)],
                          output=pair.log)
    try:
        with omq.connect(root, name="judge", timeout_s=WAIT_S) as client:
            client.put("B", b"first")
            yield client
    finally:
        child.signal(signal.SIGTERM)
        child.wait()


@contextmanager
def gone(primary: Instance) -> Iterator[None]:
    """Its spool is lost; what is left says at the end which System V objects are its."""
    aside = primary.root.with_name("gone")
    primary.root.rename(aside)
    try:
        yield
    finally:
        aside.rename(primary.root)


def messages_of(root: Path) -> int:
    """On all queues of the instance that runs there."""
    index = LiveIndex(SpoolPaths(root))
    try:
        return index.counter(Counter.MESSAGES)
    finally:
        index.close()


def asynchronous(folder: Path, messages: int, seconds: float, rounds: int) -> str:
    """See the module."""
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for turn in range(rounds):
        for follows in ((False, True), (True, False))[turn % 2]:
            place = folder / f"{turn}{follows}"
            place.mkdir()
            with running_primary(place) as primary:
                pair = Pair(primary, place / "standby")
                pair.log.touch()
                try:
                    if follows:
                        pair.make()
                        pair.follow()
                        pair.caught_up()
                    found[follows].append(putting(primary, [primary.children[MANAGER].pid],
                                                  seconds, CLIENTS))
                finally:
                    pair.end()
    rates = [statistics.median(each[0] for each in found[follows]) for follows in (False, True)]
    spent = [statistics.median(each[1] for each in found[follows]) for follows in (False, True)]
    ratios = [two[0] / one[0] for one, two in zip(found[False], found[True], strict=True)]
    costs = [one[1] / two[1] for one, two in zip(found[False], found[True], strict=True)]
    return (f"{CLIENTS} clients, {rates[0]:,.0f} puts a second without a standby, {rates[1]:,.0f} "
            f"with one that nothing waits for ({statistics.median(ratios):.2f}); {spent[0]:.3f} "
            f"and {spent[1]:.3f} ms of the manager ({statistics.median(costs):.2f})")


def promotion(folder: Path, messages: int, seconds: float, rounds: int) -> str:
    """See the module."""
    del seconds, rounds
    with running_primary(folder, messages * 11 // 10 + 10_000) as primary:
        pair = Pair(primary, folder / "standby")
        pair.log.touch()
        try:
            pair.make()
            follower = pair.follow()
            fill(primary, messages)
            held = 0
            # What it has read ends with the manager, and so does its line.
            with suppress(OmqError), primary.connect(timeout_s=1) as client, client.reader(
                    "A", batch=100) as reader:
                while held < IN_HAND:
                    held += len(reader.next(timeout_s=WAIT_S))
                pair.caught_up()
                primary.kill(MANAGER, WRITER)
            with gone(primary):
                began = time.monotonic()
                follower.send_signal(signal.SIGTERM)
                follower.wait(WAIT_S)
                ended, before = time.monotonic(), children_s()
                done = pair.run("promote")
                assert done.returncode == 0, done.stderr
                promoted, spent = time.monotonic(), children_s() - before
                with served(pair, pair.root):
                    answered = time.monotonic()
                    there = messages_of(pair.root)
            assert there == messages + 1, there
        finally:
            pair.end()
    return (f"{messages:,} messages, {held:,} in hand: {answered - began:.2f} s from the loss to "
            f"the first put ({ended - began:.2f} the last checkpoint of the standby, "
            f"{promoted - ended:.2f} the promotion with {spent:.2f} s of processor time, "
            f"{answered - promoted:.2f} the start)")


def restore(folder: Path, messages: int, seconds: float, rounds: int) -> str:
    """See the module."""
    del seconds, rounds
    with running_primary(folder, messages * 11 // 10 + 10_000) as primary:
        (folder / "place").mkdir()
        ship, root = Ship(primary, f"file://{folder}/place"), folder / "restored"
        pair = Pair(primary, root)
        ship.once()
        fill(primary, messages)
        ship.once()
        primary.kill(MANAGER, WRITER)
        began, before = time.monotonic(), children_s()
        done = ship.restore(root, "--take-place")
        assert done.returncode == 0, done.stderr
        restored, spent = time.monotonic(), children_s() - before
        with served(pair, root):
            answered = time.monotonic()
            there = messages_of(root)
        assert there == messages + 1, there
    return (f"{messages:,} messages in {restored - began:.1f} s ({spent:.1f} s of processor time), "
            f"and {answered - restored:.1f} s until the first put; all of them from the journal, "
            "after an empty base")


def lost(folder: Path, messages: int, seconds: float, rounds: int) -> str:
    """See the module."""
    del messages, rounds
    said = []
    for how in ("an asynchronous standby", "the object store"):
        place = folder / how.split()[-1]
        place.mkdir()
        with running_primary(place) as primary:
            pair, ends = Pair(primary, place / "standby"), place / "ended"
            pair.log.touch()
            ship = Ship(primary, f"file://{ends}")
            ends.mkdir()
            try:
                if "standby" in how:
                    pair.make()
                    pair.follow()
                    pair.caught_up()
                else:
                    ship.once()
                    ship.run()
                    ship.shipped()
                acked = _put_until_killed(primary, pair, ship, seconds)
                with gone(primary):
                    there = _there(pair, ship, "standby" in how)
            finally:
                pair.end()
                ship.end()
        lacks = len(acked) - there
        age = acked[-1] - acked[there - 1] if lacks > 0 else 0.0
        said.append(f"{how}: {max(0, lacks)} of {len(acked):,} acknowledged messages lost, "
                    f"{age * 1000:.0f} ms")
    return "; ".join(said)


def _put_until_killed(primary: Instance, pair: Pair, ship: Ship, seconds: float) -> list[float]:
    """When each message was acknowledged."""
    client = subprocess.Popen([sys.executable, "-c", PUT, str(primary.root)],
                              stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None and client.stdout.readline() == "ready\n"
    pause(seconds)  # so long is what was asked for
    for child in (*pair.children, *ship.children):  # first: what is not there by now is lost
        child.send_signal(signal.SIGKILL)
    primary.kill(MANAGER, WRITER)
    found: list[float] = json.loads(client.communicate()[0])
    return found


def _there(pair: Pair, ship: Ship, standby: bool) -> int:  # noqa: FBT001
    root = pair.root
    if standby:
        done = pair.run("promote")
    else:
        root = pair.root.with_name("restored")
        done = ship.restore(root, "--take-place")
    assert done.returncode == 0, done.stderr
    with served(pair, root):
        return messages_of(root) - 1


PARTS: Final[dict[str, Callable[[Path, int, float, int], str]]] = {
    "asynchronous": asynchronous, "promotion": promotion, "restore": restore, "lost": lost}


def main(arguments: list[str]) -> int:
    """The command."""
    wanted = arguments[0] if arguments else "all"
    messages = int(arguments[1]) if len(arguments) > 1 else 1_000_000
    seconds = float(arguments[2]) if len(arguments) > 2 else 5.0
    rounds = int(arguments[3]) if len(arguments) > 3 else 3
    for name in PARTS if wanted == "all" else [wanted]:
        load = os.getloadavg()[0]
        with tempfile.TemporaryDirectory() as folder:
            said = PARTS[name](Path(folder), messages, seconds, rounds)
        print(f"{name}: {said}; load {load:.1f} before, {os.getloadavg()[0]:.1f} after", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
