"""Two members of an instance on hosts of their own, a real etcd between them, and a client of each
that puts one message after the other: what each was told, and when, is judged from outside."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import omq
from omq.base import clock
from omq.base.errors import OmqError
from omq.storage.instance_file import Role
from omq.storage.spool import open_spool
from tests.process import instance as world
from tests.process.etcd_cluster import Cluster
from tests.process.instance import CORE_SERVICES, MANAGER, WRITER
from tests.process.ipc_space import ipc_space
from tests.process.net_hosts import MIDDLE, Hosts, hosts
from tests.process.processes import WAIT_S
from tests.process.test_standby import OMQ
from tests.waiting import until

LEASE_S = 4
A, B = "a", "b"


class Putting:
    """A client of one member, in a thread; it comes again until it is stopped. `acked`: bodies, and
    when it had the answer (time since boot, ns)."""

    def __init__(self, root: Path, name: str) -> None:
        self.acked: list[tuple[bytes, int]] = []
        self.root, self._name = root, name
        self._stop = threading.Event()
        self._i = 0
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            with suppress(OmqError):  # there is no manager, or not any more
                self._puts()
            self._stop.wait(0.05)

    def _puts(self) -> None:
        with omq.connect(self.root, name=self._name, timeout_s=1) as c:
            while not self._stop.is_set():
                body = f"{self._name} {self._i}".encode()
                self._i += 1
                c.put("A", body)
                self.acked.append((body, clock.monotonic_ns()))

    def more(self, count: int = 5) -> None:
        """Until so many more are acknowledged."""
        wanted = len(self.acked) + count
        until(lambda: len(self.acked) >= wanted, f"{self._name} gets no answers")

    def end(self) -> None:
        self._stop.set()
        self.thread.join(WAIT_S)
        assert not self.thread.is_alive()


class Lease:
    """See the module."""

    def __init__(self, place: Path, made: world.Instance, net: Hosts) -> None:
        self.place, self.first, self.net = place, made, net
        self.etcd = Cluster(place / "etcd", host=MIDDLE)
        self.roots = {A: made.root, B: place / "b"}
        self.addresses = {name: net.add(name) for name in (A, B)}
        self.keepers: dict[str, subprocess.Popen[bytes]] = {}
        self.putting: list[Putting] = []
        self.log = place / "log"
        self.uuid = open_spool(made.root).uuid

    def configure(self, sync: int = 1, **more: object) -> None:
        self.first.settings()
        (self.first.conf / "services.conf").write_text(CORE_SERVICES.partition("\n[idel]")[0])
        ways = ", ".join(self.way(name) for name in (A, B))
        with open(self.first.conf / "omq.conf", "a", encoding="utf-8") as conf:
            conf.write(f"\n[standby]\nstandby_sync = {sync}\nstandby_lease = {self.etcd.urls}\n"
                       f"standby_members = {ways}\n"
                       + "".join(f"{key} = {value}\n" for key, value in
                                 ({"standby_lease_s": LEASE_S} | more).items()))

    def way(self, name: str) -> str:
        """How the others reach it: not by the network of the hosts."""
        return shlex.join([*OMQ, "standby", "send", *self.place_of(name)])

    def place_of(self, name: str) -> list[str]:
        return ["--spool", str(self.roots[name]), "--conf", str(self.first.conf)]

    def run(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        own = words.index("--") if "--" in words else len(words)
        return subprocess.run([*self.net.on(name), *OMQ, "standby", *words[:own],
                               *self.place_of(name), *words[own:]], capture_output=True, text=True,
                              timeout=WAIT_S, check=False)

    def make(self) -> None:
        """A serves and is registered, B is its standby."""
        self.first.start(MANAGER, WRITER)
        self.first.ready()
        done = self.run(B, "init", "--member", B, "--", *shlex.split(self.way(A)))
        assert done.returncode == 0, done.stderr
        self.first.stop()

    def begin(self, sync: int = 1, **more: object) -> None:
        """All of it, until B is in sync (or anybody may be)."""
        self.make()
        self.etcd.start()
        self.configure(sync, **more)
        done = self.run(A, "register")
        assert done.returncode == 0, done.stderr
        self.keep(A)
        self.keep(B)
        self.is_set([B] if sync else None)

    def keep(self, name: str, *before: str) -> None:
        words = before or tuple(OMQ)
        with open(self.log, "ab") as log:
            self.keepers[name] = subprocess.Popen(
                [*self.net.on(name), *words, "standby", "keep", *self.place_of(name)], stderr=log,
                stdout=log, stdin=subprocess.DEVNULL)

    # what is there

    def told(self) -> str:
        return self.log.read_text()[-6000:] + self.etcd.said()[-2000:]

    def is_set(self, members: list[str] | None) -> None:
        until(lambda: (self.etcd.key(self.uuid, "in_sync") or {}).get("members", 0) == members,
              self.told)

    def term(self) -> dict[str, Any]:
        return self.etcd.key(self.uuid, "term") or {}

    def role(self, name: str) -> Role:
        return open_spool(self.roots[name]).instance.role

    def state(self, name: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.roots[name] / "run/lease.json").read_text())
        except (OSError, ValueError):
            return {}
        return found

    def reaches(self, name: str, state: str) -> None:
        until(lambda: self.state(name).get("state") == state, self.told)

    def holders(self) -> list[str]:
        """Who says that it has the lease, and is there to say it."""
        return [name for name in self.roots if self.state(name).get("state") == "held"
                and self.keepers[name].poll() is None]

    def protection(self, name: str) -> str:
        try:
            return str(json.loads((self.roots[name] / "run/protection.json").read_text())["state"])
        except FileNotFoundError:
            return ""

    def events(self, name: str, number: int) -> list[dict[str, Any]]:
        path = self.roots[name] / "logs/events.log"
        found = [json.loads(line) for line in path.read_text().splitlines()]
        return [each for each in found if each["event"] == number]

    # what happens

    def puts(self, name: str) -> Putting:
        made = Putting(self.roots[name], name)
        self.putting.append(made)
        return made

    def processes(self, name: str) -> list[int]:
        """The keeper's and all below it, itself first."""
        found, left = [], [self.keepers[name].pid]
        while left:
            pid = left.pop()
            found.append(pid)
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                with suppress(OSError):
                    left += map(int, task.read_text().split())
        return found

    def signal(self, name: str, number: signal.Signals) -> None:
        """To all of a member."""
        for pid in self.processes(name):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self, name: str) -> None:
        """As a power cut ends it: the daemons first cannot say anything."""
        found = self.processes(name)
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
        self.keepers[name].wait(WAIT_S)
        until(lambda: all(clock.process_state(pid) in ("", "Z", "X") for pid in found), self.told)

    def serves(self, name: str, term: int) -> None:
        until(lambda: self.role(name) is Role.PRIMARY and self.term() == {
            "term": term, "member": name if term else "", "began": True}, self.told)

    # judged

    def judge(self) -> None:
        """No two members have acknowledged at one time, and whoever is primary now has all of it,
        once."""
        for each in self.putting:
            each.end()
        spans = sorted((each.acked[0][1], each.acked[-1][1]) for each in self.putting
                       if each.acked)
        assert all(before[1] < after[0] for before, after in pairwise(spans)), (
            spans)
        until(lambda: len(self.holders()) == 1, self.told)  # each tells it a moment later
        (serving,) = self.holders()
        with omq.connect(self.roots[serving], name="judge", timeout_s=WAIT_S) as c:
            found: list[bytes] = []
            with c.reader("A", batch=100) as reader:
                while batch := reader.next(timeout_s=0):
                    for message in batch:
                        assert message.body is not None
                        found.append(message.body)
                        message.done()
        assert len(set(found)) == len(found)
        lost = {body for each in self.putting for body, _ in each.acked} - set(found)
        assert not lost, sorted(lost)[:10]

    def end(self) -> None:
        for each in self.putting:
            each.end()
        for name, keeper in self.keepers.items():
            if keeper.poll() is None:
                self.signal(name, signal.SIGCONT)
                self.kill(name)
        self.etcd.end()
        self.first.abandon()


@contextmanager
def lease_world(place: Path) -> Iterator[Lease]:
    """Skips where there are no hosts."""
    with hosts() as net, ipc_space() as space:
        made = Lease(place, world.Instance(place, space), net)
        try:
            yield made
        finally:
            made.end()
