"""What a lease in etcd costs, and how long a failover takes: clients put one message after the
other into a primary with a standby, by turns without a lease and with one; then, with the lease,
everything of the primary is killed and a client of the standby waits for its first answer.

    python -m tests.bench.lease_cost [SECONDS [ROUNDS [CLIENTS]]]

As root: the members are hosts of their own on a network of this machine, with three members of a
real etcd. Printed are puts a second, medians, and the median of the ratios of the rounds; the
processor time a put takes of both members (keepers included) and of etcd; the same of a second in
which nothing is put; and of each failover the seconds from the kill to the first acknowledged put,
with a lease of LEASE_S seconds. No reply waits for the standby. The order changes with each round.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

from tests.bench.standby_sync import PUT, _processor_s
from tests.process.instance import MANAGER, WRITER
from tests.process.lease_world import LEASE_S, A, B, Lease, lease_world
from tests.process.test_standby import OMQ
from tests.process.test_standby_sync import children_of
from tests.waiting import until


class Found(NamedTuple):
    """Puts a second; ms of processor a put, and a second in which nothing is put; the same of
    etcd; seconds of the failover."""

    rate: float
    put_ms: float
    idle_ms: float
    etcd_put_ms: float = 0.0
    etcd_idle_ms: float = 0.0
    failover_s: float = 0.0


def puts(members: Lease, seconds: float, clients: int) -> float:
    """A second, of all clients together."""
    children = [subprocess.Popen(
        [sys.executable, "-c", PUT, str(members.roots[A]), str(seconds)], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True) for _ in range(clients)]
    try:
        for child in children:
            assert child.stdout is not None and child.stdout.readline() == "ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        return sum(float(child.communicate()[0]) for child in children)
    finally:
        for child in children:
            child.kill()
            child.wait()


def measured(members: Lease, pids: list[int], etcd: list[int], seconds: float, clients: int
             ) -> Found:
    """Without a failover."""
    spent = [_processor_s(each) for each in (pids, etcd)]
    threading.Event().wait(seconds)  # what is measured is that nothing happens
    idle = [_processor_s(each) for each in (pids, etcd)]
    rate = puts(members, seconds, clients)
    done = [_processor_s(each) for each in (pids, etcd)]
    (put, etcd_put), (none, etcd_none) = (
        [1000 * (after - before) / count for before, after in zip(first, last, strict=True)]
        for first, last, count in ((idle, done, rate * seconds), (spent, idle, seconds)))
    return Found(rate, put, none, etcd_put, etcd_none)


def without(folder: Path, seconds: float, clients: int) -> Found:
    with lease_world(folder) as members:
        members.make()
        members.first.settings()
        members.first.start(MANAGER, WRITER)
        members.first.ready()
        follower = subprocess.Popen([*OMQ, "standby", "follow", *members.place_of(B)],
                                    stderr=subprocess.DEVNULL)
        try:
            path = members.roots[B] / "run/standby.json"
            until(lambda: path.exists() and '"following": true' in path.read_text(), "no standby")
            pids = [*(each.pid for each in members.first.children.values()), follower.pid,
                    *children_of(follower.pid)]
            return measured(members, pids, [], seconds, clients)
        finally:
            follower.terminate()
            follower.wait()
            members.first.stop()


def with_lease(folder: Path, seconds: float, clients: int) -> Found:
    with lease_world(folder) as members:
        members.begin(sync=0)
        path = members.roots[B] / "run/standby.json"
        until(lambda: path.exists() and '"following": true' in path.read_text(), members.told)
        pids = [*members.processes(A), *members.processes(B)]
        etcd = [each.pid for each in members.etcd.processes if each is not None]
        found = measured(members, pids, etcd, seconds, clients)
        new = members.puts(B)
        began = time.monotonic()
        members.kill(A)
        new.more(1)
        took = time.monotonic() - began
        new.end()
        return found._replace(failover_s=took)


def main(arguments: list[str]) -> int:
    """The command."""
    seconds = float(arguments[0]) if arguments else 5.0
    rounds, clients = (int(arguments[at]) if len(arguments) > at else given
                       for at, given in ((1, 3), (2, 1)))
    load = os.getloadavg()[0]
    found: tuple[list[Found], list[Found]] = ([], [])
    for turn in range(rounds):
        for lease in ((False, True), (True, False))[turn % 2]:
            with tempfile.TemporaryDirectory() as folder:
                found[lease].append(
                    (with_lease if lease else without)(Path(folder), seconds, clients))
    plain, leased = ([statistics.median(each) for each in zip(*some, strict=True)]
                     for some in found)
    ratios = [two.rate / one.rate for one, two in zip(*found, strict=True)]
    print(f"{clients} clients: {plain[0]:,.0f} puts a second without a lease, {leased[0]:,.0f} "
          f"with: {statistics.median(ratios):.2f}; {plain[1]:.2f} and {leased[1]:.2f} ms of "
          f"processor a put (etcd {leased[3]:.2f}); in a second without puts {plain[2]:.0f} and "
          f"{leased[2]:.0f} ms (etcd {leased[4]:.0f}); {rounds} rounds, load {load:.1f} before")
    took = ", ".join(f"{each.failover_s:.1f}" for each in found[True])
    print(f"failover, with a lease of {LEASE_S} s: {took} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
