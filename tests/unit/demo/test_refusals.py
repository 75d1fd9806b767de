"""What the event log says of refused deliveries, read while it grows."""

from __future__ import annotations

import json
from pathlib import Path

from omq.base import events
from omq.base.events import Event
from tests.demo.refusals import Refusals


def line(event: Event, service: str = "unix.out", **fields: str) -> str:
    record = {"time": "2026-01-02T03:04:05.000000Z", "level": "WARNING", "service": service,
              "pid": 7, "event": event.number, "text": event.text}
    return json.dumps(record | fields) + "\n"


def test_the_last_reason_and_the_count(tmp_path: Path) -> None:
    log = tmp_path / "omq.log"
    refusals = Refusals(log)
    assert refusals.tell() == "", "there is no log yet"
    log.write_text(line(events.GATEWAY_SENT) + line(events.GATEWAY_DEFERRED, answer="451 first"))
    assert refusals.tell().startswith("1 deliveries") and "451 first" in refusals.tell()
    with log.open("a") as stream:
        stream.write("no event\n" + line(events.GATEWAY_NO_PEER, reason="the peer hung up"))
    told = refusals.tell()
    assert told.startswith("2 deliveries") and told.endswith("unix.out: the peer hung up")


def test_a_line_that_is_not_yet_whole(tmp_path: Path) -> None:
    log = tmp_path / "omq.log"
    refusals = Refusals(log)
    whole = line(events.LOCAL_FAILED, "local.delivery", reason="no space")
    log.write_text(whole[:40])
    assert refusals.tell() == ""
    with log.open("a") as stream:
        stream.write(whole[40:])
    assert refusals.tell().endswith("local.delivery: no space")
