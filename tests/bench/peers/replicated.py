"""Systems whose acknowledgement means a second disk: each with its copies on this machine, set so
that a put returns when the copy has it, and with the kill -9 of what serves.

`put` of a connection is one message of one client, acknowledged. `fails_over` is the time from the
kill to the first put that is acknowledged elsewhere; None: the system has no failover of its own.
"""

from __future__ import annotations

import json
import shutil
import signal
import time
from base64 import b64encode
from collections.abc import Callable
from contextlib import ExitStack, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Protocol

import omq
from omq.base.errors import OmqError
from tests.bench.instance import BenchError
from tests.bench.peers import software
from tests.bench.peers.processes import Server, free_port, pause, tree
from tests.bench.standby_sync import running_pair
from tests.process import lease_world

Put = Callable[[bytes], object]
RETRY_S = 0.01
CONFIRM_S = 1.0
FAILOVER_BOUND_S = 120.0


class Replicated(Protocol):
    """See the module. `folder` of the constructor is its own, and exists."""

    name: str
    title: str
    settings: str

    def version(self) -> str: ...
    def start(self) -> None: ...
    def putter(self) -> Put: ...
    def pids(self) -> list[int]: ...
    def fails_over(self) -> float | None: ...
    def stop(self) -> None: ...


def until_put(connect: Callable[[], Put], began: float, *errors: type[Exception]) -> float:
    """Seconds since then, when the first put is acknowledged. BenchError: none is."""
    while time.monotonic() - began < FAILOVER_BOUND_S:
        try:
            connect()(b"after")
            return time.monotonic() - began
        except errors:
            pause(RETRY_S)
    raise BenchError(f"nobody acknowledges a put {FAILOVER_BOUND_S:g} s after the kill")


class OmqStandby:
    name = "omq"
    title = "omq, a synchronous standby"
    settings = (f"standby_sync = 1, the line is a pipe; failover: keepers with a lease of "
                f"{lease_world.LEASE_S} s in an etcd of three members (as shipped 10 s), "
                "standby_lost = go_on after 1 s (as shipped it waits for another standby)")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stack = ExitStack()
        self._pids: list[int] = []

    def version(self) -> str:
        return f"omq {omq.__version__}"

    def start(self) -> None:
        primary, self._pids = self._stack.enter_context(running_pair(self.folder, waits=True))
        self._root = primary.root

    def putter(self) -> Put:
        client = omq.connect(self._root, name="bench", timeout_s=60)
        return lambda body: client.put("A", body)

    def pids(self) -> list[int]:
        return self._pids

    def fails_over(self) -> float | None:
        """Of another pair, with keepers on hosts of their own; None: there can be none here."""
        if shutil.which("etcd") is None:
            return None
        place = self.folder / "lease"
        place.mkdir()
        with lease_world.lease_world(place) as world:
            world.begin(standby_lost="go_on", standby_lost_s=1)
            world.serves(lease_world.A, 0)
            world.reaches(lease_world.A, "held")
            putting = world.puts(lease_world.A)
            putting.more()
            began = time.monotonic()
            world.kill(lease_world.A)
            return until_put(lambda: self._put_once(world.roots[lease_world.B]), began, OmqError)

    @staticmethod
    def _put_once(root: Path) -> Put:
        def put(body: bytes) -> None:
            with omq.connect(root, name="bench", timeout_s=1) as client:
                client.put("A", body)
        return put

    def stop(self) -> None:
        self._stack.close()


