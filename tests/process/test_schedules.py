"""Schedules in a running instance: exactly one message for each planned time, whatever dies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omq.base.errors import BadSchedule, UnknownSchedule
from omq.base.paths import SpoolPaths
from omq.tasks.schedule import QUEUE, planned_id
from omq.tasks.schedules import QueueMissing, Schedules
from omq.testing.instance import LiveInstance, Program
from tests.process.ipc_space import ipc_space
from tests.process.processes import WAIT_S
from tests.waiting import until

SERVER = "schedule.server"


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveInstance]:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/queues.conf").write_text("[*]\n\n[TICKS]\n")
    (tmp_path / "conf/schedules.conf").write_text("")
    (tmp_path / "made").mkdir()
    with ipc_space() as space:
        with LiveInstance(tmp_path / "made", tmp_path / "conf") as made:
            yield made
        assert not space.own or not space.objects()


def schedules(live: LiveInstance) -> Schedules:
    return Schedules(live.connect())


def planned(live: LiveInstance, count: int) -> list[str]:
    """The planned times of the next messages on TICKS, taken off."""
    found: list[str] = []
    with live.connect() as c, c.reader("TICKS") as reader:
        while len(found) < count:
            some = reader.next(timeout_s=WAIT_S)
            assert some, found
            for message in some:
                found.append(str(message.properties["omq.planned"]))
                message.done()
    return found


def settled(live: LiveInstance, server: Program) -> None:
    """Until the server has nothing to do at this time."""
    with live.connect() as c:
        until(lambda: all(
            row.state.name == "DEFERRED" for row in c.browse(QUEUE)), lambda: str(server.wait(0)))


def test_each_planned_time_has_one_message_whatever_is_killed(live: LiveInstance) -> None:
    schedules(live).define("TICK", "TICKS", "every 10 s", catch_up="all 100")
    times: list[str] = []
    server = live.run(SERVER)
    for fault in ("server", "manager", "both", "power", ""):
        if fault in ("server", "both"):
            server.kill()
        if fault in ("manager", "both"):
            live.kill_manager()
        if fault == "power":
            live.lose_unsynced()
        if fault in ("server", "both", "power"):
            server = live.run(SERVER)
        live.pass_time(30)
        times += planned(live, 3)
    settled(live, server)
    assert live.drain("TICKS") == []
    assert len(times) == len(set(times)) == 15
    assert sorted(times) == times
    (found,) = schedules(live).list()
    assert (found.puts, found.name) == (15, "TICK")


def test_a_clock_an_hour_back_and_forward_again(live: LiveInstance) -> None:
    schedules(live).define("TICK", "TICKS", "every 10 min", catch_up="all 100")
    server = live.run(SERVER)
    live.pass_time(600)
    first = planned(live, 1)
    live.step_clock(-3600)
    settled(live, server)
    live.pass_time(3000)
    settled(live, server)
    assert live.drain("TICKS") == []
    live.step_clock(3600)
    again = planned(live, 5)
    assert len({*first, *again}) == 6


def test_define_pause_resume_run_delete(live: LiveInstance) -> None:
    ours = schedules(live)
    assert ours.list() == []
    ours.define("DAILY", "TICKS", "every 1 days")
    ours.define("DAILY", "TICKS", "every 1 h", body="hourly", catch_up="skip")
    server = live.run(SERVER)
    live.pass_time(3600)
    assert len(planned(live, 1)) == 1
    ours.pause("DAILY")
    live.pass_time(7200)
    settled(live, server)
    assert live.drain("TICKS") == []
    ours.resume("DAILY")
    live.pass_time(3600)
    assert len(planned(live, 1)) == 1
    number = ours.run("DAILY")
    (taken,) = live.drain("TICKS")
    assert (taken.message_id, taken.body) == (number, b"hourly")
    ours.delete("DAILY")
    with pytest.raises(UnknownSchedule):
        ours.show("DAILY")
    live.pass_time(86400)
    assert live.drain("TICKS") == []


def test_a_definition_of_which_a_death_left_both_counts_once(live: LiveInstance) -> None:
    ours = schedules(live)
    old = ours.define("TICK", "TICKS", "every 10 s")
    with live.connect() as c:
        ours.define("TICK", "TICKS", "every 1 h")
        for _ in range(2):  # what a define that was killed leaves, twice
            c.put_many(QUEUE, [old.message()])
    server = live.run(SERVER)
    live.pass_time(60)
    settled(live, server)
    assert live.drain("TICKS") == []
    live.pass_time(3600)
    assert len(planned(live, 1)) == 1
    with live.connect() as c:
        assert len(list(c.browse(QUEUE))) == 1


def test_two_that_were_defined_at_one_moment_are_one(live: LiveInstance) -> None:
    ours = schedules(live)
    found = ours.define("TICK", "TICKS", "every 10 s")
    with live.connect() as c:
        c.put_many(QUEUE, [found.message()])
    server = live.run(SERVER)
    live.pass_time(10)
    assert len(planned(live, 1)) == 1
    settled(live, server)
    assert live.drain("TICKS") == []
    with live.connect() as c:
        assert len(list(c.browse(QUEUE))) == 1


def test_none_while_the_last_one_is_in_work(live: LiveInstance) -> None:
    schedules(live).define("TICK", "TICKS", "every 10 s", overlap="skip")
    server = live.run(SERVER)
    live.pass_time(10)
    with live.connect() as c, c.reader("TICKS") as reader:
        (message,) = reader.next(timeout_s=WAIT_S)
        for _ in range(3):
            live.pass_time(10)
            settled(live, server)
        assert reader.next(timeout_s=0) == []
        message.done()
        reader.flush()
    assert schedules(live).show("TICK").skipped == 3
    live.pass_time(10)
    assert len(planned(live, 1)) == 1


def test_a_queue_that_is_away_gets_it_later_and_one_that_knows_it_not_twice(
        live: LiveInstance) -> None:
    ours = schedules(live)
    with pytest.warns(QueueMissing, match=r"no queue LATER.*omq queue define LATER"):
        found = ours.define("TICK", "LATER", "every 1 h")
    assert ours.lacks_queue(found)
    assert "schedules-wait" not in health(live)[1]
    server = live.run(SERVER)
    live.pass_time(3600)
    settled(live, server)
    code, said = health(live)
    assert code == 1 and "schedules-wait" in said and "put off: 1" in said, said
    (event,) = events(live, 1644)
    assert (event["schedule"], event["queue"]) == ("TICK", "LATER")
    live.queues.define("LATER", dedupe_s=3600, duplicates="refused")
    with live.connect() as c:
        c.put("LATER", b"put before", unique_key=planned_id("TICK", found.next_ns))
    live.pass_time(3600)
    with live.connect() as c:
        until(lambda: len(list(c.browse("LATER"))) == 2, lambda: str(server.wait(0)))
    assert [each.body for each in live.drain("LATER")] == [b"put before", b""]


def test_the_file_is_adopted_and_a_wrong_one_refused(live: LiveInstance) -> None:
    file = live.spool / "conf/schedules.conf"
    file.write_text("[TICK]\nqueue = TICKS\nwhen = every 10 s\n[GONE]\nqueue = OTHR\n"
                    "when = 0 3 * * *\nzone = Europe/Berlin\n")
    server = live.run(SERVER)
    ours = schedules(live)
    until(lambda: [each.name for each in ours.list()] == ["GONE", "TICK"],
          lambda: str(server.wait(0)))
    until(lambda: [(each["schedule"], each["queue"]) for each in events(live, 1644)]
          == [("GONE", "OTHR")], lambda: str(server.wait(0)))
    ours.pause("TICK")
    with pytest.raises(BadSchedule, match=r"schedules\.conf"):
        ours.define("TICK", "TICKS", "every 1 s")
    with pytest.raises(BadSchedule, match=r"schedules\.conf"):
        ours.delete("TICK")
    assert server.stop() == 0
    file.write_text("[TICK]\nqueue = TICKS\nwhen = every 10 s\n")
    server = live.run(SERVER)
    until(lambda: [each.name for each in ours.list()] == ["TICK"], lambda: str(server.wait(0)))
    assert ours.show("TICK").paused
    file.write_text("[TICK]\nqueue = TICKS\nwhen = every 0 s\n")
    assert server.stop() == 0
    assert live.run(SERVER).wait() == 78


def test_what_a_stranger_puts_there_ends_nobody(live: LiveInstance) -> None:
    ours = schedules(live)
    ours.define("TICK", "TICKS", "every 10 s")
    with live.connect() as c:
        c.put(QUEUE, b"what is this?")
    live.run(SERVER)
    live.pass_time(10)
    assert len(planned(live, 1)) == 1
    assert [each.name for each in ours.list()] == ["TICK"]


def events(live: LiveInstance, number: int) -> list[dict[str, Any]]:
    lines = SpoolPaths(live.spool).event_log.read_text().splitlines()
    return [each for each in map(json.loads, lines) if each["event"] == number]


def health(live: LiveInstance) -> tuple[int | None, str]:
    output = live.spool.parent / "output"
    before = output.stat().st_size
    code = live.run("omq", "health").wait()
    return code, output.read_bytes()[before:].decode()


def test_a_paused_schedule_is_not_due(live: LiveInstance) -> None:
    """It waits until 2096 on its queue, which is nobody's planned time."""
    def why() -> str:
        found = live.run("omqwhy", QUEUE)
        output = live.spool.parent / "output"
        before = output.stat().st_size
        assert found.wait() == 0
        return output.read_bytes()[before:].decode()

    made = schedules(live)
    made.define("TICK", "TICKS", "every 10 s")
    made.pause("TICK")
    said = why()
    assert "1 schedule is paused" in said and "due" not in said, said
    made.define("TOCK", "TICKS", "every 10 s")
    said = why()
    assert "1 schedule waits; the first is due" in said and "; 1 schedule is paused" in said, said


