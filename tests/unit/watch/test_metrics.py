"""Figures for Prometheus: names, bounds, rules, dashboard, and the server that gives them."""

from __future__ import annotations

import json
import math
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from omq.base.settings import Settings
from omq.cli.watch import dashboard
from omq.cli.watch.facts import Facts
from omq.cli.watch.histograms import QUEUE_EDGES
from omq.cli.watch.metric_table import ROWS, UNTOLD
from omq.cli.watch.metrics import families
from omq.cli.watch.scrape_server import Remembered, ScrapeServer
from omq.format.index import Counter
from tests.tidy.tree import ROOT
from tests.unit.watch.made import SPENT, everything, facts, queue

RULES = ROOT / "share/omq/prometheus.rules.yml"
promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is absent (Debian package prometheus)")


def text(found: Facts) -> str:
    class Once(Collector):
        def collect(self) -> Iterator[Metric]:
            return families(found, "test")

    registry = CollectorRegistry()
    registry.register(Once())
    return generate_latest(registry).decode()


def names() -> set[str]:
    """Of all samples that an instance gives which has everything."""
    return {sample.name for family in families(everything(), "test") for sample in family.samples}


WANTED = {
    "depth by state, ready": "queue_messages", "oldest age": "queue_oldest_message_age_seconds",
    "put": "queue_messages_put_total", "get": "queue_messages_handed_out_total",
    "done": "queue_messages_processed_total", "fail": "queue_attempts_failed_total",
    "expired": "queue_messages_expired_total", "time in queue": "queue_wait_seconds_bucket",
    "hand-out to done": "queue_work_seconds_bucket", "attempts": "messages_handed_out_total",
    "dead letters, POISON": "queue_messages_dead_lettered_total", "readers": "service_readers",
    "busy share": "service_readers_busy", "deaths": "service_reader_deaths_total",
    "deaths of all": "reader_deaths_total", "restarts": "service_restarts_total",
    "journal bytes": "journal_written_bytes_total",
    "sync latency": "journal_sync_seconds_bucket", "group size": "journal_group_frames_bucket",
    "checkpoint lag": "checkpoint_lag_frames", "pause": "paused_seconds_total",
    "pool and store space": "spool_bytes", "index": "index_messages",
    "archive lag": "archive_lag_seconds", "archive": "archive_pending_files",
    "disk free": "disk_free_bytes", "disk": "disk_bytes", "clients": "clients",
    "refusals": "requests_refused_total", "channels": "channel_processes", "peers": "channel_peers",
    "peers down": "peers_down", "sessions": "service_sessions", "in doubt": "units_in_doubt",
    "not shipped": "ship_trouble", "not shipped for": "ship_lag_seconds",
    "not shipped, bytes": "ship_lag_bytes", "store away": "ship_away_seconds",
    "instance": "up"}
"""What an operator asks of an instance, and the metric that answers."""


@pytest.mark.parametrize("asked", WANTED)
def test_there_is_an_answer_to_what_operators_ask(asked: str) -> None:
    assert f"omq_{WANTED[asked]}" in names()


def test_each_counter_of_the_index_is_told_or_said_to_be_none() -> None:
    known = set(ROWS) | UNTOLD
    assert {counter.name.lower() for counter in Counter} <= known


def test_histograms_are_cumulative_and_in_seconds() -> None:
    said = text(everything())
    of = 'omq_instance="test",queue="A"'
    assert f'omq_queue_wait_seconds_bucket{{le="6.5536e-05",{of}}} 1.0' in said
    assert f'omq_queue_wait_seconds_bucket{{le="0.268435456",{of}}} 1.0' in said
    assert f'omq_queue_wait_seconds_bucket{{le="1.073741824",{of}}} 3.0' in said  # 0.5 to 1.07 s
    assert f'omq_queue_wait_seconds_bucket{{le="+Inf",{of}}} 4.0' in said
    assert f"omq_queue_wait_seconds_count{{{of}}} 4.0" in said
    assert f"omq_queue_wait_seconds_sum{{{of}}} 4.0" in said
    assert 'omq_journal_group_frames_bucket{le="4.0",omq_instance="test"} 2.0' in said
    assert 'omq_queue_messages_handed_out_total{omq_instance="test",queue="A"} 4.0' in said


def test_what_rests_for_the_next_bodies_has_its_figures() -> None:
    said = text(everything())
    assert 'omq_recycled_files{omq_instance="test"} 3.0' in said
    assert 'omq_recycled_bytes{omq_instance="test"} 900000.0' in said


