"""Redis Streams: XADD, XREADGROUP COUNT, XACK and XDEL, every write in the append-only file."""

from __future__ import annotations

import socket
from importlib.metadata import version as distribution
from typing import Any

import hiredis
import redis

from tests.bench.instance import BenchError
from tests.bench.peers import software
from tests.bench.peers.peer import ServerPeer, Wire
from tests.bench.peers.processes import free_port

_RECEIVE_BYTES = 1 << 18
STREAM, GROUP = "bench", "readers"
_PORT_OPTIONS = ("--bind", "127.0.0.1", "--protected-mode", "yes")


class RedisPeer(ServerPeer):
    name = "redis"
    title = "Redis Streams"
    settings = (
        "appendonly yes, appendfsync always, save off, no automatic rewrite of the file; redis-py "
        "with hiredis; a put of many is one pipeline of XADD; one pipeline carries MULTI XACK XDEL "
        "EXEC for the last messages and XREADGROUP COUNT n BLOCK for the next")

    def version(self) -> str:
        said = software.version([software.program("usr/bin/redis-server"), "--version"])
        return f"{said.split(' sha')[0]}; redis-py {distribution('redis')}"

    def start(self) -> None:
        self.port = free_port()
        self.server.start(
            [software.program("usr/bin/redis-server"), *_PORT_OPTIONS, "--port", str(self.port),
             "--dir", self.folder, "--appendonly", "yes", "--appendfsync", "always",
             "--save", "", "--auto-aof-rewrite-percentage", "0"], software.environment())
        self.server.wait_port(self.port)
        with self._client() as client:
            self.server.wait_until(lambda: _loaded(client), "loaded data")
            try:
                client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
            except redis.exceptions.ResponseError as error:
                if "BUSYGROUP" not in str(error):  # it was there: a start with data
                    raise

    def putter(self) -> Wire:
        return RedisWire(self._client())

    def getter(self, number: int, batch: int) -> Wire:
        del number, batch
        return RedisWire(self._client())

    def waiting(self) -> int:
        with self._client() as client:
            return int(client.xlen(STREAM))

    def _client(self) -> redis.Redis:
        return redis.Redis(host="127.0.0.1", port=self.port, single_connection_client=True)


class RedisWire:
    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._name = f"c{client.client_id()}"
        self._held: list[Any] = []

    def put(self, bodies: list[bytes]) -> None:
        if len(bodies) == 1:
            self._client.xadd(STREAM, {"b": bodies[0]})
            return
        with self._client.pipeline(transaction=False) as pipeline:
            for body in bodies:
                pipeline.xadd(STREAM, {"b": body})
            pipeline.execute()

    def take(self, count: int, timeout_s: float) -> list[bytes]:
        with self._client.pipeline(transaction=False) as pipeline:
            if self._held:
                pipeline.execute_command("MULTI")
                pipeline.xack(STREAM, GROUP, *self._held)
                pipeline.xdel(STREAM, *self._held)
                pipeline.execute_command("EXEC")
            pipeline.xreadgroup(GROUP, self._name, {STREAM: ">"}, count=count,
                                block=max(1, int(timeout_s * 1000)))  # 0: for ever
            answer: Any = pipeline.execute()[-1]
        entries: list[Any] = next(iter(_streams(answer)), [])
        self._held = [entry[0] for entry in entries]
        return [entry[1][b"b"] for entry in entries]

    def close(self) -> None:
        if self._held:
            with self._client.pipeline(transaction=True) as pipeline:
                pipeline.xack(STREAM, GROUP, *self._held)
                pipeline.xdel(STREAM, *self._held)
                pipeline.execute()
        self._client.close()

    def abandon(self) -> None:
        self._client.close()


class LeanRedisPeer(RedisPeer):
    name = "redis-lean"
    title = "Redis Streams, lean client"
    lean = True
    settings = ("the same server settings and the same exchanges, with hiredis on a bare socket "
                "instead of redis-py: the least that a Python client can cost")

    def version(self) -> str:
        return f"{super().version()}; hiredis {distribution('hiredis')}"

    def putter(self) -> Wire:
        return LeanWire(self.port)

    def getter(self, number: int, batch: int) -> Wire:
        del batch
        return LeanWire(self.port, f"lean{number}")


class LeanWire:
    def __init__(self, port: int, consumer: str = "") -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()
        self._consumer = consumer
        self._held: list[bytes] = []

    def put(self, bodies: list[bytes]) -> None:
        pack = hiredis.pack_command
        self._exchange([pack(("XADD", STREAM, "*", "b", body)) for body in bodies])

    def take(self, count: int, timeout_s: float) -> list[bytes]:
        wait_ms = max(1, int(timeout_s * 1000))
        answer = self._exchange([*self._finishing(), hiredis.pack_command(
            ("XREADGROUP", "GROUP", GROUP, self._consumer, "COUNT", count, "BLOCK", wait_ms,
             "STREAMS", STREAM, ">"))])
        entries = answer[0][1] if answer else []
        self._held = [entry[0] for entry in entries]
        return [entry[1][1] for entry in entries]

    def close(self) -> None:
        if finishing := self._finishing():
            self._exchange(finishing)
        self._socket.close()

    def abandon(self) -> None:
        self._socket.close()

    def _finishing(self) -> list[bytes]:
        pack, held = hiredis.pack_command, self._held
        if not held:
            return []
        return [pack(("MULTI",)), pack(("XACK", STREAM, GROUP, *held)),
                pack(("XDEL", STREAM, *held)), pack(("EXEC",))]

    def _exchange(self, commands: list[bytes]) -> Any:
        """Send all, read an answer to each; the last one."""
        self._socket.sendall(b"".join(commands))
        answer: Any = None
        for _ in commands:
            while (answer := self._reader.gets()) is False:
                self._reader.feed(self._socket.recv(_RECEIVE_BYTES))
            if isinstance(answer, hiredis.ReplyError):
                raise BenchError(f"Redis says {answer}")
        return answer


def _streams(answer: Any) -> list[Any]:
    """The entries of each stream, in the answer's form of either protocol version."""
    if isinstance(answer, dict):
        return [parts[0] for parts in answer.values()]
    return [entries for _, entries in answer or []]


def _loaded(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.exceptions.BusyLoadingError:
        return False
