"""omq health beside a manager that works, hangs and comes back, with and without a watcher."""

from __future__ import annotations

import json
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.base.errors import Exit
from omq.cli.watch import alarm_file
from omq.cli.watch.alarm_events import QUEUE
from tests.process.operator_world import Instance
from tests.process.processes import popen
from tests.waiting import pause

ALARMS = """
[manager]
measure = manager_down
raise = 1
severity = critical
run = {program}

[deep]
measure = messages
queue = *
raise = 3
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Instance]:
    made = Instance(tmp_path / "spool")
    (made.conf / "services.conf").write_text("[qmgr]\nnumber = 1\nkind = manager\n"
                                             "title = Manager\nprogram = queue.manager\n")
    program = tmp_path / "page"
    program.write_text(f'#!/bin/sh\nprintf "%s|" "$@" >>{tmp_path}/told\necho >{tmp_path}/pipe\n')
    program.chmod(0o755)
    os.mkfifo(tmp_path / "pipe")
    (made.conf / "alarms.conf").write_text(ALARMS.format(program=program))
    conf = made.conf / "omq.conf"
    conf.write_text(f"{conf.read_text()}[metrics]\nalarms_period_s = 1\n")
    made.start()
    yield made
    made.end()


def test_findings_come_and_go(world: Instance) -> None:
    assert world.run("omq health").code == Exit.OK
    world.put("A", b"1", b"2", b"3")
    said = world.run("omq health", "--json")
    assert said.code == Exit.NO
    assert (json.loads(said.out)["alarm"], json.loads(said.out)["queue"]) == ("deep", "A")
    with world.stopped():
        said = world.run("omq health")
    assert said.code == Exit.NO
    assert world.manager is not None
    lines = said.out.splitlines()
    assert lines[:2] == [
        f"critical: manager: the queue manager (pid {world.manager.pid}) is stopped by a signal: "
        "nothing moves", f"    -> kill -CONT {world.manager.pid} lets it go on"]
    assert lines[2].startswith("warning: deep of A: messages: 3: nobody reads it")


def test_a_watcher_tells_of_a_manager_that_hangs_and_comes_back(
        world: Instance, tmp_path: Path) -> None:
    pipe = os.open(tmp_path / "pipe", os.O_RDWR)
    watcher = popen("omq", ["health", *world.arguments, "--watch"])
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    try:
        with world.stopped():
            assert poll.poll(120_000)
            while not any(each.raised for each in alarm_file.read(world.paths)
                          .conditions.values()):
                assert watcher.poll() is None
                pause()
            assert world.manager is not None
            words = f"critical: manager: the queue manager (pid {world.manager.pid}) is stopped"
            assert f"ALARM {words}" in world.run("omstat", "-a").out
            assert world.run("omq health").code == Exit.NO
        told = (tmp_path / "told").read_text()
        assert told.startswith(f"raise|manager|{words}") and "kill -CONT" in told
        while alarm_file.read(world.paths).conditions:
            assert watcher.poll() is None
            pause()
        assert world.run("omq health").out == "nothing is wrong\n"
    finally:
        watcher.send_signal(signal.SIGTERM)
        assert watcher.wait(120) == 0
        os.close(pipe)
    assert "ALARM" not in world.run("omstat", "-a").out


def test_alarms_are_event_messages_also_behind_a_manager_that_hung(world: Instance) -> None:
    """What begins while it hangs is told when it works again; omstat has it meanwhile."""
    world.stop()
    queues, conf = world.conf / "queues.conf", world.conf / "omq.conf"
    queues.write_text(f"{queues.read_text()}\n[{QUEUE}]\n")
    conf.write_text(conf.read_text().replace(
        "[daemons]", "[daemons]\nevent_messages = alarm_raised alarm_cleared", 1)
        if "[daemons]" in conf.read_text() else
        f"{conf.read_text()}[daemons]\nevent_messages = alarm_raised alarm_cleared\n")
    alarms = world.conf / "alarms.conf"
    alarms.write_text("\n".join(line for line in alarms.read_text().splitlines()
                                if not line.startswith("run")))
    world.start()
    watcher = popen("omq", ["health", *world.arguments, "--watch"])
    try:
        with world.stopped():
            while not any(each.raised for each in alarm_file.read(world.paths)
                          .conditions.values()):
                assert watcher.poll() is None
                pause()
            (told,) = [found for line in world.run("omstat", "-a", "--json").out.splitlines()
                       if (found := json.loads(line)["alarms"])]
            assert [(each["alarm"], each["queue"]) for each in told] == [("manager", None)]
        with world.connect("events") as connection, connection.reader(QUEUE) as reader:
            seen: list[dict[str, object]] = []
            while len(seen) < 2:
                for message in reader.next(timeout_s=120):
                    seen.append(json.loads(message.body))
                    message.done()
    finally:
        watcher.send_signal(signal.SIGTERM)
        assert watcher.wait(120) == 0
    assert [(each["event"], each["alarm"], each["severity"], each["value"]) for each in seen] == [
        ("alarm_raised", "manager", "critical", 1.0), ("alarm_cleared", "manager", "critical", 1.0)]
