"""How omshowlog shows an event: the original's lines for pid and errno."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from omq.base import events
from omq.base.errors import InputUnreadable
from omq.base.event_log import REPORT, EventLog, Level
from omq.base.log_file import before
from omq.cli.look.event_lines import Logged, follow, from_file
from omq.cli.look.omshowlog import lines


@pytest.mark.parametrize(("level", "shown"), [
    (Level.FATAL, True), (Level.ERROR, True), (Level.WARNING, False), (Level.REPORT, False)])
def test_errno_is_shown_at_level_error_and_worse(level: Level, *, shown: bool) -> None:
    each = Logged(0, level, "local.delivery", 5791, 1008, "Operation failed", {"errno": 9}, {})
    told = list(lines(each, {"local.delivery": "Local Delivery"}, with_pid=True))
    assert told[0].startswith(f"{level.name:<12}Local Delivery(local.delivery) ")
    assert told[1] == "[OM 1008] Operation failed"
    assert "Pid of logging process: 5791" in told
    assert ("Current errno value: 9" in told) == shown


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EventLog]:
    made = EventLog("test", tmp_path / "events.log", stderr=False)
    yield made
    made.close()


def told(log: EventLog, *numbers: int) -> None:
    for number in numbers:
        log.event(events.SERVICE_RELOADED, REPORT, number=number)


def shown(found: Iterator[Logged]) -> list[int]:
    return [each.fields["number"] for each in found]


def rotate(path: Path) -> None:
    path.rename(before(path))


def nothing_lost(count: int) -> None:
    raise AssertionError(count)


def test_the_log_that_was_renamed_comes_first(log: EventLog, tmp_path: Path) -> None:
    path = tmp_path / "events.log"
    told(log, 1, 2)
    rotate(path)
    assert shown(from_file(path, nothing_lost)) == [1, 2]  # no event since
    told(log, 3)
    assert shown(from_file(path, nothing_lost)) == [1, 2, 3]
    rotate(path)
    told(log, 4)
    assert shown(from_file(path, nothing_lost)) == [3, 4]


def test_one_log_under_both_names_is_told_once(log: EventLog, tmp_path: Path) -> None:
    path = tmp_path / "events.log"
    told(log, 1)
    before(path).hardlink_to(path)  # as it looks when it is renamed between the two openings
    assert shown(from_file(path, nothing_lost)) == [1]


def test_a_log_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputUnreadable):
        shown(from_file(tmp_path / "events.log", nothing_lost))


def test_a_follower_reads_on_over_rotations(log: EventLog, tmp_path: Path) -> None:
    path = tmp_path / "events.log"
    told(log, 1)
    rotate(path)
    told(log, 2)
    following = follow(path, nothing_lost)
    assert shown(islice(following, 2)) == [1, 2]
    told(log, 3)
    rotate(path)  # what was not read yet is in the renamed one
    assert shown(islice(following, 1)) == [3]
    told(log, 4, 5)
    assert shown(islice(following, 2)) == [4, 5]
    following.close()
