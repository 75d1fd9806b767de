"""RabbitMQ: durable queues, persistent messages, publisher confirms; classic and quorum queues."""

from __future__ import annotations

import os
import shutil
from collections import deque
from importlib.metadata import version as distribution
from pathlib import Path
from typing import Any

import amqp

from tests.bench.peers import software
from tests.bench.peers.peer import Peer, Wire
from tests.bench.peers.processes import Server, free_port

_SBIN = "usr/lib/rabbitmq/lib/rabbitmq_server-3.10.8/sbin"
_NODE = "bench@localhost"
_PREFETCH_OF_BATCH = 3  # batches that a reader may have before it finishes the first
_SOCKET = {"read_timeout": 600, "write_timeout": 600}


class RabbitPeer(Peer):
    name = "rabbitmq-classic"
    title = "RabbitMQ, classic queue"
    queue_type = "classic"
    settings = (
        "durable queue, persistent messages, publisher confirms (awaited after each batch); "
        "prefetch of three batches (ten messages for single), one basic.ack multiple a batch; "
        "Erlang without busy waiting (+sbwt none), no plugins; py-amqp, whose confirms can be "
        "awaited for many at once; RabbitMQ gives no answer to basic.ack, so done is counted when "
        "it was sent, which no other system here gets")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._epmd = Server("epmd", folder)
        self._server = Server(self.name, folder)
        self.servers = [self._server, self._epmd]
        self.port = 0

    def version(self) -> str:
        return f"{software.program(_SBIN).parent.name}; py-amqp {distribution('amqp')}"

    def start(self) -> None:
        self.port, names = free_port(), free_port()
        environment = self._environment(names)
        self._epmd.start([self.folder / "erlang/epmd", "-address", "127.0.0.1",
                          "-port", str(names)], environment)
        self._epmd.wait_port(names)
        self._server.start([software.program(f"{_SBIN}/rabbitmq-server")], environment)
        self._server.wait_port(self.port)
        self._server.wait_until(self._answers, "answer")

    def _environment(self, names: int) -> dict[str, str]:
        """Everything that would lie in /etc, /var and the home directory lies in our folder."""
        commands = self.folder / "erlang"
        commands.mkdir(exist_ok=True)
        _erlang(commands)
        (self.folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\n"
            "disk_free_limit.absolute = 100MB\nvm_memory_high_watermark.relative = 0.6\n")
        return software.environment(
            PATH=f"{commands}:{os.environ['PATH']}", HOME=str(self.folder),
            ERL_EPMD_PORT=str(names), ERL_EPMD_ADDRESS="127.0.0.1",
            RABBITMQ_NODENAME=_NODE, RABBITMQ_NODE_IP_ADDRESS="", RABBITMQ_NODE_PORT="",
            RABBITMQ_CONFIG_FILE=str(self.folder / "rabbitmq.conf"),
            RABBITMQ_CONF_ENV_FILE=str(self.folder / "none"),
            RABBITMQ_MNESIA_BASE=str(self.folder / "mnesia"),
            RABBITMQ_LOG_BASE=str(self.folder / "log"),
            RABBITMQ_ENABLED_PLUGINS_FILE=str(self.folder / "plugins"),
            RABBITMQ_PLUGINS_DIR=str(software.program(_SBIN).parent / "plugins"),
            RABBITMQ_DIST_PORT=str(free_port()),
            RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=(
                "+sbwt none +sbwtdcpu none +sbwtdio none "
                "-kernel inet_dist_use_interface {127,0,0,1}"),
        )  # fmt: skip

    def stop(self) -> None:
        self._server.stop()
        self._epmd.stop()

    def putter(self) -> Wire:
        return RabbitWire(self._connect(), self.queue_type, 0)

    def getter(self, number: int, batch: int) -> Wire:
        del number
        return RabbitWire(self._connect(), self.queue_type, batch)

    def waiting(self) -> int:
        """Only what is not handed out: RabbitMQ tells no more to a client."""
        connection = self._connect()
        found: int = connection.channel().queue_declare(
            self.name, passive=True, durable=True, auto_delete=False).message_count
        connection.close()
        return found

    def _connect(self) -> amqp.Connection:
        connection = amqp.Connection(f"127.0.0.1:{self.port}", confirm_publish=False, **_SOCKET)
        connection.connect()
        return connection

    def _answers(self) -> bool:
        try:
            connection = self._connect()
        except (OSError, amqp.exceptions.AMQPError):
            return False
        connection.channel().queue_declare(
            self.name, durable=True, auto_delete=False,
            arguments={"x-queue-type": self.queue_type})
        connection.close()
        return True


class QuorumPeer(RabbitPeer):
    name = "rabbitmq-quorum"
    title = "RabbitMQ, quorum queue"
    queue_type = "quorum"
    settings = "as the classic queue, with x-queue-type quorum, one node"


class RabbitWire:
    def __init__(self, connection: amqp.Connection, queue_type: str, batch: int) -> None:
        """`batch` above 0: a consumer."""
        self._connection = connection
        self._queue = f"rabbitmq-{queue_type}"
        self._channel = connection.channel()
        self._unconfirmed = 0
        self._ready: deque[Any] = deque()
        self._held: Any = None
        if batch:
            prefetch = batch * _PREFETCH_OF_BATCH if batch > 1 else 10
            self._channel.basic_qos(0, prefetch, False)  # noqa: FBT003
            self._channel.basic_consume(self._queue, callback=self._ready.append)
        else:
            self._channel.confirm_select()
            self._channel.events["basic_ack"].add(self._confirmed)
            self._last = 0

    def _confirmed(self, tag: int, multiple: bool) -> None:  # noqa: FBT001
        self._unconfirmed -= tag - self._last if multiple else 1
        self._last = max(self._last, tag)

    def put(self, bodies: list[bytes]) -> None:
        for body in bodies:
            self._channel.basic_publish(amqp.Message(body, delivery_mode=2),
                                        routing_key=self._queue)
        self._unconfirmed += len(bodies)
        while self._unconfirmed > 0:
            self._connection.drain_events()

    def take(self, count: int, timeout_s: float) -> list[bytes]:
        self._finish()
        while not self._ready:
            try:
                self._connection.drain_events(timeout_s)
            except TimeoutError:
                return []
        found = [self._ready.popleft() for _ in range(min(count, len(self._ready)))]
        self._held = found[-1]
        return [_bytes(message.body) for message in found]

    def _finish(self) -> None:
        if self._held is not None:
            self._channel.basic_ack(self._held.delivery_tag, multiple=True)
            self._held = None

    def close(self) -> None:
        self._finish()
        self._connection.close()  # answered after the acknowledgement before it

    def abandon(self) -> None:
        self._connection.close()


def _bytes(body: Any) -> bytes:
    return body if isinstance(body, bytes) else bytes(body, "latin-1")


def _erlang(commands: Path) -> None:
    """erl and epmd of the extracted tree; Debian's erl knows only /usr/lib/erlang."""
    root = software.program("usr/lib/erlang")
    binaries = software.program("usr/lib/erlang/erts-*/bin")
    script = commands / "erl"
    script.write_text(
        "#!/bin/sh\n"
        f"export ROOTDIR={root} BINDIR={binaries} EMU=beam PROGNAME=erl\n"
        'exec "$BINDIR/erlexec" "$@"\n')
    script.chmod(0o755)
    shutil.copy(binaries / "epmd", commands / "epmd")
