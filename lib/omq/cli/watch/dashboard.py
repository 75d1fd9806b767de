"""The Grafana dashboard of share/omq/grafana.json, made from a table of panels.

    python -m omq.cli.watch.dashboard > share/omq/grafana.json

Data source, instance and queues are variables of the dashboard, so it can be imported as it is.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final, NamedTuple

_SOURCE: Final = {"type": "prometheus", "uid": "${source}"}
_ONE: Final = 'omq_instance=~"$omq"'
_QUEUE: Final = f'{_ONE},queue=~"$queue"'


class Panel(NamedTuple):
    """A panel: its queries are expressions with their legends."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"


def _rate(metric: str, labels: str = _ONE) -> str:
    return f"rate({metric}{{{labels}}}[$__rate_interval])"


def _quantile(metric: str) -> str:
    return f"histogram_quantile(0.95, {_rate(f'{metric}_bucket', _QUEUE)})"


ROWS: Final[tuple[tuple[str, tuple[Panel, ...]], ...]] = (
    ("Instance", (
        Panel("Queue manager", "short", ((f"omq_up{{{_ONE}}}", "{{omq_instance}}"),), "stat"),
        Panel("Messages", "short", ((f"omq_index_messages{{{_ONE}}}", "{{omq_instance}}"),),
              "stat"),
        Panel("On POISON", "short", ((
            f'sum by (omq_instance) (omq_queue_messages{{{_ONE},queue="POISON"}})',
            "{{omq_instance}}"),), "stat"),
        Panel("Disk free", "bytes", ((f"omq_disk_free_bytes{{{_ONE}}}", "{{omq_instance}}"),),
              "stat"),
        Panel("Messages a second", "ops", (
            (_rate("omq_messages_put_total"), "put"),
            (_rate("omq_messages_handed_out_total"), "handed out"),
            (_rate("omq_messages_settled_total"), "settled"),
            (_rate("omq_messages_expired_total"), "expired"))),
        Panel("Requests refused a second", "ops", (
            (_rate("omq_requests_refused_total"), "refused"),
            (_rate("omq_requests_garbage_total"), "garbage"))),
    )),
    ("Queues", (
        Panel("Messages on the queue", "short", ((
            f"sum by (queue) (omq_queue_messages{{{_QUEUE}}})", "{{queue}}"),)),
        Panel("Oldest message", "s", ((
            f"omq_queue_oldest_message_age_seconds{{{_QUEUE}}}", "{{queue}}"),)),
        Panel("Put a second", "ops", ((
            _rate("omq_queue_messages_put_total", _QUEUE), "{{queue}}"),)),
        Panel("Processed a second", "ops", ((
            _rate("omq_queue_messages_processed_total", _QUEUE), "{{queue}}"),)),
        Panel("Waited before a hand-out, 95 %", "s", ((
            _quantile("omq_queue_wait_seconds"), "{{queue}}"),)),
        Panel("Worked on, 95 %", "s", ((_quantile("omq_queue_work_seconds"), "{{queue}}"),)),
        Panel("Failed attempts a second", "ops", (
            (_rate("omq_queue_attempts_failed_total", _QUEUE), "{{queue}}"),
            (_rate("omq_queue_messages_dead_lettered_total", _QUEUE), "{{queue}} given up"))),
        Panel("Held and deferred", "short", ((
            f'omq_queue_messages{{{_QUEUE},state=~"held|deferred"}}', "{{queue}} {{state}}"),)),
        Panel("Readers", "short", ((f"omq_queue_readers{{{_QUEUE}}}", "{{queue}}"),)),
    )),
    ("Journal and pool", (
        Panel("Written a second", "Bps", ((_rate("omq_journal_written_bytes_total"), "journal"),)),
        Panel("Sync of the journal", "s", (
            (f"histogram_quantile(0.5, {_rate('omq_journal_sync_seconds_bucket')})", "half"),
            (f"histogram_quantile(0.99, {_rate('omq_journal_sync_seconds_bucket')})", "99 %"))),
        Panel("Frames a group", "short", ((
            f"{_rate('omq_journal_group_frames_sum')} / {_rate('omq_journal_group_frames_count')}",
            "frames"),)),
        Panel("Space", "bytes", ((f"omq_spool_bytes{{{_ONE}}}", "{{part}}"),)),
        Panel("Checkpoint lag", "short", ((
            f"omq_checkpoint_lag_frames{{{_ONE}}}", "frames"),)),
        Panel("Clients slowed down", "percentunit", ((
            _rate("omq_paused_seconds_total"), "paused"),)),
    )),
    ("Object store", (
        Panel("Trouble with shipping: 1", "short", ((
            f"omq_ship_trouble{{{_ONE}}}", "{{omq_instance}}"),), "stat"),
        Panel("Not shipped: age of the oldest", "s", ((
            f"omq_ship_lag_seconds{{{_ONE}}}", "{{omq_instance}}"),)),
        Panel("Not shipped", "bytes", ((f"omq_ship_lag_bytes{{{_ONE}}}", "{{omq_instance}}"),)),
        Panel("Shipped a second", "Bps", ((_rate("omq_ship_bytes_total"), "{{omq_instance}}"),)),
        Panel("No answer of the store", "s", ((
            f"omq_ship_away_seconds{{{_ONE}}}", "{{omq_instance}}"),)),
        Panel("Age of the newest copy of the pool", "s", ((
            f"time() - omq_ship_base_timestamp_seconds{{{_ONE}}}", "{{omq_instance}}"),)),
    )),
    ("Services", (
        Panel("Running", "short", ((f"omq_service_up{{{_ONE}}}", "{{service}}"),)),
        Panel("Readers at work", "percentunit", ((
            f"omq_service_readers_busy{{{_ONE}}} / omq_service_readers{{{_ONE}}}", "{{service}}"),
        )),
        Panel("Sessions", "short", ((f"omq_service_sessions{{{_ONE}}}", "{{service}}"),)),
        Panel("Restarts in an hour", "short", ((
            f"increase(omq_service_restarts_total{{{_ONE}}}[1h])", "{{service}}"),)),
        Panel("Messages in hand for peers", "short", ((
            f"omq_channel_mlists{{{_ONE}}}", "{{channel}}"),)),
        Panel("Peers down", "short", ((f"omq_peers_down{{{_ONE}}}", "{{service}}"),)),
    )),
)
_COLUMNS: Final = 24  # of Grafana's grid
_WIDTH: Final = {"timeseries": 12, "stat": 6}
_HEIGHT: Final = {"timeseries": 8, "stat": 4}


