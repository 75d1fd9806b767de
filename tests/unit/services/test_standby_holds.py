"""Several processes note in standbys.json which journal files standbys need."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from omq.base.errors import SpoolLocked
from omq.cli.operate.standby_status import status
from omq.storage import standby_holds
from omq.storage.disk import Buffer
from omq.storage.files import File, write_new_file
from omq.storage.spool import SpoolInfo, create_spool, lock


@pytest.fixture
def info(tmp_path: Path) -> SpoolInfo:
    return create_spool(tmp_path / "primary")


def test_two_senders_lose_nothing_of_each_other(info: SpoolInfo, monkeypatch: pytest.MonkeyPatch
                                                ) -> None:
    """One notes while the other stands between its look and its write."""
    other = threading.Thread(target=standby_holds.note, args=(info.paths, "c", 5))

    def late(path: Path, parts: Sequence[Buffer]) -> File:
        if other.ident is None:
            other.start()
            other.join(0.5)  # it cannot end before this one: without a lock it does
        return write_new_file(path, parts)

    monkeypatch.setattr(standby_holds, "write_new_file", late)
    assert standby_holds.note(info.paths, "b", 7)
    other.join()
    assert standby_holds.load(info.paths) == {"b": 7, "c": 5}


def test_senders_of_several_processes_lose_nothing(info: SpoolInfo) -> None:
    code = ("import sys; from pathlib import Path; from omq.base.paths import SpoolPaths; "
            "from omq.storage import standby_holds\n"
            "for i in range(1, 61): standby_holds.note(SpoolPaths(Path(sys.argv[1])), sys.argv[2], "
            "i)")
    senders = [subprocess.Popen([sys.executable, "-c", code, str(info.paths.root), name])
               for name in "bcd"]
    assert [each.wait() for each in senders] == [0, 0, 0]
    assert standby_holds.load(info.paths) == {"b": 60, "c": 60, "d": 60}


def test_who_keeps_the_lock_is_named(info: SpoolInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby_holds, "LOCK_S", 0.05)
    held = lock(info.paths.standbys_lock, "standby x")
    with pytest.raises(SpoolLocked, match="standby x"):
        standby_holds.note(info.paths, "b", 7)
    held.close()
    assert standby_holds.note(info.paths, "b", 7)


def test_a_file_that_is_none_is_left_as_it_is(info: SpoolInfo) -> None:
    """An entry in its place would say that nobody else needs anything."""
    path = info.paths.root / standby_holds.NAME
    path.write_text('{"b": 3')
    assert not standby_holds.note(info.paths, "c", 90)
    assert path.read_text() == '{"b": 3' and standby_holds.needed(info.paths, 100, 10) == 90
    assert "standbys.json cannot be read" in status(info.paths, info.paths.root)["holds_unknown"]
    path.unlink()
    assert standby_holds.note(info.paths, "c", 90)
    assert not status(info.paths, info.paths.root)["holds_unknown"]
