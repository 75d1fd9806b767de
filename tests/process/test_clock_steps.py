"""The clock of the host is set while an instance runs, or before it starts."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta

import pytest

from omq.base import events
from omq.cli import launch
from omq.core.look.look import Origin, look
from omq.ipc.client.connection import Client
from tests.host_clock import NS, HostClock
from tests.process.instance import MANAGER, WRITER, Instance
from tests.process.processes import WAIT_S
from tests.waiting import until

HOUR, DAY = 3600, 86400


@pytest.fixture
def host_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[HostClock]:
    """It is right again when the instance comes to its end."""
    made = HostClock(monkeypatch)
    yield made
    made.close()


def moment(host: HostClock, seconds: int) -> datetime:
    return datetime.fromtimestamp(host.now_ns() // NS, UTC) + timedelta(seconds=seconds)


def take(client: Client, queue: str = "A", wait_s: float = WAIT_S) -> bytes | None:
    """The body of the next message, or None."""
    with client.reader(queue) as reader:
        messages = reader.next(timeout_s=wait_s)
        if not messages:
            return None
        (message,) = messages
        body = message.body
        message.done()
        return body


def run(instance: Instance, name: str, *words: str) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        launch.run(name, ["--spool", str(instance.root), "--conf", str(instance.conf), *words])
    return out.getvalue()


def test_a_moment_comes_when_a_slow_clock_is_put_right(omq_instance: Instance,
                                                       host_clock: HostClock) -> None:
    host_clock.step(-HOUR)
    omq_instance.start()
    with omq_instance.connect() as client:
        client.put("A", b"moment", at=moment(host_clock, HOUR - 60))
        client.put("A", b"later", at=moment(host_clock, 2 * HOUR))
        client.put("A", b"delayed", delay_s=HOUR - 60)
        assert take(client, wait_s=0) is None
        host_clock.step(HOUR)
        assert take(client) == b"moment"
        assert take(client, wait_s=0) is None


def test_a_moment_waits_when_a_fast_clock_is_put_right(omq_instance: Instance,
                                                       host_clock: HostClock) -> None:
    host_clock.step(DAY)
    omq_instance.start()
    with omq_instance.connect() as client:
        client.put("A", b"moment", at=moment(host_clock, HOUR))
        host_clock.step(-DAY)
        assert take(client, wait_s=0) is None
        host_clock.step(DAY + HOUR)
        assert take(client) == b"moment"


def test_a_start_with_the_clock_of_yesterday(omq_instance: Instance, host_clock: HostClock
                                             ) -> None:
    """ntpd puts it right when the network is there."""
    omq_instance.start(MANAGER, WRITER)
    with omq_instance.connect() as client:
        client.put("A", b"soon", delay_s=HOUR)
        client.put("B", b"short", expiry_s=HOUR)
        client.put("B", b"long", expiry_s=3 * DAY)
    omq_instance.stop()
    host_clock.step(-DAY)
    omq_instance.start(MANAGER, WRITER)
    with omq_instance.connect() as client:
        assert take(client, wait_s=0) is None
        (said,) = omq_instance.events(events.CLOCK_BEHIND.number)
        assert DAY - 60 < said["behind_s"] <= DAY
        host_clock.step(DAY + HOUR)
        assert take(client) == b"soon"
        assert take(client, "B") == b"long"


@pytest.mark.parametrize(("seconds", "direction"), [(HOUR, "forward"), (-HOUR, "back")])
def test_a_step_is_an_event(omq_instance: Instance, host_clock: HostClock, seconds: int,
                            direction: str) -> None:
    omq_instance.start()
    with omq_instance.connect() as client:
        host_clock.step(seconds)
        client.put("A", b"x")  # a turn
        until(lambda: bool(omq_instance.events(events.CLOCK_SET.number)), omq_instance.said)
    (said,) = omq_instance.events(events.CLOCK_SET.number)
    assert said["direction"] == direction and abs(said["by_s"] - seconds) < 1
    with look(omq_instance.paths) as seen:
        assert seen.view.counters()["clock_steps"] == 1


@pytest.mark.parametrize("seconds", [DAY, -DAY])
def test_no_step_makes_a_well_manager_look_hung(omq_instance: Instance, host_clock: HostClock,
                                                seconds: int) -> None:
    omq_instance.start()
    with omq_instance.connect() as client:
        client.put("A", b"x")
    host_clock.step(seconds)
    with look(omq_instance.paths) as seen:
        assert seen.origin is Origin.LIVING and not seen.note


def test_what_is_overdue_is_not_due_in_0_seconds(omq_instance: Instance, host_clock: HostClock
                                                 ) -> None:
    omq_instance.start()
    with omq_instance.connect() as client:
        client.put("A", b"x", delay_s=HOUR)
        assert " min from now" in run(omq_instance, "omqwhy", "A")
        host_clock.step(2 * HOUR)
        client.put("B", b"x")
        until(lambda: bool(omq_instance.events(events.CLOCK_SET.number)), omq_instance.said)
        for words in (run(omq_instance, "omqwhy", "A"), run(omq_instance, "omqwhy", "1")):
            assert " ago: the clock of this host was set" in words
            assert " from now" not in words