def dashboard() -> dict[str, Any]:
    """The whole, as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS:
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False,
                       "gridPos": {"x": 0, "y": y, "w": _COLUMNS, "h": 1}, "panels": []})
        x, y = 0, y + 1
        for panel in row:
            if x + _WIDTH[panel.kind] > _COLUMNS:
                x, y = 0, y + panels[-1]["gridPos"]["h"]
            panels.append(_panel(panel, len(panels) + 1, x, y))
            x += _WIDTH[panel.kind]
        y += panels[-1]["gridPos"]["h"]
    return {
        "uid": "omq-overview", "title": "omq", "tags": ["omq", "queues"], "schemaVersion": 39,
        "version": 1, "editable": True, "refresh": "10s", "timezone": "browser",
        "time": {"from": "now-1h", "to": "now"}, "annotations": {"list": []},
        "templating": {"list": _variables()}, "panels": panels}


def _panel(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    return {
        "id": number, "type": panel.kind, "title": panel.title, "datasource": _SOURCE,
        "gridPos": {"x": x, "y": y, "w": _WIDTH[panel.kind], "h": _HEIGHT[panel.kind]},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {},
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": _SOURCE, "expr": expression,
             "legendFormat": legend}
            for at, (expression, legend) in enumerate(panel.queries)]}


def _variables() -> list[dict[str, Any]]:
    def values(name: str, label: str, query: str) -> dict[str, Any]:
        return {"name": name, "label": label, "type": "query", "datasource": _SOURCE,
                "query": query, "refresh": 2, "includeAll": True, "multi": True, "sort": 1,
                "current": {"text": "All", "value": "$__all"}}

    return [
        {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"},
        values("omq", "Instance", "label_values(omq_up, omq_instance)"),
        values("queue", "Queue", 'label_values(omq_queue_readers{omq_instance=~"$omq"}, queue)')]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(dashboard(), indent=1) + "\n")
