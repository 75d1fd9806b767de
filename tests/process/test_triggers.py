"""Triggers: which messages ask for a program when, and what the trigger monitor does with them."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omq
from omq.ipc.client.connection import Client
from tests.process.instance import MANAGER, Instance
from tests.process.processes import WAIT_S

TRIGGERS, MONITOR = "SYSTEM.TRIGGERS", "trigger.monitor"
QUEUES = f"[*]\ndeath_delay_s = 0\n\n[A]\n\n[B]\n\n[{TRIGGERS}]\npersistent = no\n"


def take(reader: omq.Reader, count: int) -> list[dict[str, Any]]:
    """The next trigger messages, which are done; none is left behind them."""
    out: list[dict[str, Any]] = []
    while len(out) < count:
        messages = reader.next(count - len(out), WAIT_S)
        assert messages, out
        for message in messages:
            out.append(json.loads(message.body))
            message.done()
    return out


def nothing(c: Client, reader: omq.Reader) -> None:
    """No trigger message comes of what was done: a whole group has looked since."""
    c.put("B", b"a group of its own")
    c.put("B", b"and another")
    assert reader.next(1, 0) == []


@pytest.fixture
def watched(omq_instance: Instance) -> Iterator[tuple[Instance, Client, omq.Reader]]:
    omq_instance.queues(QUEUES)
    omq_instance.settings(trigger_interval_s=3600)
    omq_instance.start()
    with (omq_instance.connect() as c, omq_instance.connect() as other,
          other.reader(TRIGGERS) as reader):
        yield omq_instance, c, reader


World = tuple[Instance, Client, omq.Reader]


def test_first_is_told_once_until_the_queue_was_empty(watched: World) -> None:
    _, c, reader = watched
    c.queues.define("X", trigger="first", trigger_program="SHIP")
    c.put("X", b"1")
    c.put("X", b"2")
    (told,) = take(reader, 1)
    assert {**told, "time_ns": 0} == {"queue": "X", "trigger": "first", "program": "SHIP",
                                      "messages": 1, "time_ns": 0}
    nothing(c, reader)
    c.put("X", b"3")
    nothing(c, reader)
    with c.reader("X") as own:
        for _ in range(3):
            own.next(1, WAIT_S)[0].done()
        c.put("X", b"4")
        nothing(c, reader)  # somebody reads it
    assert take(reader, 1)[0]["queue"] == "X", "nobody reads it any more, and it is not empty"


def test_depth_is_told_when_so_many_are_ready(watched: World) -> None:
    _, c, reader = watched
    c.queues.define("X", trigger="depth", trigger_depth=3)
    c.put("X", b"1")
    c.put("X", b"2", delay_s=3600)
    c.put("X", b"3")
    nothing(c, reader)
    c.put("X", b"4")
    assert take(reader, 1)[0]["messages"] == 3
    c.put("X", b"5")
    nothing(c, reader)


def test_every_message_is_told(watched: World) -> None:
    _, c, reader = watched
    c.queues.define("X", trigger="every")
    c.put_many("X", [b"%d" % n for n in range(250)])
    assert {each["queue"] for each in take(reader, 250)} == {"X"}
    nothing(c, reader)
    with c.reader("X"):
        c.put("X", b"also while it is read")
        take(reader, 1)


def test_a_held_queue_triggers_when_it_is_released(watched: World) -> None:
    _, c, reader = watched
    for name, kind in (("X", "first"), ("Y", "every")):
        c.queues.define(name, trigger=kind, get="inhibited")
        c.put(name, b"1")
    nothing(c, reader)
    for name in ("X", "Y"):
        c.queues.alter(name, get="allowed")
        assert take(reader, 1)[0]["queue"] == name


def test_a_trigger_under_way_is_not_told_again(watched: World) -> None:
    _, c, reader = watched
    c.queues.define("X", trigger="first")
    c.put("X", b"1")
    (message,) = reader.next(1, WAIT_S)
    with c.reader("X") as own:
        own.next(1, WAIT_S)[0].done()
    c.put("X", b"2")
    nothing(c, reader)
    message.done()
    take(reader, 1)


def test_what_is_owed_waits_for_room(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c, omq_instance.connect() as other:
        c.queues.define("X", trigger="every")
        c.put("X", b"before there is a queue for triggers")
        c.queues.define(TRIGGERS, max_depth=2)
        c.put_many("X", [b"%d" % n for n in range(4)])
        with other.reader(TRIGGERS) as reader:
            take(reader, 5)
            nothing(c, reader)
    assert omq_instance.events(1283)


def test_a_killed_manager_owes_nothing_less(watched: World) -> None:
    instance, c, reader = watched
    c.queues.define("X", trigger="every")
    c.queues.define("Y", trigger="first")
    for n in range(3):
        c.put("X", b"%d" % n)
    c.put("Y", b"1")
    instance.kill(MANAGER)
    instance.start()
    found = [each["queue"] for each in take(reader, 4)]
    assert sorted(found) == ["X", "X", "X", "Y"]


def test_keys_of_triggers_are_checked(watched: World) -> None:
    _, c, _ = watched
    for keys in ({"trigger": "often"}, {"trigger_depth": 0}, {"trigger": "depth", "triger": 1}):
        with pytest.raises(omq.BadDefinition):
            c.queues.define("X", **keys)
    c.queues.define("X", trigger="depth", trigger_depth=7)
    assert c.queues.show("X").keys["trigger_depth"] == "7"


# the monitor


class Programs:
    """Commands that say by a pipe what they do, and end as the test tells them."""

    def __init__(self, folder: Path, instance: Instance) -> None:
        self._folder, self._instance = folder, instance
        self._said = folder / "said"
        os.mkfifo(self._said)
        self._fd = os.open(self._said, os.O_RDWR | os.O_NONBLOCK)
        self._rest = b""
        self._text = ""

    def add(self, name: str, script: str, keys: str = "") -> None:
        """A section of triggers.conf whose command is this."""
        path = self._folder / name
        path.write_text(f"#!/bin/sh\nexec 3>>{self._said}\n{script}\n")
        path.chmod(0o755)
        self._text += f"[{name}]\ncommand = {path} {{queue}}\n{keys}\n"
        (self._instance.conf / "triggers.conf").write_text(self._text)

    def line(self) -> str:
        """The next that one says."""
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._fd], [], [], WAIT_S)
            assert ready, self._instance.said()
            self._rest += os.read(self._fd, 4096)
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def close(self) -> None:
        os.close(self._fd)


@pytest.fixture
def programs(omq_instance: Instance, tmp_path: Path) -> Iterator[Programs]:
    omq_instance.queues(QUEUES)
    found = Programs(tmp_path, omq_instance)
    yield found
    omq_instance.stop(MONITOR)
    found.close()


READ_ALL = f"""exec {sys.executable} -c '
import os, omq
with omq.connect(os.environ["OMQ_SPOOL"]) as c, c.reader(os.environ["OMQ_QUEUE"]) as reader:
    while messages := reader.next(1, 0):
        messages[0].done()
        os.write(3, messages[0].body + b"\\n")
