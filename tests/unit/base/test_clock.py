"""Clocks, date forms, and the identity of a process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from omq.base import clock

SEED_MOMENT = 927030603 * clock.NS_PER_S + 123_456_789  # 18 May 1999, 12:30:03 UTC


@pytest.fixture
def london(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The time zone of the original's examples."""
    monkeypatch.setenv("TZ", "Europe/London")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("london")
def test_date_forms_of_the_original() -> None:
    assert clock.seed_time(SEED_MOMENT) == "05.18.99 13:30:03"
    assert clock.seed_time_slash(SEED_MOMENT) == "05.18.99/13:30:03"
    assert clock.seed_clock(SEED_MOMENT) == "13:30:03"


@pytest.mark.usefixtures("london")
def test_zero_is_the_epoch_whatever_the_zone() -> None:
    assert clock.seed_time(0) == "01.01.70 00:00:00"
    assert clock.seed_time_slash(0) == "01.01.70/00:00:00"
    assert clock.seed_clock(0) == "00:00:00"


@pytest.mark.usefixtures("london")
def test_iso_form_has_offset_and_microseconds() -> None:
    assert clock.iso_time(SEED_MOMENT) == "1999-05-18T13:30:03.123456+01:00"


def test_iso_form_of_a_second_follows_the_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second's text is kept; another zone has another."""
    for zone, shown in (("UTC", "12:30:03.123456+00:00"), ("Etc/GMT-2", "14:30:03.123456+02:00")):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        assert clock.iso_time(SEED_MOMENT) == f"1999-05-18T{shown}"
    assert clock.iso_time(SEED_MOMENT + clock.NS_PER_S)[17:26] == "04.123456"
    monkeypatch.undo()
    time.tzset()


def test_boot_time_does_not_go_back_and_is_not_wall_time() -> None:
    first, second = clock.monotonic_ns(), clock.monotonic_ns()
    assert 0 < first <= second < clock.wall_ns()


def test_boot_id_is_one_for_the_boot() -> None:
    assert len(clock.boot_id()) == 16
    assert clock.boot_id() == clock.boot_id() != bytes(16)


def test_start_time_tells_processes_apart() -> None:
    mine = clock.process_start_ticks(os.getpid())
    assert mine is not None
    assert 0 < mine < clock.monotonic_ns() // clock.NS_PER_MS
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        theirs = clock.process_start_ticks(child.pid)
        assert theirs is not None
        assert theirs >= mine
        child.communicate(b"\n")
    assert clock.process_start_ticks(child.pid) is None


def test_name_of_a_process_may_hold_parentheses() -> None:
    code = (
        "import ctypes, os\n"
        "from omq.base import clock\n"
        "before = clock.process_start_ticks(os.getpid())\n"
        "ctypes.CDLL(None).prctl(15, b') S 1 (', 0, 0, 0)\n"  # PR_SET_NAME
        "assert ') S 1 (' in open('/proc/self/stat').read()\n"
        "assert clock.process_start_ticks(os.getpid()) == before\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