def test_health_tells_that_nobody_puts_what_is_due(live: LiveInstance) -> None:
    assert "schedules" not in health(live)[1]
    schedules(live).define("TICK", "TICKS", "every 10 s")
    _, said = health(live)
    assert "warning" not in said and "1 schedule waits; the first is due" in said, said
    live.pass_time(10)
    code, said = health(live)
    assert code == 1 and f"schedules of {QUEUE}" in said, said
    live.run(SERVER)
    planned(live, 1)
    assert "schedules" not in health(live)[1]


def _record(said: str) -> dict[str, Any]:
    """The JSON of a command, which the daemons' lines may stand beside."""
    (line,) = (line for line in said.splitlines() if line.startswith("{"))
    found: dict[str, Any] = json.loads(line)
    return found


def test_the_command(live: LiveInstance, tmp_path: Path) -> None:
    def run(*words: str) -> tuple[int | None, str]:
        output = live.spool.parent / "output"
        before = output.stat().st_size
        code = live.run("omq", "schedule", *words).wait()
        return code, output.read_bytes()[before:].decode()

    code, said = run("define", "TICK", "TICKS", "*/5 * * * *", "--zone", "Europe/Berlin",
                     "--property", "a=b", "--json")
    assert code == 0 and _record(said)["properties"] == {"a": "b"}, said
    for word in ("pause", "resume", "run", "show"):
        code, said = run(word, "TICK")
        assert code == 0, said
    assert "*/5 * * * *" in said and "0 put" in said
    assert run("list", "--check")[0] == 0
    live.pass_time(600)
    code, said = run("list", "--check")
    assert code == 1 and "does schedule.server run?" in said
    live.queues.define("OTHER")
    code, said = run("define", "TYPO", "OTHR", "every", "1", "h", "--jitter", "5")
    assert code == 0 and "there is no queue OTHR" in said and "Warning" not in said, said
    assert run("pause", "TICK")[0] == 0
    code, said = run("list", "--check")
    assert code == 1 and "OTHR: next" in said and "and the queue is not there" in said, said
    assert _record(run("show", "TYPO", "--json")[1])["queue_missing"] is True
    assert run("delete", "TYPO")[0] == 0
    for words, wanted in ((("define", "X", "TICKS", "0 0 30 2 *"), 64), (("show", "NONE"), 66),
                          (("define", "X", "TICKS", "every 0 min"), 64), (("turn", "TICK"), 64),
                          (("define", "X"), 64), (("show",), 64), (("list", "TICK"), 64)):
        code, said = run(*words)
        assert (code, "Traceback" in said) == (wanted, False), said
    assert run("delete", "TICK")[0] == 0
    assert run("list") == (0, "")
    assert isinstance(live.drain("TICKS")[0].properties["omq.planned"], str)