'"""


def test_a_command_empties_its_queue(omq_instance: Instance, programs: Programs) -> None:
    programs.add("X", READ_ALL)
    omq_instance.settings(trigger_interval_s=1)
    omq_instance.start(MANAGER, MONITOR)
    with omq_instance.connect() as c:
        c.queues.define("X", trigger="first")
        for n in range(3):
            c.put("X", b"%d" % n)
        assert [programs.line() for _ in range(3)] == ["0", "1", "2"]
        c.put("X", b"later")
        assert programs.line() == "later", "started anew, or still there"


def test_a_command_that_fails_is_tried_until_it_works(omq_instance: Instance, programs: Programs
                                                      ) -> None:
    programs.add("X", 'echo "$OMQ_TRIGGER $1" >&3; test -e "$0.good"')
    omq_instance.settings(trigger_backoff_min_s=0, trigger_backoff_max_s=1)
    omq_instance.start(MANAGER, MONITOR)
    with omq_instance.connect() as c:
        c.queues.define("X", trigger="every")
        c.put("X", b"1")
        assert [programs.line() for _ in range(3)] == ["every X"] * 3
        assert [each.queue for each in c.browse(TRIGGERS)] == [TRIGGERS], "nothing is lost"
        (programs._folder / "X.good").touch()
        with c.reader("A") as reader:
            while list(c.browse(TRIGGERS)):
                reader.next(1, 0.05)
    assert omq_instance.events(1286)[0]["reason"] == "exit code 1"


def test_a_program_that_nobody_knows_waits_for_a_reload(omq_instance: Instance, programs: Programs
                                                        ) -> None:
    programs.add("OTHER", "exit 0")
    omq_instance.settings()
    omq_instance.start(MANAGER, MONITOR)
    with omq_instance.connect() as c:
        c.queues.define("X", trigger="first", trigger_program="SHIP")
        c.put("X", b"1")
        with c.reader("A") as reader:
            while not omq_instance.events(1287):
                reader.next(1, 0.05)
        programs.add("SHIP", 'echo "$1" >&3')
        omq_instance.children[MONITOR].signal(signal.SIGHUP)
        assert programs.line() == "X"


def test_a_killed_monitor_and_manager_lose_no_start(omq_instance: Instance, programs: Programs
                                                    ) -> None:
    programs.add("X", 'echo "$OMQ_QUEUE" >&3; exec sleep 600', "runs_max = 1")
    omq_instance.settings(trigger_interval_s=1)
    omq_instance.start(MANAGER, MONITOR)
    with omq_instance.connect() as c:
        c.queues.define("X", trigger="first")
        c.put("X", b"1")
        assert programs.line() == "X"
        omq_instance.kill(MONITOR)
        omq_instance.start(MONITOR)
        assert programs.line() == "X", "its command ended with it and is started again"
        omq_instance.kill(MANAGER)
        omq_instance.start()
        omq_instance.kill(MONITOR)
        omq_instance.start(MONITOR)
        assert programs.line() == "X"


def test_time_over_is_a_failure(omq_instance: Instance, programs: Programs) -> None:
    programs.add("X", 'echo "$OMQ_QUEUE" >&3; exec sleep 600', "timeout_s = 1")
    omq_instance.settings(trigger_backoff_min_s=0)
    omq_instance.start(MANAGER, MONITOR)
    with omq_instance.connect() as c:
        c.queues.define("X", trigger="first")
        c.put("X", b"1")
        assert [programs.line(), programs.line()] == ["X", "X"]
    assert omq_instance.events(1286)[0]["reason"] == "killed after 1 s"


def test_what_is_no_trigger_message_goes_to_poison(omq_instance: Instance, programs: Programs
                                                   ) -> None:
    programs.add("X", 'echo "$OMQ_QUEUE" >&3')
    omq_instance.queues(QUEUES + "attempts_max = 1\n")
    omq_instance.start(MANAGER, MONITOR)
    with omq_instance.connect() as c:
        for body in (b"{}", b"\xff", b"[" * 5000, b'{"queue": 1}'):
            c.put(TRIGGERS, body)
        c.queues.define("X", trigger="first")
        c.put("X", b"1")
        assert programs.line() == "X"
        with c.reader("POISON") as reader:
            assert len(reader.next(4, WAIT_S)) > 0