class PostgresPair:
    name = "postgresql"
    title = "PostgreSQL, a synchronous standby"

    def __init__(self, folder: Path) -> None:
        from tests.bench.peers.postgres import OPTIONS, PostgresPeer

        self._peer = PostgresPeer(folder)
        self._standby = Server("standby", folder)
        self.settings = (f"{self._peer.settings.partition(';')[0]}; synchronous_standby_names "
                         "'*'; INSERT by a prepared statement over a Unix socket; no failover of "
                         "its own")
        self._options = [word for key, value in OPTIONS.items() for word in (
            "-c", f"{key}={value}")]

    def version(self) -> str:
        return self._peer.version()

    def start(self) -> None:
        import subprocess

        from tests.bench.peers.processes import unprivileged

        peer = self._peer
        peer.start()
        copy, program = peer.folder / "standby.data", "usr/lib/postgresql/15/bin"
        done = subprocess.run(
            [software.program(f"{program}/pg_basebackup"), "-D", copy, "-R", "-X", "stream",
             "-h", peer.folder, "-p", str(peer.port), "-U", "bench", "--checkpoint=fast"],
            env=software.environment(), cwd=peer.folder, check=False, capture_output=True,
            text=True, **unprivileged())
        if done.returncode:
            raise BenchError(f"pg_basebackup: {done.stderr}")
        self._standby.start(
            [software.program(f"{program}/postgres"), "-D", copy, "-p", str(free_port()),
             "-k", peer.folder, "-c", "listen_addresses=", *self._options],
            software.environment(), as_nobody=True)
        with peer._connect() as line:
            line.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            line.execute("SELECT pg_reload_conf()")
            self._standby.wait_until(lambda: line.execute(
                "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'").fetchone()
                is not None, "synchronous standby")

    def putter(self) -> Put:
        wire = self._peer.putter()
        return lambda body: wire.put([body])

    def pids(self) -> list[int]:
        return [*self._peer.pids(), *self._standby.pids()]

    def fails_over(self) -> float | None:
        return None

    def stop(self) -> None:
        self._standby.stop(signal.SIGINT)
        self._peer.server.stop(signal.SIGQUIT)  # no checkpoint: its folder goes


class RedisPair:
    name = "redis"
    title = "Redis, WAIT 1 on a replica"
    settings = ("XADD and WAIT 1 0 in one exchange by hiredis; appendfsync always on both (what "
                "WAIT counts is in the replica's memory: Redis 7.0 promises nothing of its disk); "
                "failover: three sentinels, down-after-milliseconds 1000")

    def __init__(self, folder: Path) -> None:
        from tests.bench.peers.redis_streams import RedisPeer

        self._peer, self.folder = RedisPeer(folder), folder
        self._replica = Server("replica", folder)
        self._sentinels = [Server(f"sentinel{i}", folder) for i in range(3)]
        self._port = 0

    def version(self) -> str:
        return self._peer.version()

    def start(self) -> None:
        import redis

        self._peer.start()
        place, self._port = self.folder / "replica", free_port()
        place.mkdir()
        program = software.program("usr/bin/redis-server")
        self._replica.start(
            [program, "--bind", "127.0.0.1", "--port", str(self._port), "--dir", place,
             "--appendonly", "yes", "--appendfsync", "always", "--save", "",
             "--auto-aof-rewrite-percentage", "0", "--repl-diskless-sync-delay", "0",
             "--replicaof", f"127.0.0.1 {self._peer.port}"], software.environment())
        self._replica.wait_port(self._port)
        with redis.Redis(host="127.0.0.1", port=self._peer.port) as client:
            self._replica.wait_until(lambda: client.wait(1, 100) == 1, "answer to WAIT")
        for each in self._sentinels:
            port, conf = free_port(), self.folder / f"{each.name}.conf"
            conf.write_text(
                f"bind 127.0.0.1\nport {port}\nsentinel monitor one 127.0.0.1 {self._peer.port} 2\n"
                "sentinel down-after-milliseconds one 1000\nsentinel failover-timeout one 5000\n")
            each.start([program, conf, "--sentinel"], software.environment())
            each.wait_port(port)

    def putter(self) -> Put:
        return self._putter(self._peer.port, wanted=1)

    @staticmethod
    def _putter(port: int, *, wanted: int) -> Put:
        import hiredis

        from tests.bench.peers.redis_streams import STREAM, LeanWire

        wire, pack = LeanWire(port), hiredis.pack_command
        wait = pack(("WAIT", "1", "0"))

        def put(body: bytes) -> None:
            found = wire._exchange([pack(("XADD", STREAM, "*", "b", body)), wait])
            if found < wanted:
                raise BenchError(f"Redis: WAIT says {found}")

        def alone(body: bytes) -> None:
            wire._exchange([pack(("XADD", STREAM, "*", "b", body))])

        return put if wanted else alone

    def pids(self) -> list[int]:
        servers = [self._peer.server, self._replica]
        return [pid for each in servers for pid in each.pids()]

    def fails_over(self) -> float | None:
        began = time.monotonic()
        self._peer.server.stop(signal.SIGKILL)
        return until_put(lambda: self._putter(self._port, wanted=0), began, BenchError, OSError)

    def stop(self) -> None:
        for each in (*self._sentinels, self._replica, self._peer.server):
            each.stop(signal.SIGKILL)


