"""A real Prometheus scrapes omq-metrics, evaluates the shipped rules, and answers what the
dashboard asks."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from omq.cli.watch import dashboard
from omq.cli.watch.omq_metrics import PORT_FILE
from tests.process.operator_world import Instance
from tests.process.processes import WAIT_S, popen
from tests.tidy.tree import ROOT
from tests.waiting import pause

SERVER = shutil.which("prometheus")
pytestmark = pytest.mark.skipif(
    SERVER is None, reason="prometheus is absent (Debian package prometheus)")
RULES = ROOT / "share/omq/prometheus.rules.yml"
LOOK_S = 0.2
ATTEMPTS = 3  # the default of queues.conf
CONFIGURATION = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: omq
    static_configs: [{{targets: ["{target}"]}}]
"""


class Prometheus:
    """One on loopback; `ask`: its API."""

    def __init__(self, folder: Path, target: str) -> None:
        folder.mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._at = f"127.0.0.1:{free.getsockname()[1]}"
        conf, self._log = folder / "prometheus.yml", folder / "log"
        conf.write_text(CONFIGURATION.format(rules=RULES, target=target))
        with self._log.open("wb") as log:
            self._child = subprocess.Popen(
                [str(SERVER), f"--config.file={conf}", f"--storage.tsdb.path={folder / 'data'}",
                 f"--web.listen-address={self._at}"], stdout=log, stderr=log)

    def ask(self, path: str, **fields: str) -> Any:
        """The data of the answer; None: not yet, or refused."""
        query = urllib.parse.urlencode(fields)
        with suppress(urllib.error.URLError, ConnectionError), urllib.request.urlopen(
                f"http://{self._at}/api/v1/{path}?{query}", timeout=120) as answer:
            return json.load(answer)["data"]
        return None

    def until(self, test: Callable[[], Any]) -> Any:
        """What the test finds, once it finds something."""
        for _ in range(int(WAIT_S / LOOK_S)):
            if found := test():
                return found
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(LOOK_S)
            assert self._child.poll() is None, self._log.read_text()
        raise AssertionError(self._log.read_text())

    def values(self, expression: str) -> list[float]:
        found = self.ask("query", query=expression)
        return [float(each["value"][1]) for each in found["result"]] if found else []

    def end(self) -> None:
        self._child.terminate()
        self._child.wait(WAIT_S)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Instance, Prometheus]]:
    made = Instance(tmp_path_factory.mktemp("prometheus") / "spool")
    conf = made.conf / "omq.conf"
    conf.write_text(conf.read_text() + "[metrics]\nmetrics_listen_port = 0\n")
    made.start()
    metrics = popen("omq-metrics", made.arguments)
    file = made.paths.run / PORT_FILE
    while not file.exists():
        assert metrics.poll() is None
        pause()
    host, port = file.read_text().split()
    server = Prometheus(made.paths.root.parent / "prometheus", f"{host}:{port}")
    try:
        yield made, server
    finally:
        server.end()
        metrics.send_signal(signal.SIGTERM)
        assert metrics.wait(WAIT_S) == 0
        made.end()


def test_it_scrapes_and_its_numbers_are_those_of_the_queue(world: tuple[Instance, Prometheus]
                                                           ) -> None:
    made, server = world
    made.put("A", b"1", b"2", b"3")
    with made.connect("reads") as connection, connection.reader("A", batch=2) as reader:
        for message in reader.next(timeout_s=WAIT_S):
            message.done()
    for expression in ('omq_queue_messages{queue="A",state="ready"} == 1',
                       'omq_queue_wait_seconds_count{queue="A"} == 2',
                       'omq_queue_work_seconds_count{queue="A"} == 2',
                       'histogram_quantile(0.9, omq_queue_work_seconds_bucket{queue="A"}) >= 0',
                       'omq_up{omq_instance="default"} == 1'):
        assert server.until(partial(server.values, expression)), expression


def test_every_rule_is_evaluated_and_poison_fires(world: tuple[Instance, Prometheus]) -> None:
    made, server = world
    made.put("B", b"bad")
    with made.connect("fails") as connection, connection.reader("B") as reader:
        for _ in range(ATTEMPTS):
            (message,) = reader.next(timeout_s=WAIT_S)
            message.fail("no", delay_s=0)

    def firing() -> bool:
        alerts = (server.ask("alerts") or {"alerts": []})["alerts"]
        return any((each["labels"]["alertname"], each["state"]) == ("OmqPoison", "firing")
                   for each in alerts)

    assert server.until(firing)
    (group,) = server.ask("rules")["groups"]
    assert {rule["health"] for rule in group["rules"]} == {"ok"}, group


def test_what_the_dashboard_asks_is_answered(world: tuple[Instance, Prometheus]) -> None:
    _, server = world
    server.until(lambda: server.values("omq_up"))
    for panel in dashboard.dashboard()["panels"]:
        for target in panel.get("targets", ()):
            asked = target["expr"].replace("$__rate_interval", "1m").replace("$omq", ".*").replace(
                "$queue", ".*")
            assert server.ask("query", query=asked) is not None, asked
