"""Facts of an instance that is not there."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from omq.base.services_conf import load_services
from omq.cli.look.gateways import Gateway
from omq.cli.look.service_status import Status, Word
from omq.cli.watch.facts import Facts, QueueFacts
from omq.core.index.histograms import Histogram, Journal, Spent
from omq.core.index.rows import QueueRow
from omq.core.look.space import Space
from omq.format.durations import BINS
from omq.format.index import Counter
from omq.services.ship.shown import ShipState
from omq.storage.disk_usage import Filled

NOW_NS = 1_700_000_000 * 10**9


def queue(name: str, number: int = 0, *, ready: int = 0, held: int = 0, readers: int = 0,
          age_s: float = 0.0, max_depth: int = 0xFFFFFFFF, spent: Spent | None = None
          ) -> QueueFacts:
    row = QueueRow(
        number=number, name=name, messages=ready + held, active=0, ready=ready, deferred=0,
        held=held, ever=ready, processed=0, load=(0.0, 0.0, 0.0), throughput=(0.0, 0.0, 0.0),
        flags=1, special=name in ("IDEL", "POISON"), hour=0, last_hour=0, hour_ns=0, sampled_ns=0,
        started_ns=0, max_depth=max_depth, max_length=0)
    return QueueFacts(row, readers, NOW_NS - int(age_s * 1e9) if age_s else 0, spent)


def histogram(*places: int) -> Histogram:
    """One count in each of these places."""
    return Histogram(tuple(places.count(place) for place in range(BINS)), 10**6 * len(places))


SHIPS: Final = {
    "url": "s3://b/c", "term": 0, "pid": 7, "shipped_lsn": 4, "durable_lsn": 9, "waits_s": 90.0,
    "waits_bytes": 1 << 20, "last_object": "journal/000000/000000000003", "away_s": 30.0,
    "objects": 5, "bytes": 6, "base_lsn": 2, "base_time_ns": NOW_NS, "needs_base": "",
    "error": "", "time_ns": NOW_NS}
"""What `omq ship` says of itself when it is late."""
SPENT = Spent(histogram(0, 14, 14, 31), histogram(0))


def everything() -> Facts:
    """Of an instance that has everything, readers and gateways and network clients, too."""
    services = tuple(
        Status(conf, Word.STARTED, Word.STARTED, 1.0, 7, 2, 2, 1,
               {"smtp": "3 sessions", "amqp": "4 connections"}.get(conf.name, ""),
               frozenset((10, 11, 12)), 5)
        for conf in load_services(None).values())
    gate = next(each.conf for each in services if each.conf.name == "unix")
    channel = {"name": "smtp", "processes": 2, "busy": 1, "peers": 3, "mlists": 4, "held": 0,
               "put_off": 5}
    found = facts(queue("A", ready=1, readers=1, spent=SPENT))
    return replace(
        found, services=services, gateways=(Gateway(gate, 4, (channel,), ("a",), 1.0, ()),),
        journal=Journal(histogram(3, 4), histogram(0, 2)), busy=frozenset((11, 99)),
        filled=Filled({"journal": 1 << 20, "msgpool": 4096, "store": 0, "volatile": 0}),
        space=replace(found.space, inodes=1000, inodes_free=900),
        archive_lag_s=60.0, disk_bytes=10**10, shipping=ShipState(SHIPS, 60, NOW_NS),
        resting=(3, 900_000))


def facts(*queues: QueueFacts, state: str = "live", free: int | None = 10**9,
          now_ns: int = NOW_NS, configured: bool = True, pending: int | None = 0,
          **counters: int) -> Facts:
    known = {each.name.lower(): 0 for each in Counter} if state != "absent" else {}
    return Facts(now_ns, state, "", known | counters, queues, 1000,
                 Space(low=False, free_bytes=free), (), (), pending, configured)
