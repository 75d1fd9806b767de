"""Which triggered program is started when, and what triggers.conf may say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from omq.base.errors import ConfigError
from omq.base.settings import Settings
from omq.services.trigger.lanes import FOREVER, Lane, Lanes, Run, Trigger
from omq.services.trigger.programs import Program, load_programs

SETTINGS = replace(Settings(), trigger_starts_max=3, trigger_period_s=10,
                   trigger_backoff_min_s=1, trigger_backoff_max_s=8)
PROGRAM = Program("X", ("/bin/true",), runs_max=2)


def lane_of(*queues: str, kind: str = "first") -> Lane:
    lane = Lanes(SETTINGS).of("X")
    lane.waiting.extend(Trigger(None, queue, kind, "X", 1) for queue in queues)
    return lane


def start(lane: Lane, now: float, pid: int) -> str:
    """The queue that is started for; "": none may."""
    trigger = lane.next(PROGRAM, SETTINGS, now)
    if trigger is None:
        return ""
    lane.started(Run(trigger, PROGRAM, pid, now))
    return trigger.queue


def test_so_many_at_once() -> None:
    lane = lane_of("A", "B", "C")
    assert [start(lane, 0.0, pid) for pid in (1, 2, 3)] == ["A", "B", ""]
    assert lane.due(SETTINGS, 0.0) == FOREVER, "the end of one is waited for, nothing else"
    del lane.running[1]
    assert start(lane, 0.0, 3) == "C"


def test_one_of_a_queue_unless_every_message_has_its_own() -> None:
    assert [start(lane_of("A", "A"), 0.0, 1)] == ["A"]
    lane = lane_of("A", "A", "B")
    assert [start(lane, 0.0, pid) for pid in (1, 2)] == ["A", "B"]
    lane = lane_of("A", "A", kind="every")
    assert [start(lane, 0.0, pid) for pid in (1, 2)] == ["A", "A"]


def test_so_many_within_a_time() -> None:
    lane = lane_of(*"ABCDE")
    for now, pid in ((0.0, 1), (1.0, 2), (2.0, 3)):
        assert start(lane, now, pid)
        del lane.running[pid]
    assert not start(lane, 3.0, 4)
    assert lane.due(SETTINGS, 3.0) == 10.0
    assert start(lane, 10.0, 4) == "D"


def test_pauses_grow_and_what_failed_comes_first() -> None:
    lane, now = lane_of("A", "B"), 0.0
    pauses = []
    for _ in range(5):
        trigger = lane.next(PROGRAM, SETTINGS, now)
        assert trigger is not None
        assert trigger.queue == "A"
        pauses.append(lane.failed(trigger, 0.0, now))
        assert not start(lane, now + pauses[-1] - 0.1, 1)
        assert lane.due(SETTINGS, now) == now + pauses[-1]
        now += pauses[-1]
    assert pauses == [1, 2, 4, 8, 8]


def test_the_time_of_a_run_is_waited_for() -> None:
    lane = lane_of("A")
    trigger = lane.next(PROGRAM, SETTINGS, 0.0)
    assert trigger is not None
    lane.started(Run(trigger, replace(PROGRAM, timeout_s=5), 1, 2.0))
    assert lane.due(SETTINGS, 3.0) == 7.0
    lane.running[1].killed = True
    assert lane.due(SETTINGS, 8.0) == FOREVER, "it is killed once"


def test_lanes_without_anything_go() -> None:
    lanes = Lanes(SETTINGS)
    lanes.of("A").waiting.append(Trigger(None, "A", "first", "A", 1))
    lanes.of("B")
    lanes.tidy()
    assert [name for name, _ in lanes] == ["A"]


def test_programs_are_read(tmp_path: Path) -> None:
    (tmp_path / "triggers.conf").write_text(
        "[SHIP]\ncommand = /bin/ship --queue {queue} 'two words'\nruns_max = 1\ntimeout_s = 9\n"
        "[UNIT]\nunit = ship@{queue}.service\n")
    found = load_programs(tmp_path)
    assert found["SHIP"] == Program("SHIP", ("/bin/ship", "--queue", "{queue}", "two words"), 1, 9)
    assert found["SHIP"].command("A; rm")[2] == "A; rm", "a word stays a word"
    assert found["UNIT"].command("A")[-2:] == ["--", "ship@A.service"]
    assert load_programs() == {}, "the shipped file has none"


@pytest.mark.parametrize(("text", "key"), [
    ("[x]\ncommand = /bin/true\n", "[x]"),
    ("[X]\nruns_max = 2\n", "[X]"),
    ("[X]\ncommand = /bin/true\nunit = a.service\n", "[X]"),
    ("[X]\ncommand = true\n", "command"),
    ("[X]\ncommand = /bin/true 'open\n", "command"),
    ("[X]\ncommand =\n", "command"),
    ("[X]\nunit = --now.service extra\n", "unit"),
    ("[X]\nunit = reboot\n", "unit"),
    ("[X]\ncommand = /bin/true\nruns_max = 0\n", "runs_max"),
    ("[X]\ncommand = /bin/true\nuser = root\n", "user"),
])
def test_mistakes_in_programs(tmp_path: Path, text: str, key: str) -> None:
    (tmp_path / "triggers.conf").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_programs(tmp_path)
    assert caught.value.fields["key"] == key
