"""The facts of an instance as Prometheus metrics, by the official client (omq-suite[metrics]).

Invariants: 1. every series has the label omq_instance (Prometheus gives `instance` to the address
that it scrapes); 2. as many series as queues, services and channels are configured, and no more:
queues that programs make for themselves have names that are never used again, so those of one model
are one series (`REPLIES.*`), gauges alone: a sum of counters that come and go would run backwards;
3. no name of a message, client or user is a label.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

import omq
from omq.base.limits import QUEUES_MAX
from omq.base.services_conf import ServiceKind
from omq.cli.look.service_status import Word, should_run
from omq.cli.watch import histograms, standby_metrics
from omq.cli.watch.facts import STATES, Facts, QueueFacts, gather
from omq.cli.watch.metric_table import ROWS, UNTOLD, Row
from omq.core.engine.queue_rules import UNLIMITED
from omq.format.index import QueueFlag
from omq.services.daemon.options import Location

INSTANCE: Final = "omq_instance"
DEFAULT: Final = "default"
_MADE: Final = re.compile(r"(.{1,7})\.[0-9A-F]{8}")
_SESSIONS: Final = re.compile(r"(\d{1,9}) (?:sessions|connections)\b", re.ASCII)
"""What smtp.server and amqp.server say of themselves: their status of systemd's protocol."""
_RUNS: Final = (Word.STARTED, Word.PARTIALLY_ABORTED)


@dataclass(slots=True)
class _Line:
    """What is published about one queue, or about all that were made from one model."""

    states: dict[str, int] = field(default_factory=dict)
    readers: int = 0
    oldest_s: float = 0.0
    one: QueueFacts | None = None


class InstanceCollector(Collector):
    """Looks at each scrape; see the module."""

    def __init__(self, location: Location) -> None:
        self._location = location

    def describe(self) -> Iterable[Metric]:
        """Nothing is looked at when the collector is registered."""
        return ()

    def collect(self) -> Iterator[Metric]:
        yield from families(gather(self._location), self._location.instance or DEFAULT)


def registry(location: Location) -> CollectorRegistry:
    """With the instance alone: nothing of this process."""
    made = CollectorRegistry(auto_describe=False)
    made.register(InstanceCollector(location))
    return made


def text(location: Location) -> str:
    """The metrics once, in the text format that textfile collectors read."""
    return generate_latest(registry(location)).decode("utf-8")


def families(facts: Facts, instance: str) -> Iterator[Metric]:
    """All metrics of these facts."""
    yield from _manager(facts, instance)
    yield from _counters(facts, instance)
    yield from _queues(facts, instance)
    yield from _services(facts, instance)
    yield from _gateways(facts, instance)
    yield from standby_metrics.families(facts, INSTANCE, instance)
    yield from standby_metrics.shipping(facts, INSTANCE, instance)


def _gauge(name: str, text: str, instance: str, value: float | None) -> Iterator[Metric]:
    """One figure; none when it is not known."""
    if value is not None:
        family = GaugeMetricFamily(f"omq_{name}", text, labels=[INSTANCE])
        family.add_metric([instance], value)
        yield family


def _manager(facts: Facts, instance: str) -> Iterator[Metric]:
    info = InfoMetricFamily("omq_build", "The version of omq that looks", labels=[INSTANCE])
    info.add_metric([instance], {"version": omq.__version__})
    yield info
    yield from _gauge("up", "1: a queue manager works", instance, float(facts.alive))
    state = GaugeMetricFamily("omq_manager_state", "1 for the state that the queue manager is in: "
                              "live, hung, segment (dead, its index is left), absent",
                              labels=[INSTANCE, "state"])
    for each in STATES:
        state.add_metric([instance, each], float(each == facts.state))
    yield state
    yield from _gauge("configuration_valid", "0: the configuration cannot be read", instance,
                      float(facts.configured))
    yield from _gauge("disk_free_bytes", "Free bytes of the spool's file system", instance,
                      facts.space.free_bytes)
    sizes = GaugeMetricFamily("omq_spool_bytes", "Bytes on the disk by part of the spool: journal, "
                              "archive, msgpool, store, volatile, containers, quarantine, logs, "
                              "mail; of very many files a part of them",
                              labels=[INSTANCE, "part"])
    for part, size in facts.filled.parts.items():
        sizes.add_metric([instance, part], size)
    if facts.filled.parts:
        yield sizes
    yield from _gauge("recycled_files", "Containers that rest until the next bodies are "
                      "written over them", instance, facts.resting[0])
    yield from _gauge("recycled_bytes", "Their bytes, a part of those of containers", instance,
                      facts.resting[1])
    if facts.space.inodes:
        yield from _gauge("disk_inodes", "Inodes of the spool's file system, where it counts them",
                          instance, facts.space.inodes)
        yield from _gauge("disk_inodes_free", "Those that are free", instance,
                          facts.space.inodes_free)
    yield from _gauge("disk_bytes", "Size of the spool's file system", instance,
                      facts.disk_bytes or None)
    yield from _gauge("archive_lag_seconds", "How long the first of the files waits that "
                      "omq-archive has to take; 0: none does", instance, facts.archive_lag_s)
    yield from _gauge("archive_pending_files", "Retired journal files that wait for omq-archive",
                      instance, facts.archive_pending)
    if facts.counters:
        yield from _gauge("index_messages_max", "Messages that the index has room for", instance,
                          facts.messages_max)
        yield from _gauge("checkpoint_lag_frames", "Frames that a restart would have to replay",
                          instance, facts.checkpoint_lag)
    if facts.journal is not None:
        yield from histograms.of_journal(facts.journal, [INSTANCE], [instance])


