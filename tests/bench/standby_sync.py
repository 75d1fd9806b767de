"""What it costs to wait for a standby: clients put one message after the other, by turns where
nothing waits and where each reply waits until a standby on this machine has it on its disk.

    python -m tests.bench.standby_sync [SECONDS [ROUNDS [CLIENTS]]]

Printed are puts a second, medians, the median of the ratios of the rounds, and the processor time a
put takes of manager, sender and standby together. Both spools are on one disk, so the standby's
sync and the primary's compete; the order changes with each round.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.process.instance import MANAGER, WRITER, Instance, instance
from tests.process.test_standby_sync import SyncPair, children_of

PUT: Final = """
import sys, time
import omq
with omq.connect(sys.argv[1], name="bench", timeout_s=60) as client:
    client.put("A", bytes(100))
    print("ready", flush=True)
    sys.stdin.readline()
    count, began = 0, time.monotonic()
    while time.monotonic() - began < float(sys.argv[2]):
        client.put("A", bytes(100))
        count += 1
    print(count / (time.monotonic() - began))
"""
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def _processor_s(pids: list[int]) -> float:
    """Of these processes so far."""
    ticks = 0
    for pid in pids:
        said = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        ticks += int(said[11]) + int(said[12])
    return ticks / _TICKS


@contextmanager
def running_primary(folder: Path, messages: int = 1_000_000) -> Iterator[Instance]:
    """An instance with room for so many messages."""
    (folder / "primary").mkdir()
    with instance(folder / "primary") as primary:
        # As shipped: other tests use small files and frequent checkpoints on purpose.
        primary.settings(messages_max=messages, queue_entries_max=messages,
                         journal_file_bytes=64 << 20, block_bytes_max=8 << 20,
                         checkpoint_interval_s=10, checkpoint_journal_bytes_max=64 << 20,
                         event_level="REPORT")
        primary.start(MANAGER, WRITER)
        primary.ready()
        try:
            yield primary
        finally:
            primary.kill()


@contextmanager
def running_pair(folder: Path, *, waits: bool, conf: str = "") -> Iterator[tuple[Instance,
                                                                                list[int]]]:
    """A primary with a standby that follows, and the processes of both. `waits`: replies wait for
    it; `conf`: more of omq.conf."""
    with running_primary(folder) as primary:
        pair = SyncPair(primary, folder / "standby")
        pair.make()
        pair.log.touch()
        shipped = (primary.conf / "omq.conf").read_text()
        if waits:
            primary.stop()
            (primary.conf / "omq.conf").write_text(
                shipped + "\n[standby]\nstandby_sync = 1\n" + conf)
            primary.start(MANAGER, WRITER)
        try:
            follower = pair.follow()
            if waits:
                pair.reaches("synced")
            with primary.connect() as client:
                client.put("A", b"first")
            pair.caught_up()
            yield primary, [primary.children[MANAGER].pid, follower.pid,
                            *children_of(follower.pid)]
        finally:
            pair.end()


def rate(folder: Path, seconds: float, clients: int, *, waits: bool) -> tuple[float, float]:
    """Puts a second of all clients; ms of processor time a put."""
    with running_pair(folder, waits=waits) as (primary, pids):
        return putting(primary, pids, seconds, clients)


def putting(primary: Instance, pids: list[int], seconds: float, clients: int
            ) -> tuple[float, float]:
    """Puts a second of all clients; ms of processor time a put of these processes."""
    children = []
    try:
        for _ in range(clients):
            children.append(subprocess.Popen(
                [sys.executable, "-c", PUT, str(primary.root), str(seconds)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        for child in children:
            assert child.stdout is not None and child.stdout.readline() == "ready\n"
        before = _processor_s(pids)
        for child in children:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        found = sum(float(child.communicate()[0]) for child in children)
        spent = _processor_s(pids) - before
        return found, 1000 * spent / (found * seconds)
    finally:
        for child in children:
            child.kill()
            child.wait()


def main(arguments: list[str]) -> int:
    """The command."""
    seconds = float(arguments[0]) if arguments else 5.0
    rounds, clients = (int(arguments[at]) if len(arguments) > at else given
                       for at, given in ((1, 3), (2, 1)))
    load = os.getloadavg()[0]
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for turn in range(rounds):
        for waits in ((False, True), (True, False))[turn % 2]:
            with tempfile.TemporaryDirectory() as folder:
                found[waits].append(rate(Path(folder), seconds, clients, waits=waits))
    alone, synced = (statistics.median(each[0] for each in found[waits]) for waits in (False, True))
    spent = [statistics.median(each[1] for each in found[waits]) for waits in (False, True)]
    ratio = statistics.median(two[0] / one[0] for one, two in
                              zip(found[False], found[True], strict=True))
    print(f"{clients} clients: {alone:,.0f} puts a second where nothing waits, {synced:,.0f} where "
          f"a standby is waited for: {ratio:.2f}; {spent[0]:.2f} and {spent[1]:.2f} ms of "
          f"processor time a put; {rounds} rounds, load {load:.1f} before")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