def test_a_service_has_its_readers_and_who_of_them_works() -> None:
    said = text(everything())
    assert 'omq_service_readers{omq_instance="test",service="local"} 3.0' in said
    assert 'omq_service_readers_busy{omq_instance="test",service="local"} 1.0' in said
    assert 'omq_service_reader_deaths_total{omq_instance="test",service="local"} 5.0' in said
    assert 'omq_service_sessions{omq_instance="test",service="smtp"} 3.0' in said
    assert 'omq_service_sessions{omq_instance="test",service="amqp"} 4.0' in said
    assert 'omq_service_sessions{omq_instance="test",service="local"}' not in said


def test_a_queue_has_its_figures_by_state() -> None:
    said = text(facts(queue("A", ready=3, held=2, readers=1, age_s=90)))
    assert 'omq_queue_messages{omq_instance="test",queue="A",state="ready"} 3.0' in said
    assert 'omq_queue_messages{omq_instance="test",queue="A",state="held"} 2.0' in said
    assert 'omq_queue_oldest_message_age_seconds{omq_instance="test",queue="A"} 90.0' in said
    assert 'omq_queue_messages_max{omq_instance="test",queue="A"} +Inf' in said


def test_queues_that_programs_make_are_one_series_of_each_model() -> None:
    made = [queue(f"REPLY.{number:08X}", number, ready=2, readers=1, age_s=number)
            for number in range(1, 500)]
    said = text(facts(queue("A"), *made))
    assert 'queue="REPLY.*",state="ready"} 998.0' in said
    assert 'omq_queue_readers{omq_instance="test",queue="REPLY.*"} 499.0' in said
    assert 'oldest_message_age_seconds{omq_instance="test",queue="REPLY.*"} 499.0' in said
    assert 'omq_queue_messages_put_total{omq_instance="test",queue="REPLY.*"}' not in said
    assert "REPLY.0" not in said


def test_a_thousand_queues_are_bounded() -> None:
    said = text(facts(*(queue(f"Q{number}", number, spent=SPENT) for number in range(1000))))
    samples = [line for line in said.splitlines() if not line.startswith("#")]
    histogram = len(QUEUE_EDGES) + 3  # +Inf, sum, count
    assert len([line for line in samples if "queue=" in line]) == 1000 * (17 + 2 * histogram)
    assert len(samples) < 1000 * (17 + 2 * histogram) + 100


def test_a_counter_without_a_row_is_told_all_the_same() -> None:
    assert 'omq_manager_other{name="fresh",omq_instance="test"} 7.0' in text(facts(fresh=7))
    assert "omq_manager_other" not in text(facts())


@pytest.mark.parametrize("state", ["live", "hung", "segment", "absent"])
def test_each_state_of_the_manager(state: str) -> None:
    said = text(facts(state=state))
    assert f'omq_up{{omq_instance="test"}} {float(state == "live")}' in said
    assert f'omq_manager_state{{omq_instance="test",state="{state}"}} 1.0' in said
    assert said.count("omq_manager_state{") == 4


