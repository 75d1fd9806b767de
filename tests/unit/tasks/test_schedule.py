"""Planned times, what a schedule does at a moment, and what is no schedule."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omq.base.errors import BadSchedule, ConfigError
from omq.tasks.schedule import Schedule, decode, planned_id
from omq.tasks.schedule_file import SCHEDULE_KEYS, load_schedules
from omq.tasks.schedule_step import Step, step
from omq.tasks.schedule_times import rule, shown
from tests.tidy.tree import ROOT

pytest.importorskip("cronsim", reason="the extra `schedules` is not installed")
NS = 10**9
BERLIN = "Europe/Berlin"


def ns(*moment: int) -> int:
    return int(datetime(*moment, tzinfo=UTC).timestamp()) * NS  # type: ignore[arg-type, misc]


def due(when: str, zone: str, start: int, count: int) -> list[str]:
    found, at = [], start
    for _ in range(count):
        at = rule("X", when, zone, start).after(at)
        found.append(shown(at, zone)[5:])
    return found


@pytest.mark.parametrize(("when", "start", "wanted"), [
    ("30 2 * * *", ns(2026, 3, 28), "03-28T02:30:00+01:00 03-29T03:00:00+02:00 "
     "03-30T02:30:00+02:00"),  # the hour that does not exist
    ("30 2 * * *", ns(2026, 10, 24), "10-24T02:30:00+02:00 10-25T02:30:00+02:00 "
     "10-26T02:30:00+01:00"),  # the one that comes twice
    ("0 * * * *", ns(2026, 10, 24, 23), "10-25T02:00:00+02:00 10-25T02:00:00+01:00 "
     "10-25T03:00:00+01:00"),
    ("*/30 * * * *", ns(2026, 3, 29, 0), "03-29T01:30:00+01:00 03-29T03:00:00+02:00 "
     "03-29T03:30:00+02:00"),
    ("0 3 29 2 *", ns(2026, 1, 1), "02-29T03:00:00+01:00 02-29T03:00:00+01:00"),
    ("every 90 min", ns(2026, 3, 29, 0), "03-29T03:30:00+02:00 03-29T05:00:00+02:00"),
])
def test_both_hours_of_a_clock_change(when: str, start: int, wanted: str) -> None:
    assert due(when, BERLIN, start, len(wanted.split())) == wanted.split()


@pytest.mark.parametrize(("when", "zone", "said"), [
    ("0 0 30 2 *", "UTC", "Bad day-of-month"),
    ("61 * * * *", "UTC", "Bad minute"),
    ("* * * *", "UTC", "4 fields"),
    ("@daily", "UTC", "1 fields"),
    ("", "UTC", "0 fields"),
    ("every 0 min", "UTC", "1 s to 366 days"),
    ("every 367 days", "UTC", "1 s to 366 days"),
    ("every -1 s", "UTC", "not an interval"),
    ("every fortnight", "UTC", "not an interval"),
    ("0 3 * * *", "Mars/Base", "no time zone"),
    ("0 3 * * *", "../../etc/passwd", "no time zone"),
    ("every 5 min", "Nowhere", "no time zone"),
])
def test_what_is_no_time(when: str, zone: str, said: str) -> None:
    with pytest.raises(BadSchedule, match=said):
        Schedule("NIGHTLY", "REPORTS", when, zone).checked()


@given(st.sampled_from(["*/7 * * * *", "15 2,3 * * *", "0 0 1 * *", "every 11 min", "every 1 s"]),
       st.integers(ns(2026, 1, 1), ns(2027, 1, 1)), st.integers(1, 40))
def test_backwards_finds_what_forwards_finds(when: str, start: int, count: int) -> None:
    made, at, times = rule("X", when, BERLIN, start), start, []
    for _ in range(count):
        at = made.after(at)
        times.append(at)
    assert made.newest(times[-1], times[0], 1000) == times
    assert made.newest(times[-1], times[0], 3) == times[-3:]


def at(schedule: Schedule, seconds: int, *in_work: str) -> Step:
    """What it does so long behind its first planned time."""
    return step(schedule, schedule.next_ns + seconds * NS, lambda message: message in in_work)


def made(**keys: object) -> Schedule:
    start = ns(2026, 1, 1)
    new = replace(Schedule("TICK", "A", "every 10 min", since_ns=start), **keys)  # type: ignore[arg-type]
    return replace(new, next_ns=new.rule().after(start))


def test_one_message_a_planned_time_with_its_time() -> None:
    first = made(body="at {planned}")
    done = at(first, 1)
    (put,) = done.put
    assert put.body == b"at 2026-01-01T00:10:00+00:00"
    assert put.properties == {"omq.schedule": "TICK", "omq.planned": "2026-01-01T00:10:00+00:00"}
    assert put.message_id == planned_id("TICK", first.next_ns) == done.after.last_id
    assert done.after.next_ns == first.next_ns + 600 * NS
    assert at(first, -1).put == () and at(first, -1).after == first
    assert at(replace(first, paused=True), 10_000).put == ()


@pytest.mark.parametrize(("catch_up", "count", "missed"), [
    ("skip", 0, 4), ("once", 1, 4), ("all 3", 3, 4), ("all 100", 4, 4)])
def test_what_was_missed(catch_up: str, count: int, missed: int) -> None:
    done = at(made(catch_up=catch_up), 3 * 600 + 120)
    assert (len(done.put), done.missed, done.after.missed) == (count, missed, missed)
    assert [each.properties["omq.planned"][11:16] for each in done.put] == [
        "00:10", "00:20", "00:30", "00:40"][4 - count:]
    assert done.after.next_ns == made().next_ns + 4 * 600 * NS


def test_who_is_there_in_time_puts_whatever_the_policy_says() -> None:
    done = at(made(catch_up="skip"), 3 * 600 + 30)
    assert (len(done.put), done.missed) == (1, 3)


def test_a_clock_that_was_set_back_repeats_nothing() -> None:
    done = at(made(), 0).after
    for seconds in (0, -3600, 599):
        assert step(done, made().next_ns + seconds * NS, lambda _: False).put == ()
    assert len(step(done, made().next_ns + 600 * NS, lambda _: False).put) == 1


def test_while_one_is_in_work() -> None:
    done = at(made(overlap="skip"), 0)
    again = at(done.after, 0, done.after.last_id)
    assert (again.put, again.skipped, again.after.skipped) == ((), 1, 1)
    assert len(at(again.after, 0).put) == 1
    assert len(at(replace(done.after, overlap="allow"), 0, done.after.last_id).put) == 1
    assert len(at(replace(done.after, catch_up="all 5"), 5 * 600).put) == 1


def test_jitter_is_a_planned_times_own() -> None:
    schedule = made(jitter_s=300)
    delays = {schedule.jitter_ns(schedule.next_ns + n * 600 * NS) for n in range(50)}
    assert len(delays) > 40 and min(delays) >= 0 and max(delays) < 300 * NS
    assert at(schedule, 0).put == () and len(at(schedule, 300).put) == 1
    assert schedule.due_ns == schedule.next_ns + schedule.jitter_ns(schedule.next_ns)


@pytest.mark.parametrize("body", [
    b"", b"null", b"[]", b"{}", b'{"name": "A"}', b"\xff", b"[" * 100_000,
    made().message().body.replace(b'"next_ns":', b'"next_ns":"x","next":'),
    made().message().body.replace(b'"puts":0', b'"puts":"0"'),
    made().message().body.replace(b"every 10 min", b"every 0 min"),
])
def test_a_message_that_is_no_schedule(body: bytes) -> None:
    with pytest.raises(BadSchedule):
        decode(body)


def test_a_message_is_the_schedule() -> None:
    schedule = made(properties={"a": "b"}, priority=3, expiry_s=1.5, catch_up="all 7")
    assert decode(schedule.message().body) == schedule
    assert schedule.message().message_id == "1!TICK"


@pytest.mark.parametrize("keys", [
    {"queue": "orders"}, {"queue": "SYSTEM.SCHEDULES"}, {"name": "x y"}, {"catch_up": "all 0"},
    {"catch_up": "all 1001"}, {"catch_up": "some"}, {"overlap": "forbid"}, {"jitter_s": -1},
    {"jitter_s": 86401}, {"priority": 10}, {"expiry_s": 0}, {"body": "x" * 65537}])
def test_what_cannot_be_defined(keys: dict[str, object]) -> None:
    with pytest.raises(BadSchedule):
        made(**keys).checked()


def test_a_name_that_is_none_is_the_schedules_or_the_queues() -> None:
    with pytest.raises(BadSchedule, match=r"^schedule nightly: schedule name 'nightly' is not"):
        made(name="nightly").checked()
    with pytest.raises(BadSchedule, match=": queue name 'orders' is not allowed: 1 to 16 of A-Z"):
        made(queue="orders").checked()


@pytest.mark.parametrize(("text", "line"), [
    ("[A]\nqueue = B\n", 1), ("[A]\nqueue = B\nwhen = * *\n", 3),
    ("[A]\nqueue = B\nwhen = every 1 h\nzone = No\n", 1),
    ("[A]\nqueue = B\nwhen = every 1 h\njitter = -1\n", 4),
    ("[A]\nqueue = B\nwhen = every 1 h\ncolour = red\n", 4)])
def test_a_file_that_is_wrong(tmp_path: Path, text: str, line: int) -> None:
    (tmp_path / "schedules.conf").write_text(text)
    with pytest.raises(ConfigError) as wrong:
        load_schedules(tmp_path)
    assert wrong.value.fields["line"] == line


def test_the_shipped_file_explains_every_key_and_has_no_schedule() -> None:
    text = (ROOT / "conf/schedules.conf").read_text(encoding="utf-8")
    assert all(f"# {key} =" in text for key in (*SCHEDULE_KEYS, "property.NAME"))
    assert load_schedules(ROOT / "conf") == []
