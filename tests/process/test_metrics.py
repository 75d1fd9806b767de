"""omstat --metrics and omq-metrics beside a manager that works, hangs, is dead, is not there."""

from __future__ import annotations

import io
import re
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path

import pytest

from omq.base.errors import Exit
from omq.cli.watch.facts import gather
from omq.cli.watch.omq_metrics import PORT_FILE
from omq.core.index.view import IndexView
from omq.format import index
from omq.services.daemon.options import Location
from omq.storage import segment
from tests.process.operator_world import Instance
from tests.process.processes import popen
from tests.waiting import pause


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    made = Instance(tmp_path_factory.mktemp("metrics") / "spool")
    made.start()
    made.put("A", b"1", b"2", b"3")
    made.put("B", b"4")
    yield made
    made.end()


def value(said: str, sample: str) -> float:
    found = re.search(rf"^{re.escape(sample)} (\S+)$", said, re.MULTILINE)
    assert found is not None, (sample, said)
    return float(found[1])


def figures(world: Instance) -> str:
    said = world.run("omstat", "--metrics")
    assert (said.code, said.err) == (Exit.OK, "")
    return said.out


def test_the_figures_are_those_of_the_index(world: Instance) -> None:
    said = figures(world)
    assert value(said, 'omq_up{omq_instance="default"}') == 1
    assert value(said, 'omq_queue_messages{omq_instance="default",queue="A",state="ready"}') == 3
    assert value(said, 'omq_messages_put_total{omq_instance="default"}') == 4
    with IndexView.attach(world.paths) as view:
        for row in view.queues():
            ages = view.ages(row.number, (index.EntryState.READY,))
            assert view.oldest((index.EntryState.READY,)).get(row.number, 0) == (
                min(ages.tolist(), default=0)), row.name


def test_a_reader_and_what_it_holds(world: Instance) -> None:
    with world.connect("reads") as connection, connection.reader("B") as reader:
        message = reader.next(timeout_s=60)
        said = figures(world)
        assert value(said, 'omq_queue_readers{omq_instance="default",queue="B"}') == 1
        assert value(said, 'omq_queue_messages{omq_instance="default",queue="B",'
                           'state="active"}') == 1
        assert message
        (message[0] if isinstance(message, list) else message).fail("again")


def test_a_manager_that_does_not_move_is_told_and_its_figures_stand(world: Instance) -> None:
    with world.stopped():
        said = figures(world)
    assert value(said, 'omq_up{omq_instance="default"}') == 0
    assert value(said, 'omq_manager_state{omq_instance="default",state="hung"}') == 1
    assert value(said, 'omq_queue_messages{omq_instance="default",queue="A",state="ready"}') == 3


def test_the_service_serves_and_ends(world: Instance) -> None:
    conf = world.conf / "omq.conf"
    conf.write_text(conf.read_text() + "[metrics]\nmetrics_listen_port = 0\n")
    child = popen("omq-metrics", world.arguments)
    try:
        file = world.paths.run / PORT_FILE
        while not file.exists():
            assert child.poll() is None
            pause()
        host, port = file.read_text().split()
        with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=120) as answer:
            said = answer.read().decode()
        assert value(said, 'omq_up{omq_instance="default"}') == 1
    finally:
        child.send_signal(signal.SIGTERM)
        assert child.wait(120) == 0
    assert not file.exists()


def test_an_index_of_another_version_is_none(world: Instance,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "VERSION", index.VERSION + 1)
    found = gather(Location(None, world.paths, world.conf))
    assert (found.state, found.queues) == ("absent", ())
    assert "older queue manager" in found.note
    assert value(figures(world), 'omq_up{omq_instance="default"}') == 0


def test_a_wrong_configuration_is_a_figure(world: Instance) -> None:
    services = world.conf / "services.conf"
    services.write_text("[qmgr]\nkind = nothing\n")
    try:
        said = figures(world)
    finally:
        services.unlink()
    assert value(said, 'omq_configuration_valid{omq_instance="default"}') == 0
    assert value(said, 'omq_up{omq_instance="default"}') == 1


def test_a_dead_manager_and_none(tmp_path: Path) -> None:
    made = Instance(tmp_path / "spool")
    assert value(figures(made), 'omq_manager_state{omq_instance="default",state="absent"}') == 1
    made.start()
    try:
        made.put("A", b"1")
        made.kill()
        said = figures(made)
        assert value(said, 'omq_manager_state{omq_instance="default",state="segment"}') == 1
        assert value(said, 'omq_queue_messages{omq_instance="default",queue="A",'
                           'state="ready"}') == 1
    finally:
        made.end()
    assert segment.read_ids(made.paths) is None


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    made = Instance(tmp_path / "spool")
    conf = made.conf / "omq.conf"
    conf.write_text(f"{conf.read_text()}[metrics]\nmetrics_listen_host = 192.0.2.1\n")
    with redirect_stderr(io.StringIO()) as told:
        said = made.run("omq-metrics")
    assert said.code == Exit.UNAVAILABLE
    assert "metrics_listen_port" in said.err + told.getvalue()