def _counters(facts: Facts, instance: str) -> Iterator[Metric]:
    strange = GaugeMetricFamily("omq_manager_other", "A counter that has no metric of its own",
                                labels=[INSTANCE, "name"])
    for name, value in facts.counters.items():
        row = ROWS.get(name)
        if row is not None:
            yield _family(row, instance, value)
        elif name not in UNTOLD:
            strange.add_metric([instance, name], value)
    if strange.samples:
        yield strange


def _family(row: Row, instance: str, value: float) -> Metric:
    kind = CounterMetricFamily if row.total else GaugeMetricFamily
    family = kind(f"omq_{row.name}", row.help, labels=[INSTANCE])
    family.add_metric([instance], value / row.divisor)
    return family


def lines(facts: Facts) -> dict[str, _Line]:
    """What is published, by the value of the label `queue`."""
    found: dict[str, _Line] = {}
    for each in facts.queues:
        row = each.row
        made = _MADE.fullmatch(row.name)
        line = found.setdefault(f"{made[1]}.*" if made else row.name, _Line())
        for state, count in (("ready", row.ready), ("active", row.active),
                             ("deferred", row.deferred), ("held", row.held),
                             ("prepared", row.prepared)):
            line.states[state] = line.states.get(state, 0) + count
        line.readers += each.readers
        line.oldest_s = max(line.oldest_s, each.oldest_s(facts.time_ns))
        line.one = None if made else each
    assert len(found) <= QUEUES_MAX
    return found


def _queues(facts: Facts, instance: str) -> Iterator[Metric]:
    labels = [INSTANCE, "queue"]

    def gauge(name: str, text: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"omq_queue_{name}", text, labels=labels)

    def total(name: str, text: str) -> CounterMetricFamily:
        return CounterMetricFamily(f"omq_queue_{name}", text, labels=labels)

    messages = GaugeMetricFamily("omq_queue_messages", "Messages on the queue, by state",
                                 labels=[*labels, "state"])
    oldest = gauge("oldest_message_age_seconds", "Age of the oldest message on the queue; 0: none")
    readers = gauge("readers", "Readers that are registered")
    limit = gauge("messages_max", "Messages that it takes at most; +Inf: no limit of its own")
    put_off = gauge("put_inhibited", "1: nothing may be put on it")
    get_off = gauge("get_inhibited", "1: nothing is handed out")
    at_limit = gauge("at_limit", "1: readers wait for ready messages, and a limit of work holds "
                     "them")
    put = total("messages_put", "Messages put on it since the queue manager started")
    done = total("messages_processed", "Messages processed since the queue manager started")
    expired = total("messages_expired", "Messages whose time was over on it")
    handed = total("messages_handed_out", "Hand-outs to readers, each attempt counted")
    failed = total("attempts_failed", "Attempts that failed, deaths of readers among them")
    dead = total("messages_dead_lettered", "Messages that failed too often: to POISON, or where "
                 "dead_letter says")
    for name, line in lines(facts).items():
        of = [instance, name]
        for state, count in line.states.items():
            messages.add_metric([*of, state], count)
        oldest.add_metric(of, line.oldest_s)
        readers.add_metric(of, line.readers)
        if line.one is not None:
            row = line.one.row
            limit.add_metric(of, row.max_depth if row.max_depth < UNLIMITED else inf)
            put_off.add_metric(of, float(bool(row.flags & QueueFlag.PUT_INHIBITED)))
            get_off.add_metric(of, float(bool(row.flags & QueueFlag.SUSPENDED)))
            at_limit.add_metric(of, float(bool(row.ready and row.flags & QueueFlag.AT_LIMIT)))
            put.add_metric(of, row.ever)
            done.add_metric(of, row.processed)
            expired.add_metric(of, row.expired)
            spent = line.one.spent
            handed.add_metric(of, sum(spent.waits.counts) if spent else 0)
            failed.add_metric(of, row.failed)
            dead.add_metric(of, row.dead)
    if facts.queues:
        yield from (messages, oldest, readers, limit, put_off, get_off, at_limit, put, done,
                    expired, handed, failed, dead)
    yield from histograms.of_queues((([instance, name], line.one.spent)
                                     for name, line in lines(facts).items()
                                     if line.one is not None and line.one.spent), labels)


