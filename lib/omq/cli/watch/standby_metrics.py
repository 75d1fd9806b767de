"""The copies of an instance elsewhere, standbys and an object store, as Prometheus metrics: a part
of omq.cli.watch.metrics."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from omq.base.clock import NS_PER_S
from omq.cli.watch.facts import Facts
from omq.storage.standby_holds import STANDBYS_MAX


def families(facts: Facts, label: str, instance: str) -> Iterator[Metric]:
    """A series a standby that was made and not forgotten, STANDBYS_MAX, and one of what an
    acknowledgement means; `label`: of the instance."""
    if facts.unprotected is not None:
        protected = GaugeMetricFamily("omq_standby_protected", "1: what is acknowledged is on as "
                                      "many standbys as replies wait for", labels=[label])
        protected.add_metric([instance], 1 - facts.unprotected)
        yield protected
    if facts.lease is not None:
        left = GaugeMetricFamily("omq_standby_lease_seconds", "For so long this member has the "
                                 "lease; 0: it is not the primary", labels=[label])
        left.add_metric([instance], facts.lease.left_s())
        trouble = GaugeMetricFamily("omq_standby_lease_trouble", "1: this member could not take "
                                    "part in a failover", labels=[label])
        trouble.add_metric([instance], float(bool(facts.lease.trouble)))
        yield from (left, trouble)
    found = facts.standbys
    labels = [label, "member"]
    following = GaugeMetricFamily("omq_standby_following", "1: the standby follows", labels=labels)
    frames = GaugeMetricFamily("omq_standby_lag_frames", "Frames that the standby lacks",
                               labels=labels)
    lacks = GaugeMetricFamily("omq_standby_lag_bytes", "Bytes of the journal that the standby "
                              "lacks", labels=labels)
    seconds = GaugeMetricFamily("omq_standby_lag_seconds", "Age of the oldest frame that the "
                                "standby lacks; 0: it has all", labels=labels)
    for each in found[:STANDBYS_MAX]:
        following.add_metric([instance, each.member], float(each.following))
        if each.lag_frames is not None:
            frames.add_metric([instance, each.member], each.lag_frames)
        if each.lag_bytes is not None:
            lacks.add_metric([instance, each.member], each.lag_bytes)
        if each.lag_s is not None:
            seconds.add_metric([instance, each.member], each.lag_s)
    if found:
        yield from (following, frames, lacks, seconds)


def shipping(facts: Facts, label: str, instance: str) -> Iterator[Metric]:
    """Of an instance with `ship_to`; what nobody knows has no series."""
    state = facts.shipping
    if state is None:
        return
    told = state.found
    base_ns = told.get("base_time_ns")
    for name, text, value in (
            ("trouble", "1: the journal is not shipped as it should be",
             float(bool(state.trouble))),
            ("lag_seconds", "For so long the oldest has waited that the object store does not "
             "have; 0: it has all", state.waits_s),
            ("lag_bytes", "Bytes of the journal that the object store does not have",
             state.waits_bytes),
            ("away_seconds", "For so long the object store has not answered; 0: it does",
             told.get("away_s")),
            ("base_timestamp_seconds", "When the newest copy of the pool there was begun",
             base_ns / NS_PER_S if base_ns else None)):
        if value is not None:
            gauge = GaugeMetricFamily(f"omq_ship_{name}", text, labels=[label])
            gauge.add_metric([instance], value)
            yield gauge
    for key, text in (("objects", "Objects that the process that ships has put there"),
                      ("bytes", "Their bytes")):
        if key in told:
            total = CounterMetricFamily(f"omq_ship_{key}", text, labels=[label])
            total.add_metric([instance], told[key])
            yield total
