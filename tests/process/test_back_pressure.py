"""A pool.writer that falls behind: clients are slowed down, nothing is refused, and it is said."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from omq.base import events
from omq.ipc.client.connection import Client
from tests.process.instance import MANAGER, WRITER, Instance
from tests.process.processes import WAIT_S

LIMIT = 1024  # what the smallest checkpoint_journal_bytes_max allows


def test_clients_are_slowed_down_until_pool_writer_has_caught_up(omq_instance: Instance) -> None:
    instance = omq_instance
    instance.settings(checkpoint_lag_frames_max=1, checkpoint_journal_bytes_max=1 << 16)
    instance.start(MANAGER, WRITER)
    with instance.connect() as c:
        c.put("A", b"first")
        ask_until(c, lambda counters: counters["checkpoint_lsn"] > 0)
        instance.children[WRITER].signal(signal.SIGSTOP)
        instance.children[WRITER].wait_stopped()
        for _ in range(40):
            c.put_many("A", [b"more"] * 100)
        (said,) = instance.events(events.BACK_PRESSURE.number)
        assert said["frames"] > said["limit"] == LIMIT
        assert not instance.events(events.BACK_PRESSURE_OVER.number)
        instance.children[WRITER].signal(signal.SIGCONT)
        ask_until(c, lambda _: bool(instance.events(events.BACK_PRESSURE_OVER.number)))
        (over,) = instance.events(events.BACK_PRESSURE_OVER.number)
        assert over["frames"] < LIMIT and over["paused_ms"] > 0
        counters = c.control({"op": "status"})["counters"]
        assert counters["paused_ms"] == over["paused_ms"]
    assert len(instance.drain("A")) == 4001


def ask_until(c: Client, condition: Callable[[dict[str, int]], bool]) -> None:
    """Ask the manager again and again; each answer is a group of its own."""
    deadline = time.monotonic() + WAIT_S
    while not condition(c.control({"op": "status"})["counters"]):
        assert time.monotonic() < deadline