def _services(facts: Facts, instance: str) -> Iterator[Metric]:
    labels = [INSTANCE, "service"]
    up = GaugeMetricFamily("omq_service_up", "1: the service runs", labels=labels)
    enabled = GaugeMetricFamily("omq_service_enabled", "1: services.conf has it enabled",
                                labels=labels)
    wanted = GaugeMetricFamily("omq_service_wanted", "1: it should run: it is enabled, and nobody "
                               "turned it off (omoff)", labels=labels)
    restarts = CounterMetricFamily("omq_service_restarts", "Starts after a death", labels=labels)
    auxiliaries = GaugeMetricFamily("omq_service_auxiliaries", "Auxiliary readers that run",
                                    labels=labels)
    most = GaugeMetricFamily("omq_service_auxiliaries_max", "Auxiliary readers that should run",
                             labels=labels)
    readers = GaugeMetricFamily("omq_service_readers", "Processes of the service that read its "
                                "queue", labels=labels)
    busy = GaugeMetricFamily("omq_service_readers_busy", "Of these, with a message in their hands",
                             labels=labels)
    deaths = CounterMetricFamily("omq_service_reader_deaths", "Readers that the service had to "
                                 "start again since it runs", labels=labels)
    sessions = GaugeMetricFamily("omq_service_sessions", "Connections of network clients (SMTP, "
                                 "AMQP)", labels=labels)
    for each in facts.services:
        of = [instance, each.conf.name]
        if each.conf.kind is ServiceKind.READER:
            readers.add_metric(of, len(each.reader_pids))
            busy.add_metric(of, len(each.reader_pids & facts.busy))
            deaths.add_metric(of, each.reader_deaths)
        if told := _SESSIONS.match(each.text):
            sessions.add_metric(of, int(told[1]))
        up.add_metric(of, float(each.state in _RUNS))
        enabled.add_metric(of, float(each.conf.enabled))
        wanted.add_metric(of, float(should_run(each)))
        restarts.add_metric(of, each.restarts)
        auxiliaries.add_metric(of, each.auxiliaries_running)
        most.add_metric(of, each.auxiliaries)
    if facts.services:
        yield from (up, enabled, wanted, restarts, auxiliaries, most, readers, busy, deaths)
    if sessions.samples:
        yield sessions


_CHANNEL: Final = {
    "processes": "Processes of the channel", "busy": "Processes of the channel that work",
    "peers": "Peers of the channel with something to do", "mlists": "Messages in hand for peers",
    "put_off": "Messages on the queue, deferred, that wait for a peer",
    "held": "1: an operator holds the channel"}


def _gateways(facts: Facts, instance: str) -> Iterator[Metric]:
    if not facts.gateways:
        return
    for key, text in _CHANNEL.items():
        family = GaugeMetricFamily(f"omq_channel_{key}", text,
                                   labels=[INSTANCE, "service", "channel"])
        for each in facts.gateways:
            for channel in each.channels:
                if isinstance(channel[key], (int, float)):  # the file is not ours
                    family.add_metric([instance, each.conf.name, str(channel["name"])],
                                      channel[key])
        yield family
    for name, text in (("down", "Peers that are down"), ("held", "Peers that are held")):
        family = GaugeMetricFamily(f"omq_peers_{name}", text, labels=[INSTANCE, "service"])
        for each in facts.gateways:
            family.add_metric([instance, each.conf.name], len(getattr(each, name)))
        yield family
