"""The words of omstat for every situation, from run files of the test's own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.base.paths import SpoolPaths
from omq.cli.look import omstat
from omq.cli.look.omstat import listing, since_text
from omq.cli.look.service_status import Status, Word, all_status
from omq.services.daemon.options import Location
from omq.services.daemon.process import identify
from omq.services.daemon.run_state import (
    ProcessState,
    ServiceState,
    State,
    SupervisorState,
    write_state,
)

ME = identify(os.getpid())
NOON = time.mktime((2026, 3, 14, 12, 0, 0, 0, 0, -1))
CONF = """
[qmgr]
title = Queue Manager
number = 100
kind = manager
program = queue.manager
nonstop = yes

[router]
title = Service Router
number = 2
kind = reader
program = service.router
queue = ROUTER
auxiliaries = 2

[local]
title = Local Delivery
number = 3
kind = reader
program = local.delivery
queue = LOCAL

[unix]
title = A title that is much too long for its column
number = 4
kind = reader
program = unix.out
queue = UNIX
enabled = no
"""


@pytest.fixture
def location(tmp_path: Path) -> Iterator[Location]:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "services.conf").write_text(CONF)
    (tmp_path / "run").mkdir()
    yield Location(None, SpoolPaths(tmp_path), tmp_path / "conf")


def live(name: str, state: State = State.STARTED) -> ProcessState:
    return ProcessState(name, state, NOON, pid=ME.pid, start_ticks=ME.start_ticks)


def dead(name: str, state: State = State.STARTED) -> ProcessState:
    return ProcessState(name, state, NOON, pid=ME.pid, start_ticks=ME.start_ticks + 1)


def router(location: Location, *, parent: ProcessState, main: ProcessState,
           auxiliary: tuple[ProcessState, ...]) -> Status:  # fmt: skip
    state = ServiceState(parent, 2, main, auxiliary)
    write_state(location.paths.run / "router.json", state)
    return next(each for each in all_status(location) if each.conf.name == "router")


def supervisor(location: Location, *children: ProcessState, ticks: int = 0) -> None:
    state = SupervisorState(ME.pid, ME.start_ticks + ticks, NOON, children)
    write_state(location.paths.run / "supervisor.json", state)


ON, GONE = live("r"), dead("r")


@pytest.mark.parametrize(
    ("parent", "main", "auxiliary", "word", "auxiliary_word", "running"),
    [
        (ON, ON, (ON, ON), Word.STARTED, Word.STARTED, 2),
        (ON, ON, (ON, GONE), Word.STARTED, Word.PARTIALLY_ABORTED, 1),
        (ON, ON, (GONE, GONE), Word.STARTED, Word.ABORTED, 0),
        (ON, GONE, (ON, ON), Word.PARTIALLY_ABORTED, Word.STARTED, 2),
        (ON, GONE, (GONE, GONE), Word.ABORTED, Word.ABORTED, 0),
        (GONE, GONE, (GONE, GONE), Word.ABORTED, Word.ABORTED, 0),
        (live("r", State.STARTING), GONE, (), Word.STARTING, Word.STARTING, 0),
        (live("r", State.STOPPING), ON, (ON,), Word.STOPPING, Word.STOPPING, 1),
        (dead("r", State.STOPPED), GONE, (), Word.STOPPED, Word.STOPPED, 0),
        (dead("r", State.FAILED), GONE, (), Word.ABORTED, Word.ABORTED, 0),
    ],
)
def test_words_for_a_service(
    location: Location, parent: ProcessState, main: ProcessState,
    auxiliary: tuple[ProcessState, ...], word: Word, auxiliary_word: Word, running: int,
) -> None:  # fmt: skip
    status = router(location, parent=parent, main=main, auxiliary=auxiliary)
    assert (status.state, status.auxiliary_state) == (word, auxiliary_word)
    assert status.auxiliaries_running == running


@pytest.fixture
def unwritten() -> Iterator[int]:
    """A child of ours that is the service router, as its command says; its pid."""
    child = subprocess.Popen([sys.executable, "-c", "print(flush=True); input()", "--service",
                              "router"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.read(1)  # /proc has its words from then on
    yield child.pid
    child.communicate(b"\n")


@pytest.mark.parametrize("record", [
    dead("router"), dead("router", State.WAITING), dead("router", State.STARTING)])
@pytest.mark.parametrize("file", [True, False])
def test_one_that_runs_and_cannot_write_so_is_not_called_aborted(
        location: Location, unwritten: int, record: ProcessState, file: bool  # noqa: FBT001
        ) -> None:
    """On a full disk run/ still says what its predecessor was."""
    if file:
        router(location, parent=GONE, main=GONE, auxiliary=(GONE, GONE))
    supervisor(location, record)
    status = next(each for each in all_status(location) if each.conf.name == "router")
    assert (status.state, status.auxiliary_state) == (Word.STARTED, Word.STARTED)
    assert status.pid == unwritten and "nothing can be written" in status.text


def test_what_is_no_child_of_a_supervisor_that_lives_pretends_in_vain(
        location: Location, unwritten: int) -> None:
    supervisor(location, dead("router", State.WAITING), ticks=1)
    assert router(location, parent=GONE, main=GONE, auxiliary=()).state is Word.ABORTED
    supervisor(location, dead("local", State.WAITING))
    found = {each.conf.name: each.state for each in all_status(location)}
    assert found["local"] is Word.ABORTED


def test_words_without_any_file(location: Location) -> None:
    found = {each.conf.name: (each.state, each.auxiliary_state) for each in all_status(location)}
    assert found == {
        "qmgr": (Word.STOPPED, Word.DISABLED),
        "router": (Word.STOPPED, Word.STOPPED),
        "local": (Word.STOPPED, Word.DISABLED),
        "unix": (Word.DISABLED, Word.DISABLED),
    }


def test_the_supervisor_knows_better_than_an_old_file(location: Location) -> None:
    supervisor(location, live("qmgr"), ProcessState("router", State.WAITING, NOON, restarts=4))
    status = router(location, parent=GONE, main=GONE, auxiliary=())
    assert (status.state, status.restarts) == (Word.ABORTED, 4)
    assert all_status(location)[0].state is Word.STARTED


def test_what_waits_for_its_turn_to_start_does_not_run(location: Location) -> None:
    """`omstat --quiet` behind a start that is under way is no 0."""
    for wanted, word in ((True, Word.STARTING), (False, Word.STOPPED)):
        supervisor(location, live("qmgr"),
                   ProcessState("router", State.STOPPED, NOON, wanted=wanted))
        status = router(location, parent=GONE, main=GONE, auxiliary=())
        assert status.state is word
        assert omstat.runs(status) is not wanted


def test_a_dead_supervisor_is_not_believed(location: Location) -> None:
    supervisor(location, dead("qmgr"), ProcessState("router", State.STOPPED, NOON), ticks=1)
    status = router(location, parent=ON, main=ON, auxiliary=())
    assert status.state is Word.STARTED
    assert all_status(location)[0].state is Word.ABORTED


def test_listing_has_the_columns_of_the_original(location: Location) -> None:
    supervisor(location, live("qmgr"))
    router(location, parent=ON, main=ON, auxiliary=(ON, ON))
    found = all_status(location)
    assert listing(found, auxiliaries=False, now=NOON + 60) == (
        "Queue Manager            Started           NON-STOP\n"
        "Service Router           Started           12:00:00         2\n"
        "Local Delivery           Stopped                            0\n"
        "A title that is much too Disabled                           0\n"
    )
    assert listing(found[1:3], auxiliaries=True, now=NOON + 86400) == (
        "Service Router           Started           03.14.26         2\n"
        "Local Delivery           Disabled                           0\n"
    )


def test_since(location: Location) -> None:
    assert since_text(None, NOON) == ""
    assert since_text(NOON, NOON + 3600) == "12:00:00"
    assert since_text(NOON, NOON + 366 * 86400) == "03.14.26"
