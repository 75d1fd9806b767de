"""omq, Redis and RabbitMQ as brokers of Celery: a server of tests.bench.peers, and its URL.

Each is set so that what it acknowledges is on the disk, and Celery so that it waits for that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.peers.omq_peer import OmqPeer
from tests.bench.peers.peer import Peer
from tests.bench.peers.rabbit import RabbitPeer
from tests.bench.peers.redis_streams import RedisPeer


@dataclass(frozen=True)
class Broker:
    """`url` of a started peer; `options`: broker_transport_options."""

    title: str
    settings: str
    make: Callable[[Path], Peer]
    url: Callable[[Any], str]
    options: dict[str, Any]


BROKERS = {
    "omq": Broker(
        "omq", "as shipped", OmqPeer,
        lambda peer: f"omq://{peer.instance.paths.root}", {"timeout_s": 2}),
    "redis": Broker(
        "Redis", "appendonly yes, appendfsync always; kombu's Redis transport as it comes: what a "
        "dead worker held comes again after visibility_timeout, an hour", RedisPeer,
        lambda peer: f"redis://127.0.0.1:{peer.port}/0", {}),
    "rabbitmq": Broker(
        "RabbitMQ", "durable classic queue, persistent messages, confirm_publish", RabbitPeer,
        lambda peer: f"amqp://guest:guest@127.0.0.1:{peer.port}//", {"confirm_publish": True}),
}