def promtool_run(*words: str, stdin: str = "") -> None:
    done = subprocess.run(["promtool", *words], input=stdin, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@promtool
def test_promtool_finds_nothing_to_say_of_names_and_units() -> None:
    promtool_run("check", "metrics", stdin=text(everything()))
    promtool_run("check", "metrics", stdin=text(facts(queue("A"), fresh=1)))


@promtool
def test_the_rules_fire_when_they_should_and_not_before(tmp_path: Path) -> None:
    promtool_run("check", "rules", str(RULES))
    test = tmp_path / "test.yml"
    test.write_text((Path(__file__).parent / "omq.rules.test.yml").read_text()
                    .replace("[RULES]", f"[{RULES}]"))
    promtool_run("test", "rules", str(test))


def test_rules_and_dashboard_name_metrics_that_there_are() -> None:
    known = names()
    for file in (RULES, ROOT / "share/omq/grafana.json"):
        named = set(re.findall(r"\bomq_(?!instance)\w+", file.read_text()))
        named -= {"omq_instance", "omq_manager_state"}
        assert named <= known, file


def test_what_omq_ship_says_of_itself_is_on_the_dashboard() -> None:
    shown = (ROOT / "share/omq/grafana.json").read_text()
    told = {each for each in names() if re.match(r"omq_ship_(?!objects)", each)}
    assert len(told) >= 5 and all(each in shown for each in told), told


def test_every_alert_is_tried() -> None:
    alerts = set(re.findall(r"- alert: (\w+)", RULES.read_text()))
    tried = set(re.findall(r"alertname: (\w+)",
                           (Path(__file__).parent / "omq.rules.test.yml").read_text()))
    assert alerts == tried


def test_the_dashboard_is_made_from_its_table() -> None:
    shipped = json.loads((ROOT / "share/omq/grafana.json").read_text())
    assert shipped == dashboard.dashboard(), (
        "run: python -m omq.cli.watch.dashboard > share/omq/grafana.json")
    panels = shipped["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [(p["gridPos"]["x"], p["gridPos"]["y"], p["gridPos"]["w"], p["gridPos"]["h"])
              for p in panels]
    for at, (x, y, w, h) in enumerate(places):
        assert x + w <= 24
        assert all(x >= ox + ow or ox >= x + w or y >= oy + oh or oy >= y + h
                   for ox, oy, ow, oh in places[:at]), panels[at]["title"]


@promtool
def test_what_the_dashboard_asks_is_promql(tmp_path: Path) -> None:
    asked = [target["expr"].replace("$__rate_interval", "5m") for panel in
             dashboard.dashboard()["panels"] for target in panel.get("targets", ())]
    rules = [{"record": f"a:{number}", "expr": expr} for number, expr in enumerate(asked)]
    for rule in rules:
        rule["record"] = f"a{rule['record'][2:]}"
    file = tmp_path / "asked.yml"
    file.write_text(json.dumps({"groups": [{"name": "asked", "rules": rules}]}))  # YAML, too
    promtool_run("check", "rules", str(file))


class Looks(Collector):
    """Counts how often it is looked."""

    def __init__(self) -> None:
        self.count = 0

    def collect(self) -> Iterator[Metric]:
        self.count += 1
        family = GaugeMetricFamily("omq_looks", "Looks")
        family.add_metric([], self.count)
        yield family


def test_many_who_ask_at_once_cost_one_look() -> None:
    now, source = [0.0], Looks()
    remembered = Remembered(source, 0.5, lambda: now[0])
    for _ in range(10):
        assert len(list(remembered.collect())) == 1
    assert source.count == 1
    now[0] = 0.6
    list(remembered.collect())
    assert source.count == 2


@pytest.fixture
def server() -> Iterator[ScrapeServer]:
    settings = Settings(metrics_listen_port=0, metrics_connections_max=2)
    with ScrapeServer(settings, Looks()) as made:
        yield made


def ask(server: ScrapeServer, request: bytes) -> socket.socket:
    """A connection that the server has accepted."""
    made = socket.create_connection(("127.0.0.1", server.server_address[1]), 30)
    made.sendall(request)
    server.timeout = 30.0
    server.handle_request()
    return made


def whole(connection: socket.socket) -> bytes:
    with connection:
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_a_scrape(server: ScrapeServer) -> None:
    said = whole(ask(server, b"GET /metrics HTTP/1.0\r\n\r\n"))
    assert said.startswith(b"HTTP/1.0 200") and b"omq_looks 1.0" in said


def test_openmetrics_to_whom_wants_it(server: ScrapeServer) -> None:
    said = whole(ask(server, b"GET /metrics HTTP/1.0\r\n"
                             b"Accept: application/openmetrics-text; version=1.0.0\r\n\r\n"))
    assert b"openmetrics-text" in said and said.endswith(b"# EOF\n")


def test_who_says_nothing_holds_a_place_for_its_time_only(server: ScrapeServer) -> None:
    slow = [ask(server, b"GET /met") for _ in range(2)]
    assert whole(ask(server, b"GET /metrics HTTP/1.0\r\n\r\n")) == b""  # no place
    server.end_slow(math.inf)
    threads = [each for each in threading.enumerate() if "process_request" in each.name]
    for each in threads:
        each.join(30)
    assert [whole(each)[:20] for each in slow] == [b"", b""]
    assert not server.busy
    assert b"200" in whole(ask(server, b"GET /metrics HTTP/1.0\r\n\r\n"))[:20]


@pytest.mark.parametrize("request_line", [
    b"POST / HTTP/1.0\r\n\r\n", b"\x00\xff\r\n\r\n", b"GET " + b"/" * 70000 + b"\r\n",
    b"GET /../../etc/passwd HTTP/1.0\r\n\r\n"])
def test_odd_requests_end_nothing(server: ScrapeServer, request_line: bytes) -> None:
    said: Any = whole(ask(server, request_line))
    assert b"root:" not in said
    assert b"200" in whole(ask(server, b"GET /metrics HTTP/1.0\r\n\r\n"))[:20]
