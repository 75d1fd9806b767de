"""The standbys of a primary as Prometheus metrics: a part of omq.cli.watch.metrics."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

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
