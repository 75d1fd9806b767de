"""omq, Redis and RabbitMQ as brokers of Celery and of dramatiq: a server of tests.bench.peers, its
URL, and what each library is told about it.

Each is set so that what it acknowledges is on the disk, and the library so that it waits for that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.bench.peers.omq_peer import OmqPeer
from tests.bench.peers.peer import Peer
from tests.bench.peers.rabbit import RabbitPeer
from tests.bench.peers.redis_streams import RedisPeer


@dataclass(frozen=True)
class Broker:
    """`url` of a started peer; `settings` of the server; by library `notes`, what is to be known
    of it, and `options`, its arguments."""

    name: str
    title: str
    settings: str
    make: Callable[[Path], Peer]
    url: Callable[[Any], str]
    notes: dict[str, str]
    options: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Library:
    """`section` of PERFORMANCE; `app`, the module that sends; `worker`: the words behind
    `python -m`, for two processes."""

    title: str
    section: str
    app: str
    worker: tuple[str, ...]
    about: str

    @property
    def version(self) -> str:
        return f"{self.title} {version(self.title.lower())}"


BROKERS = {each.name: each for each in (
    Broker(
        "omq", "omq", "as shipped", OmqPeer, lambda peer: f"omq://{peer.instance.paths.root}",
        {}, {"celery": {"timeout_s": 2}, "dramatiq": {"timeout_s": 2}}),
    Broker(
        "redis", "Redis", "appendonly yes, appendfsync always", RedisPeer,
        lambda peer: f"redis://127.0.0.1:{peer.port}/0",
        {"celery": "kombu's Redis transport as it comes: what a dead worker held comes again after "
                   "visibility_timeout, an hour",
         "dramatiq": "RedisBroker as it comes: what a dead worker held comes again after "
                     "heartbeat_timeout, a minute, longer than is waited here"},
        {"celery": {}, "dramatiq": {}}),
    Broker(
        "rabbitmq", "RabbitMQ", "durable classic queue, persistent messages", RabbitPeer,
        lambda peer: f"amqp://guest:guest@127.0.0.1:{peer.port}/%2F",
        {"celery": "confirm_publish", "dramatiq": "confirm_delivery"},
        {"celery": {"confirm_publish": True}, "dramatiq": {"confirm_delivery": True}}),
)}
LIBRARIES = {
    "celery": Library(
        "Celery", "tasks", "tests.bench.tasks.app",
        ("celery", "-A", "tests.bench.tasks.app", "worker", "-P", "prefork", "-c", "2",
         "--without-gossip", "--without-mingle"), "prefork, acks_late"),
    "dramatiq": Library(
        "dramatiq", "tasks-dramatiq", "tests.bench.tasks.dramatiq_app",
        ("dramatiq", "tests.bench.tasks.dramatiq_app", "--processes", "2", "--threads", "1"),
        "a thread each"),
}