class RabbitCluster:
    name = "rabbitmq-quorum"
    title = "RabbitMQ, quorum queue of three nodes"
    settings = ("three nodes on loopback, a quorum queue with a member on each, publisher "
                "confirms, py-amqp; Erlang without busy waiting; clients are connected to the "
                "leader's node")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._nodes: list[Any] = []
        self._epmd = Server("epmd", folder)

    def version(self) -> str:
        from tests.bench.peers.rabbit import QuorumPeer

        return QuorumPeer(self.folder).version()

    def start(self) -> None:
        from tests.bench.peers.rabbit import _SBIN, QuorumPeer

        names = free_port()
        for i in range(3):
            place = self.folder / f"node{i}"
            place.mkdir()
            self._nodes.append(QuorumPeer(place))
        for i, node in enumerate(self._nodes):
            node.port = free_port()
            environment = node._environment(names) | {
                "RABBITMQ_NODENAME": f"bench{i}@localhost", "HOME": str(self.folder)}
            with open(node.folder / "rabbitmq.conf", "a", encoding="utf-8") as conf:
                conf.write("cluster_formation.peer_discovery_backend = classic_config\n" + "".join(
                    f"cluster_formation.classic_config.nodes.{n + 1} = bench{n}@localhost\n"
                    for n in range(3)))
            if i == 0:
                self._epmd.start([node.folder / "erlang/epmd", "-address", "127.0.0.1",
                                  "-port", str(names)], environment)
                self._epmd.wait_port(names)
            node._server.start([software.program(f"{_SBIN}/rabbitmq-server")], environment)
            node._server.wait_port(node.port)  # it has joined before it listens
        for node in self._nodes:
            node._server.wait_until(node._answers, "answer")

    def putter(self) -> Put:
        wire = self._nodes[0].putter()
        return lambda body: wire.put([body])

    def pids(self) -> list[int]:
        return [pid for each in self._nodes for pid in each._server.pids()]

    def fails_over(self) -> float | None:
        import amqp

        began = time.monotonic()
        self._nodes[0]._server.stop(signal.SIGKILL)

        def put(body: bytes) -> None:
            """Its own connection each time; a confirm that was lost is not waited for long."""
            wire = self._nodes[1].putter()
            try:
                wire._channel.basic_publish(amqp.Message(body, delivery_mode=2),
                                            routing_key=wire._queue)
                wire._unconfirmed += 1
                while wire._unconfirmed > 0:
                    wire._connection.drain_events(CONFIRM_S)
            finally:
                with suppress(OSError, amqp.exceptions.AMQPError):
                    wire.abandon()

        return until_put(lambda: put, began, OSError, amqp.exceptions.AMQPError)

    def stop(self) -> None:
        for node in self._nodes:
            node._server.stop(signal.SIGKILL)
        self._epmd.stop()


class EtcdCluster:
    name = "etcd"
    title = "etcd, three members (no queue: for reference)"
    settings = ("a key of its own for each put, by the JSON gateway over one HTTP connection a "
                "client, to the leader; election-timeout 1000 ms")

    def __init__(self, folder: Path) -> None:
        from tests.process.etcd_cluster import Cluster

        self._cluster = Cluster(folder / "members")

    def version(self) -> str:
        return software.version(["etcd", "--version"]).replace("etcd Version:", "etcd")

    def start(self) -> None:
        self._cluster.start()
        self._leader = self._cluster.leader()

    def putter(self) -> Put:
        return self._putter(self._leader)

    def _putter(self, member: int) -> Put:
        line = HTTPConnection("127.0.0.1", self._cluster.clients[member], timeout=60)
        line.connect()
        mark, count = id(line), 0

        def put(body: bytes) -> None:
            nonlocal count
            count += 1
            line.request("POST", "/v3/kv/put", json.dumps({
                "key": b64encode(f"{mark} {time.monotonic_ns()} {count}".encode()).decode(),
                "value": b64encode(body).decode()}))
            found = line.getresponse()
            said = found.read()
            if found.status != 200:
                raise BenchError(f"etcd: {said.decode(errors='replace')}")
        return put

    def pids(self) -> list[int]:
        return [pid for each in self._cluster.processes if each is not None
                for pid in tree(each.pid)]

    def fails_over(self) -> float | None:
        began = time.monotonic()
        self._cluster.kill(self._leader)
        other = (self._leader + 1) % 3
        return until_put(lambda: self._putter(other), began, OSError, HTTPException, BenchError)

    def stop(self) -> None:
        with suppress(ProcessLookupError):
            self._cluster.kill()


SYSTEMS: dict[str, Callable[[Path], Replicated]] = {
    "omq": OmqStandby, "postgresql": PostgresPair, "redis": RedisPair,
    "rabbitmq-quorum": RabbitCluster, "etcd": EtcdCluster}
