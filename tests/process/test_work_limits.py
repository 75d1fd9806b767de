"""Limits of work with a queue manager: over readers, deaths, restarts and changes while it runs."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

import omq
from omq.cli.operate import omq_queue
from omq.ipc.client.connection import Client
from tests.process.instance import MANAGER, Instance
from tests.process.processes import WAIT_S, start


def fill(c: Client, *tenants: str) -> None:
    for number, tenant in enumerate(tenants):
        c.put("WORK", f"{tenant}{number}".encode(), properties={"tenant": tenant})


def taken(reader: Any, want: int = 100, timeout_s: float = 0) -> list[Any]:
    return list(reader.next(want, timeout_s))


def test_limits_hold_over_readers_deaths_and_restarts(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c, omq_instance.connect() as d:
        c.queues.define("WORK", limit_by="property:tenant", key_in_work_max=1, in_work_max=3,
                        fair_turns="yes", death_delay_s=0)
        fill(c, *"aaabbcd")
        with c.reader("WORK") as first, d.reader("WORK") as second:
            held = taken(first)
            assert [each.body for each in held] == [b"a0", b"b3", b"c5"]
            assert taken(second) == []
            told = c.queues.show("WORK").facts
            assert told["limit"] == "in_work_max: 3 of 3 are being processed"
            assert (told["limit_keys"], told["limit_keys_full"]) == (4, 2)
            omq_instance.kill(MANAGER)
            omq_instance.start()  # what they have in hand is being processed still
            assert taken(second) == []
            held[0].done()
            (one,) = taken(second, timeout_s=WAIT_S)
            assert one.body == b"d6"  # nobody has had a turn less
            for each in (*held[1:], one):
                each.done()
            got = taken(second, timeout_s=WAIT_S)
            while len(got) < 2:  # what a reader notes comes within 50 ms
                got += taken(second, timeout_s=WAIT_S)
            assert sorted(each.body for each in got) == [b"a1", b"b4"]


def test_the_death_of_a_reader_gives_its_places_back(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        c.queues.define("WORK", in_work_max=2, death_delay_s=0, attempts_max=9)
        for number in range(4):
            c.put("WORK", str(number).encode())

        def die() -> int:
            with omq_instance.connect("dies") as mine, mine.reader("WORK") as reader:
                assert [each.body for each in reader.next(5, WAIT_S)] == [b"0", b"1"]
                os.kill(os.getpid(), signal.SIGKILL)
            return 0
        assert start("dies", die, output=omq_instance.output).wait() == -signal.SIGKILL
        with c.reader("WORK") as reader:
            got = taken(reader, timeout_s=WAIT_S)
            while more := taken(reader):  # what has failed is handed out alone
                got += more
            assert len(got) == 2


def test_a_token_wakes_who_waits_and_a_restart_keeps_the_rate(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        c.queues.define("WORK", rate="2/s", rate_burst=1)
        fill(c, *"aaaa")
        with c.reader("WORK") as reader:
            began = time.monotonic()
            for _ in range(3):
                taken(reader, timeout_s=WAIT_S)[0].done()
            assert time.monotonic() - began >= 0.99  # two intervals: never sooner
            c.queues.alter("WORK", rate="1/day")
            omq_instance.kill(MANAGER)
            omq_instance.start()
            assert taken(reader) == []
            assert c.queues.show("WORK").facts["limit"] != ""
            c.queues.alter("WORK", rate=None)  # changed while a reader waits and while it runs
            assert len(taken(reader, timeout_s=WAIT_S)) == 1


def test_a_pause_of_a_key_outlives_everything(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        with pytest.raises(omq.OmqError):
            c.queues.pause("A", "a")
        c.queues.define("WORK", limit_by="property:tenant")
        fill(c, *"aab")
        c.queues.pause("WORK", "a", reason="they asked for it")
        c.queues.rename("WORK", "WORK.2")
        c.queues.rename("WORK.2", "WORK")
        for end in (omq_instance.kill, omq_instance.stop):
            end(MANAGER)
            omq_instance.start()
            assert c.queues.show("WORK").facts["paused"] == "a"
            with c.reader("WORK") as reader:
                (one,) = taken(reader)
                assert one.body == b"b2"
                one.release()
        assert "PAUSE" not in " ".join(each.name for each in c.queues.list())
        c.queues.resume("WORK", "a")
        with c.reader("WORK") as reader:
            assert len(taken(reader)) == 3
        omq_instance.kill(MANAGER)
        omq_instance.start()
        assert c.queues.show("WORK").facts["paused"] == ""


def test_what_is_no_limit_is_refused_with_its_key(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        for named, keys in (
                ("rate", {"rate": "0/min"}), ("rate", {"rate": "5/week"}),
                ("key_rate", {"key_rate": "5/s"}), ("limit_by", {"limit_by": "tenant"}),
                ("limit_by", {"limit_by": "property:a b"}), ("fair_turns", {"fair_turns": "yes"}),
                ("in_work_max", {"in_work_max": "-1"}),
                ("limit_keys_max", {"limit_by": "group", "limit_keys_max": "0"})):
            with pytest.raises(omq.BadDefinition) as caught:
                c.queues.define("WORK", **keys)
            assert caught.value.fields["key"] == named


def test_the_tool_pauses_and_says_why(
        omq_instance: Instance, capsys: pytest.CaptureFixture[str]) -> None:
    omq_instance.start()
    spool = ["--spool", str(omq_instance.paths.root)]
    with omq_instance.connect() as c:
        assert omq_queue.main(["define", "WORK", "limit_by=group", "in_work_max=1", *spool]) == 0
        first, second = (int(c.put("WORK", b"x", group_id=each)[32:], 16) for each in "ab")
        assert omq_queue.main(["pause", "WORK", "--key", "b", "--reason", "why not", *spool]) == 0
        for message, said in ((first, "no limit of work"), (second, "its key is paused")):
            assert omq_queue.main(["why", "WORK", "--message", str(message), *spool]) == 0
            assert said in capsys.readouterr().out
        with c.reader("WORK") as reader:
            assert [each.qpool_id for each in taken(reader)] == [first]
            assert omq_queue.main(["resume", "WORK", "--key", "b", *spool]) == 0
            assert omq_queue.main(["why", "WORK", "--message", str(second), *spool]) == 0
            assert "in_work_max: 1 of 1" in capsys.readouterr().out
        with pytest.raises(SystemExit):
            omq_queue.main(["pause", "WORK", *spool])
        with pytest.raises(omq.OmqError):
            omq_queue.main(["pause", "A", "--key", "b", *spool])
