"""Round trips a second of requests: omq, RabbitMQ (direct reply-to) and Redis, by turns.

    python -m tests.bench.peers.round_trips [ROUNDS] [SECONDS]

A requester sends 100 bytes and waits for its reply; servers answer with the same. Each in a process
of its own: 1 requester and 1 server, 8 requesters and 2 servers. What is asked of the disk differs,
so each line says it: `durable` requests and replies are synced before they count.

    omq               request() and reply() over a shared reply queue; persistent, and not
    rabbitmq-classic  a durable queue; requests transient, replies by amq.rabbitmq.reply-to, which
                      knows no others
    redis             LPUSH and BRPOP on lists, one reply list a requester; appendfsync always or
                      not; what a server has taken is gone with it, which no other here does

Processor microseconds of a round trip are those of server, requesters and servers together.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import omq
from tests.bench.options import end_in_order
from tests.bench.peers.bench_peers import folder
from tests.bench.peers.bench_peers import make as make_peer
from tests.bench.peers.omq_peer import OmqPeer
from tests.bench.peers.peer import Peer

BODY: Final = b"x" * 100
SHAPES: Final = ((1, 1), (8, 2))  # requesters, servers
NS: Final = 1_000_000_000


@dataclass
class System:
    """One way to ask and to answer over a running server."""

    title: str
    peer: Peer
    ask: Callable[[int, float], int]  # number of the requester, until when: round trips
    answer: Callable[[int, float], int]
    found: dict[tuple[int, int], list[tuple[float, float]]] = field(default_factory=dict)


def omq_system(peer: OmqPeer, *, persistent: bool, apart: bool = False) -> System:
    """`apart`: a request to the manager for each of put, get, reply and next, as with one that was
    started before it took two of them together."""
    spool = peer.instance.paths.root

    def ask(number: int, ends: float) -> int:
        count = 0
        with omq.connect(spool=spool, name=f"asks{number}") as connection:
            connection._link.asks = not apart
            while time.monotonic() < ends:
                connection.request("ASKED", BODY, timeout_s=30, persistent=persistent)
                count += 1
        return count

    def answer(number: int, ends: float) -> int:
        with omq.connect(spool=spool, name=f"answers{number}") as connection, \
                connection.reader("ASKED", auxiliary=number > 0) as reader:
            connection._link.asks = not apart
            threading.Timer(max(0.0, ends - time.monotonic()), reader.interrupt).start()
            reader.serve(lambda message: message.body)
        return 0

    kind = "durable" if persistent else "not persistent"
    return System(f"omq, {kind}{', four requests' if apart else ''}", peer, ask, answer)


def rabbit_system(peer: Any) -> System:
    import amqp

    def connected() -> tuple[Any, Any]:
        connection = peer._connect()
        return connection, connection.channel()

    def ask(number: int, ends: float) -> int:
        connection, channel = connected()
        came: list[Any] = []
        channel.basic_consume("amq.rabbitmq.reply-to", callback=came.append, no_ack=True)
        count = 0
        while time.monotonic() < ends:
            channel.basic_publish(amqp.Message(BODY, reply_to="amq.rabbitmq.reply-to",
                                               correlation_id=str(count), delivery_mode=1),
                                  routing_key=peer.name)
            while not came:
                connection.drain_events(timeout=30)
            assert came.pop().correlation_id == str(count)
            count += 1
        connection.close()
        return count

    def answer(number: int, ends: float) -> int:
        connection, channel = connected()

        def reply(message: Any) -> None:
            channel.basic_publish(
                amqp.Message(message.body, correlation_id=message.correlation_id),
                routing_key=message.reply_to)
            channel.basic_ack(message.delivery_tag)

        channel.basic_qos(0, 10, False)  # noqa: FBT003
        channel.basic_consume(peer.name, callback=reply)
        while time.monotonic() < ends:
            try:
                connection.drain_events(timeout=0.2)
            except TimeoutError:
                continue
        connection.close()
        return 0

    return System("RabbitMQ, direct reply-to, transient", peer, ask, answer)


def redis_system(peer: Any, *, durable: bool) -> System:
    def client() -> Any:
        found = peer._client()
        found.config_set("appendfsync", "always" if durable else "no")
        return found

    def ask(number: int, ends: float) -> int:
        connection, mine, count = client(), f"replies{os.getpid()}", 0
        while time.monotonic() < ends:
            connection.lpush("asked", mine.encode() + b" " + BODY)
            assert connection.brpop(mine, timeout=30)
            count += 1
        connection.close()
        return count

    def answer(number: int, ends: float) -> int:
        connection = client()
        while time.monotonic() < ends:
            found = connection.brpop("asked", timeout=0.2)
            if found is not None:
                to, _, body = found[1].partition(b" ")
                connection.lpush(to, body)
        connection.close()
        return 0

    return System(f"Redis, lists, {'durable' if durable else 'not synced'}", peer, ask, answer)


def forked(work: Callable[[int, float], int], number: int, ends: float) -> tuple[int, int]:
    """(pid, descriptor on which it tells its round trips)"""
    heard, says = os.pipe()
    pid = os.fork()
    if pid:
        os.close(says)
        return pid, heard
    code = 1
    try:
        os.write(says, str(work(number, ends)).encode())
        code = 0
    finally:
        os._exit(code)


def measure(system: System, requesters: int, servers: int, seconds: float) -> tuple[float, float]:
    """(round trips a second, processor microseconds of one)"""
    before = sum(system.peer.cpu().values())
    ends = time.monotonic() + seconds
    answering = [forked(system.answer, n, ends + 1.0) for n in range(servers)]
    asking = [forked(system.ask, n, ends) for n in range(requesters)]
    count, own = 0, 0.0
    for pid, heard in asking + answering:
        _, status, used = os.wait4(pid, 0)
        assert status == 0, system.title
        count += int(os.read(heard, 64) or b"0")
        own += used.ru_utime + used.ru_stime
        os.close(heard)
    spent = sum(system.peer.cpu().values()) - before + own
    return count / seconds, 1e6 * spent / max(1, count)


def main(arguments: list[str]) -> int:
    """Print a line for each way and shape: the medians of the rounds."""
    rounds = int(arguments[0]) if arguments else 3
    seconds = float(arguments[1]) if len(arguments) > 1 else 3.0
    end_in_order()
    root = folder("round-trips-")
    (root / "omq").mkdir()
    own = OmqPeer(root / "omq", queues=("ASKED", "REPLIES"))
    rabbit, redis = make_peer("rabbitmq-classic", root), make_peer("redis", root)
    peers: tuple[Peer, ...] = (own, rabbit, redis)
    try:
        for peer in peers:
            peer.start()
        durable, not_persistent = (omq_system(own, persistent=kind) for kind in (True, False))
        other, lists = rabbit_system(rabbit), redis_system(redis, durable=True)
        apart = [omq_system(own, persistent=kind, apart=True) for kind in (True, False)]
        systems = [durable, not_persistent, other, lists, redis_system(redis, durable=False),
                   *apart]
        for number in range(rounds):
            for system in systems[number % len(systems):] + systems[: number % len(systems)]:
                for shape in SHAPES:
                    system.found.setdefault(shape, []).append(measure(system, *shape, seconds))
    finally:
        for peer in peers:
            peer.stop()
        shutil.rmtree(root)
    sys.stdout.write(f"load average {os.getloadavg()[0]:.1f}, {rounds} rounds of {seconds:g} s\n")
    for system in systems:
        for shape, pairs in system.found.items():
            rate, cpu = (statistics.median(column) for column in zip(*pairs, strict=True))
            sys.stdout.write(f"{system.title:40} {shape[0]}+{shape[1]}  {rate:8,.0f} /s  "
                             f"{cpu:7.0f} us\n")
    for one, beside in ((not_persistent, other), (durable, lists), (durable, apart[0]),
                        (not_persistent, apart[1])):
        sys.stdout.write(f"{one.title} / {beside.title}: " + ", ".join(
            f"{shape[0]}+{shape[1]} {_ratio(one, beside, shape):.2f}" for shape in SHAPES) + "\n")
    return 0


def _ratio(one: System, beside: System, shape: tuple[int, int]) -> float:
    """Median of the rounds' ratios of rates."""
    return statistics.median(mine / max(1.0, theirs) for (mine, _), (theirs, _) in zip(
        one.found[shape], beside.found[shape], strict=True))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
