"""Event messages: JSON on SYSTEM.EVENTS, switchable, and none of them stops anything."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

import omq
from omq.core.index.view import IndexView
from omq.ipc.client.connection import Client
from tests.process.instance import Instance
from tests.process.processes import WAIT_S, start
from tests.process.test_bad_input import reachable

EVENTS = "SYSTEM.EVENTS"


def told(c: Client, count: int) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    with c.reader(EVENTS, batch=10) as reader:
        while len(out) < count:
            messages = reader.next(10, WAIT_S)
            assert messages, out
            for message in messages:
                out.append(json.loads(message.body))
                message.done()
    return out


def test_depth_full_inhibited_and_poison(omq_instance: Instance) -> None:
    omq_instance.settings(event_messages="all")
    omq_instance.start()
    with omq_instance.connect() as c:
        c.queues.define(EVENTS)
        c.queues.define("X", max_depth=2, attempts_max=1)
        c.put("X", b"1")
        c.put("X", b"2")
        first = told(c, 2)
        assert [(each["event"], each["queue"]) for each in first] == [
            ("depth_high", "X"), ("full", "X")]
        assert first[1]["messages"] == first[1]["limit"] == 2
        with omq_instance.connect() as other, other.reader("X") as reader:
            for message in reader.next(2, WAIT_S):
                message.fail("no good")
        kinds = {each["event"] for each in told(c, 3)}
        assert kinds == {"poison", "depth_low"}
        c.queues.alter("X", put="inhibited")
        assert told(c, 1)[0]["event"] == "put_inhibited"


def test_what_expired_is_told_with_counts(omq_instance: Instance) -> None:
    omq_instance.settings(event_messages="expired")
    omq_instance.start()
    with omq_instance.connect() as c:
        c.queues.define(EVENTS)
        c.queues.define("X")
        c.put("X", b"late", expiry_s=0)
        (found,) = told(c, 1)
        assert (found["event"], found["queue"]) == ("expired", "X")
        assert 1 in found.values(), found


def test_only_what_is_wanted(omq_instance: Instance) -> None:
    omq_instance.settings(event_messages="full")
    omq_instance.start()
    with omq_instance.connect() as c:
        c.queues.define("X", max_depth=1)
        c.put("X", b"1")
        c.queues.define("Y", max_depth=1)
        c.queues.define(EVENTS)
        c.put("Y", b"1")
        found = {(each["event"], each["queue"]) for each in told(c, 2)}
        assert found == {("full", "X"), ("full", "Y")}, "what holds is told when there is a queue"


def test_a_queue_that_is_made_again_tells_anew(omq_instance: Instance) -> None:
    omq_instance.settings(event_messages="put_inhibited")
    omq_instance.start()
    with omq_instance.connect() as c:
        c.queues.define(EVENTS)
        for _ in range(2):
            c.queues.define("X", put="inhibited")
            assert [each["queue"] for each in told(c, 1)] == ["X"]
            c.queues.delete("X")
            c.queues.define("Y", put="inhibited")  # told by a look that came behind the delete
            assert [each["queue"] for each in told(c, 1)] == ["Y"]
            c.queues.delete("Y")


def test_a_full_queue_of_events_drops_and_counts(omq_instance: Instance) -> None:
    omq_instance.settings(event_messages="put_inhibited")
    omq_instance.start()
    with omq_instance.connect() as c:
        c.queues.define(EVENTS, max_depth=1)
        for name in ("X", "Y", "Z"):
            c.queues.define(name, put="inhibited")
        with IndexView.attach(omq_instance.paths) as view, c.reader("A") as reader:
            for _ in range(200):
                if view.counters()["events_dropped"] == 2:
                    break
                reader.next(1, 0.05)
            assert view.counters()["events_dropped"] == 2
        assert c.put("B", b"served") and len(list(c.browse(EVENTS))) == 1
        with pytest.raises(omq.PutInhibited):
            c.put("X", b"")


def test_a_reader_that_dies_is_told(omq_instance: Instance) -> None:
    omq_instance.settings(event_messages="service_aborted")
    omq_instance.start()
    with omq_instance.connect() as c:
        c.queues.define(EVENTS)
        c.put("A", b"1")

        def dies() -> int:
            with omq_instance.connect("worker") as own, own.reader("A") as reader:
                reader.next(1, WAIT_S)
                os._exit(1)

        start("worker", dies).wait()
        (found,) = told(c, 1)
        assert (found["event"], found["queue"], found["name"]) == ("service_aborted", "A", "worker")
        assert found["messages"] == 1
        with omq_instance.connect() as own, own.reader("B"):
            pass
        assert not list(c.browse(EVENTS)), "who leaves in order is no event"


def test_messages_that_nobody_takes_are_told_once(omq_instance: Instance) -> None:
    omq_instance.settings(event_messages="oldest_age", event_oldest_s=1)
    omq_instance.start()
    with omq_instance.connect() as c:
        c.queues.define(EVENTS)
        c.put("B", b"later", delay_s=3600)
        c.put("A", b"1")
        (found,) = told(c, 1)
        assert (found["event"], found["queue"]) == ("oldest_age", "A")
        assert found["age_s"] >= 1
        c.put("A", b"2")
        c.put("C", b"1")
        assert [each["queue"] for each in told(c, 1)] == ["C"], "A was told, B only waits"


@pytest.mark.skipif(os.geteuid() != 0, reason="other users need root")
def test_who_may_not_is_told(open_instance: Instance, tmp_path: Path) -> None:
    (open_instance.conf / "authority.conf").write_text("[A]\nuser:nobody = browse\n")
    open_instance.settings(event_messages="authority")
    open_instance.start()
    open_instance.ready()
    reachable(open_instance.paths.run)
    group, nobody = open_instance.root.stat().st_gid, 65534

    def stranger() -> int:
        os.setgroups([])
        os.setgid(group)
        os.setuid(nobody)
        with omq.connect(open_instance.root) as own:
            for wrong in (lambda: own.put("A", b""), lambda: own.reader("A"),
                          lambda: own.queues.delete("A")):
                with pytest.raises(omq.NoAuthority):
                    wrong()
        return 0

    with open_instance.connect() as c:
        c.queues.define(EVENTS)
        assert start("stranger", stranger, output=tmp_path / "said").wait() == 0
        found = told(c, 3)
        assert [(each["action"], each["queue"], each["uid"]) for each in found] == [
            ("put", "A", nobody), ("get", "A", nobody), ("admin", "A", nobody)]


@pytest.mark.skipif(shutil.disk_usage(tempfile.gettempdir()).free >= 1 << 40,
                    reason="more is free here than disk_reserve_bytes can ask for")
def test_a_disk_that_is_low_is_told(omq_instance: Instance) -> None:
    """Events that are not persistent need no disk. What has no journal yet would not start."""
    omq_instance.queues(f"[A]\n[{EVENTS}]\npersistent = no\n")
    omq_instance.start()
    omq_instance.ready()
    omq_instance.stop()
    omq_instance.settings(event_messages="disk_low disk_free", disk_reserve_bytes=1 << 40)
    omq_instance.start()
    with omq_instance.connect() as c:
        assert [each["event"] for each in told(c, 1)] == ["disk_low"]
        with pytest.raises(omq.SpoolFull):
            c.put("A", b"persistent")
