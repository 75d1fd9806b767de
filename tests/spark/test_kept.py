"""What an analysis reads stays while it runs. No Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from omq.base.errors import SpoolLocked
from omq.base.paths import SpoolPaths
from omq.storage import history, holds, spool
from omqtools.omqspark import archive_holds
from tests.waiting import until

HOLDER = """
import sys
from omqtools.omqspark.archive_holds import while_it_runs
with while_it_runs(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def paths(tmp_path: Path) -> SpoolPaths:
    return spool.create_spool(tmp_path / "spool").paths


def needed(paths: SpoolPaths) -> int:
    """What a removal may not touch, as it asks."""
    with history.changing(paths, "test"):
        return holds.needed_from(paths)


def test_a_command_keeps_everything_until_it_ends(paths: SpoolPaths) -> None:
    with archive_holds.while_it_runs(f"file://{paths.archive}"):
        (hold,) = holds.holds(paths)
        assert hold.first == 0 and hold.lives and "omq-spark" in hold.who
        assert needed(paths) == 0
    assert needed(paths) == holds.NOTHING


def test_a_command_that_is_killed_keeps_nothing(paths: SpoolPaths) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(paths.archive)], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == "held\n"
        assert needed(paths) == 0
        child.kill()
        child.wait()
    assert needed(paths) == holds.NOTHING
    assert holds.holds(paths) == []


def test_a_copy_of_an_archive_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    with archive_holds.while_it_runs(str(tmp_path / "archive")):
        assert list((tmp_path / "archive").iterdir()) == []


def test_a_streams_hold_moves_with_what_it_has_read(paths: SpoolPaths) -> None:
    for first in (3, 3, 7):
        archive_holds.keep(paths, "test", first)
        assert needed(paths) == first
    archive_holds._held.pop("test")[1].close()
    assert needed(paths) == holds.NOTHING


def test_who_waits_for_a_hold_goes_on_without(paths: SpoolPaths,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    """A removal that is under way, or a repair, has the archive for itself."""
    monkeypatch.setattr(history, "HOLD_WAIT_S", 0.0)
    with history.changing(paths, "repair"):
        with history.held(paths, "omq-spark") as held:
            assert not held
        with pytest.raises(SpoolLocked), history.changing(paths, "another"):
            pass
    until(lambda: needed(paths) == holds.NOTHING)
