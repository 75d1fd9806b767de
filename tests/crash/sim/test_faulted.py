"""L3: the n-th call on the disk fails, and the n-th line of a request runs out of memory."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any
from unittest import mock

import pytest

from omq.format.poolctrl import PoolControl
from omq.storage import durable
from omq.storage.files import File
from omq.storage.pool import PoolFiles
from tests.crash.sim.faulted import (
    EIO,
    FAULTS,
    SYNCS,
    Fault,
    beginning,
    live,
    sequels,
)
from tests.crash.sim.jobs import FaultJob, fail_each
from tests.crash.sim.life import fixed
from tests.crash.sim.memory import OPERATIONS, out_of_memory
from tests.share import share

STEPS = {"put": 5, "give": 5, "settle": 5, "move": 11, "rotate": 11, "checkpoint": 41}
"""Of the lines of a request each so manieth is tried here; `make crash` tries them all."""
AGAIN = 3
"""Behind each call that fails the power is cut; behind each third a manager lives on on the same
machine before that. `make crash` does both behind each, and the planted bugs below are found by as
little as this."""
MANY = 40
"""Calls that every kind of fault meets at least: a life makes some 180 that change something and 90
that read."""


def test_whatever_call_fails_the_promise_holds() -> None:
    part, parts = share()
    jobs = [FaultJob(fault, part, parts, again=AGAIN) for fault in FAULTS]
    fired: dict[Fault, int] = {}
    for job, done in fail_each(jobs):
        assert not done.wrong, done.wrong[0]
        assert done.ended, "the last life must meet no fault"
        fired[job.fault] = fired.get(job.fault, 0) + done.fired
    print(f"L3: {fired}")
    assert all(count > MANY // parts for count in fired.values()), fired


def test_a_failed_sync_stops_the_process_that_met_it() -> None:
    fault = Fault(errno.EIO, SYNCS)
    begin = beginning()
    with fixed(7):
        first = live(begin, fault, 1)
    assert first.fired and durable.latched() is not None
    with pytest.raises(type(durable.latched() or AssertionError())):
        durable.check_latch()


_sync = File._sync


def _again(self: File, call: object, name: str, *, new: bool) -> None:
    """Postgres, and many others, until 2018."""
    try:
        getattr(durable.current(), name)(self.fd)
    except OSError:
        getattr(durable.current(), name)(self.fd)


_settle_pool = PoolFiles.recover_double_write


def _names_as_they_are(self: PoolFiles, control: PoolControl | None = None, *,
                       refuse: bool = True) -> int:
    with mock.patch.object(durable, "sync_directory", lambda path: None):
        return _settle_pool(self, control, refuse=refuse)


@dataclass(frozen=True, slots=True)
class FaultMutant:
    """A historical bug that shows when this fault meets it."""

    fault: Fault
    target: type[Any]
    name: str
    bug: Callable[..., Any]
    shows: tuple[str, ...]


MUTANTS = {
    "retry after a failed sync": FaultMutant(
        EIO, File, "_sync", _again, ("retried", "cut, ", "restart, ")),
    "believe the page cache": FaultMutant(
        Fault(errno.EIO, ("fdatasync",)), File, "settle", lambda file: None, ("restart, ",)),
    "names are not settled": FaultMutant(
        Fault(-1, ("sync_directory",)), PoolFiles, "recover_double_write", _names_as_they_are,
        ("cut, ", "restart, ")),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_harness_finds(name: str) -> None:
    mutant = MUTANTS[name]
    begin = beginning()
    number = 0
    with fixed(7), mock.patch.object(mutant.target, mutant.name, mutant.bug):
        while True:
            number += 1
            run = live(begin, mutant.fault, number)
            assert run.fired, "not found"
            wrong = sequels(run, Random(number), 1, again=number % AGAIN == 0)
            if wrong:
                break
    assert wrong[0].startswith(mutant.shows), wrong


@pytest.mark.parametrize("name", OPERATIONS)
def test_out_of_memory_at_any_line_loses_nothing(name: str) -> None:
    count = out_of_memory(name, STEPS[name])
    print(f"L3: {name} {count}")
    assert count > 20
