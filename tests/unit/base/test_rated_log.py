"""The first ones are told, then counted."""

from __future__ import annotations

from typing import Any, cast

import pytest

from omq.base import clock, events
from omq.base.event_log import WARNING, EventLog
from omq.base.rated_log import CAUSES_MAX, NEVER, OTHERS, RatedLog

PERIOD_S = 60


class Log:
    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []

    def event(self, event: Any, level: Any, /, **fields: Any) -> None:
        self.told.append({"event": event.number, **fields})


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    found = [1]
    monkeypatch.setattr("omq.base.clock.monotonic_ns", lambda: found[0])
    return found


def test_first_then_counts(now: list[int]) -> None:
    log = Log()
    rated = RatedLog(cast(EventLog, log), 2, PERIOD_S)
    assert rated.due == NEVER
    for i in range(10):
        rated.event(events.REQUEST_REFUSED, WARNING, 7, i=i)
    rated.event(events.REQUEST_REFUSED, WARNING, 8, i="another's")
    rated.event(events.DOOR_CLOSED, WARNING, 7, i="another event")
    assert [each["i"] for each in log.told] == [0, 1, "another's", "another event"]
    rated.flush(rated.due - 1)
    assert len(log.told) == 4
    rated.flush(rated.due)
    assert log.told[4:] == [
        {"event": 1215, "cause": "7", "repeated": 8, "seconds": PERIOD_S}]
    assert rated.due == NEVER
    rated.event(events.REQUEST_REFUSED, WARNING, 7, i="a new period")
    assert log.told[-1]["i"] == "a new period"


def test_the_next_event_tells_the_count_too(now: list[int]) -> None:
    log = Log()
    rated = RatedLog(cast(EventLog, log), 1, PERIOD_S)
    for _ in range(3):
        rated.event(events.REQUEST_REFUSED, WARNING, 7)
    now[0] += PERIOD_S * clock.NS_PER_S
    rated.event(events.DOOR_CLOSED, WARNING, 9)
    assert [each.get("repeated") for each in log.told] == [None, 2, None]


def test_causes_are_bounded(now: list[int]) -> None:
    log = Log()
    rated = RatedLog(cast(EventLog, log), 1, PERIOD_S)
    for uid in range(2 * CAUSES_MAX):
        rated.event(events.REQUEST_REFUSED, WARNING, uid)
    assert len(log.told) == CAUSES_MAX + 1 and len(rated._windows) == CAUSES_MAX + 1
    rated.flush(NEVER)
    assert log.told[-1] == {"event": 1215, "cause": OTHERS, "repeated": CAUSES_MAX - 1,
                            "seconds": PERIOD_S}
