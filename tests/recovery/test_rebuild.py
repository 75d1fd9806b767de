"""The pool is lost entirely: it is built again from the archived journal."""

from __future__ import annotations

import functools
import random
import shutil
from pathlib import Path

import pytest

from omq.base import clock
from omq.base.errors import NeedsRepair
from omq.base.settings import Settings
from omq.core.redo.windows import Windows
from omq.format.location import number_of
from omq.storage.archiver import convert
from omq.storage.journal import file_name, numbers_in
from omqtools.omqrecover import rebuild as rebuild_module
from tests.recovery.conftest import Dead
from tests.recovery.spool import Spool, damaged, overwrite, repair, run, scan, start
from tests.unit.core.redo_world import TIME_NS, Known


def test_the_pool_is_lost(dead: Dead) -> None:
    """Journal and archive are there: to the last acknowledged message."""
    shutil.rmtree(dead.paths.msgpool)
    code, out, _ = run("rebuild", dead.root, "--from-archive", dead.paths.archive)
    assert code == 0 and f"rebuilt {len(dead.known)} messages" in out
    assert scan(dead.root) == (0, [])
    recovered, messages = start(dead.root, dead.uuid)
    assert places_aside(messages) == places_aside(dead.known) and damaged(recovered) == []


def test_the_old_pool_is_kept(dead: Dead) -> None:
    before = (dead.paths.msgpool / "0QP").read_bytes()
    run("rebuild", dead.root, "--from-archive", dead.paths.archive)
    (kept,) = dead.paths.quarantine.glob("rebuild-*/moved-msgpool/0QP")
    assert kept.read_bytes() == before
    assert places_aside(start(dead.root, dead.uuid)[1]) == places_aside(dead.known)


def test_all_is_lost_but_a_copy_of_the_journal(dead: Dead, tmp_path: Path) -> None:
    """A new disk: the spool is made again with its identity, bodies come from the copy."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in [*dead.paths.archive.iterdir(), *dead.paths.journal.iterdir()]:
        shutil.copy(path, copy)
    data = tmp_path / "data"
    dead.paths.data.rename(data)
    shutil.rmtree(dead.root)
    code, out, err = run("rebuild", dead.root, "--from-archive", copy)
    assert code == 0, err
    assert f"rebuilt {len(dead.known)} messages" in out
    shutil.rmtree(dead.paths.data)
    data.rename(dead.paths.data)
    assert scan(dead.root) == (0, [])
    recovered, messages = start(dead.root, dead.uuid)
    assert damaged(recovered) == []
    assert places_aside(messages) == places_aside(dead.known)
    assert recovered.first_lsn > dead.end_lsn


def places_aside(known: Known) -> Known:
    return {qpool: (where[:2] + where[4:], parts) for qpool, (where, parts) in known.items()}


@pytest.fixture
def history(tmp_path: Path) -> tuple[Spool, list[tuple[int, int, Known]]]:
    """A spool, and what it knew after each of its group commits: LSN, time, messages."""
    made = Spool(tmp_path / "lived")
    then: list[tuple[int, int, Known]] = []
    for step in range(12):
        now = TIME_NS + step * 60 * 10**9
        made.engine.begin(now, 1)
        for i in range(6):
            made.put([3 + i % 2], b"%d" % step * 6_000)
        if step % 3 == 2:
            for entry in made.give(3, 4):
                made.settle(entry)
        made.engine.commit(sync=True)
        made.lsn = made.writer.last_lsn
        then.append((made.lsn, now, made.expected()))
        made.begin()
    made.stop()
    return made, then


@pytest.mark.parametrize("step", [2, 7, 10])
def test_until_an_lsn(history: tuple[Spool, list[tuple[int, int, Known]]], step: int) -> None:
    """What came behind it is gone, from the journal too, and no number is given again."""
    spool, then = history
    lsn, _, known = then[step]
    code, _, err = run("rebuild", spool.paths.root, "--from-archive", spool.paths.archive,
                       "--until-lsn", str(lsn))
    assert code == 0, err
    assert scan(spool.paths.root) == (0, [])
    recovered, messages = start(spool.paths.root, spool.info.uuid)
    assert messages == known and damaged(recovered) == []
    assert recovered.first_lsn > then[-1][0]
    assert recovered.next_qpool > max(then[-1][2])
    # From here on the history is that of the chosen point: rebuilt again it is the same.
    code, _, err = run("rebuild", spool.paths.root, "--from-archive", spool.paths.archive)
    assert code == 0, err
    assert start(spool.paths.root, spool.info.uuid)[1] == known


def test_until_a_time(history: tuple[Spool, list[tuple[int, int, Known]]]) -> None:
    spool, then = history
    time = clock.iso_time(then[4][1] + 10 * 10**9)
    code, _, err = run("rebuild", spool.paths.root, "--from-archive", spool.paths.archive,
                       "--until-time", time)
    assert code == 0, err
    assert start(spool.paths.root, spool.info.uuid)[1].keys() == then[4][2].keys()


def test_a_history_that_does_not_begin_at_the_beginning(dead: Dead) -> None:
    (dead.paths.archive / "0000000001.jnl").unlink()
    shutil.rmtree(dead.paths.msgpool)
    code, _, err = run("rebuild", dead.root, "--from-archive", dead.paths.archive)
    assert code == 65 and "--accept-loss" in err
    code, _, _ = run("rebuild", dead.root, "--from-archive", dead.paths.archive, "--accept-loss")
    assert code == 0
    assert scan(dead.root)[0] == 0


def test_a_gap_in_the_history(dead: Dead) -> None:
    (dead.paths.archive / "0000000002.jnl").unlink()
    code, _, err = run("rebuild", dead.root, "--from-archive", dead.paths.archive)
    assert code == 65 and "gaps" in err
    assert numbers_in(dead.paths.journal) == [4, 5], "nothing was changed"


@pytest.mark.parametrize("seed", range(6))
def test_slots_that_are_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
                                   ) -> None:
    """Windows and checkpoints of a few messages: what was written for one message must not take the
    place of the next owner of its slot, nor be cleared with it."""
    monkeypatch.setattr(rebuild_module, "CHANGES_MAX", 3)
    small = functools.partial(Windows, size=9_000)
    monkeypatch.setattr(rebuild_module, "Windows", small)
    chance = random.Random(seed)
    made = Spool(tmp_path / "lived")
    for _ in range(60):
        made.party = chance.choice(made.parties)
        for _ in range(chance.randrange(5)):
            made.put([chance.randrange(3, 6)], b"x" * chance.randrange(3_000))
        if chance.random() < 0.2:
            made.put(range(3, 3 + chance.choice((2, 20, 37))))
        made.commit()
        made.party = made.parties[0]  # the one reader
        entries = made.give(chance.randrange(3, 6), chance.randrange(6))
        for entry in entries:
            chosen = chance.random()
            if chosen < 0.6:
                made.settle(entry)
            elif chosen < 0.8:
                made.move(entry, range(6, 6 + chance.choice((1, 3, 20))), new=[[3], [4]])
        made.commit()
    known = made.stop()
    code, _, err = run("rebuild", made.paths.root, "--from-archive", made.paths.archive)
    assert code == 0, err
    assert scan(made.paths.root) == (0, [])
    recovered, messages = start(made.paths.root, made.info.uuid)
    assert messages == known and damaged(recovered) == []
    assert len(known) > 30


def archived(dead: Dead) -> None:
    """What omq-archive makes of the retired files."""
    for number in numbers_in(dead.paths.archive):
        convert(dead.paths, Settings(), dead.uuid, number, keep=False, bodies=True)
    assert not numbers_in(dead.paths.archive) and numbers_in(dead.paths.archive, ".oma")


def test_from_archive_files(dead: Dead) -> None:
    """The pool is lost, the retired journal is in archive files: bodies come back too."""
    archived(dead)
    shutil.rmtree(dead.paths.msgpool)
    code, out, err = run("rebuild", dead.root, "--from-archive", dead.paths.archive)
    assert code == 0 and f"rebuilt {len(dead.known)} messages" in out, err
    assert scan(dead.root) == (0, [])
    assert places_aside(start(dead.root, dead.uuid)[1]) == places_aside(dead.known)


def test_records_from_archive_files(dead: Dead) -> None:
    """Records and bodies that only archive files have are made again."""
    archived(dead)
    (dead.paths.msgpool / "1QP").unlink()
    (dead.paths.store / "0000000001.sto").unlink()
    for _ in range(2):  # bodies of lost records are seen when the records are there
        repair(dead.root)
    assert scan(dead.root) == (0, [])
    _, messages = start(dead.root, dead.uuid)
    assert places_aside(messages) == places_aside(dead.known)


def test_an_archive_file_behind_the_checkpoint(dead: Dead) -> None:
    """The pool of an older backup, the journal archived since."""
    for number in (4, 5):
        (dead.paths.journal / file_name(number)).rename(dead.paths.archive / file_name(number))
    archived(dead)
    with pytest.raises(NeedsRepair, match="omqrecover plan"):
        start(dead.root, dead.uuid)
    assert {each["finding"] for each in scan(dead.root)[1]} >= {"journal_archived"}
    for _ in range(2):
        repair(dead.root, "--accept-loss")
    assert numbers_in(dead.paths.journal) == [5]
    assert scan(dead.root) == (0, [])
    assert start(dead.root, dead.uuid)[1].keys() == dead.known.keys()


def test_no_start_before_it_is_finished(dead: Dead) -> None:
    dead.paths.rebuilding.mkdir()
    with pytest.raises(NeedsRepair, match="omqrecover rebuild"):
        start(dead.root, dead.uuid)


def test_a_journal_of_another_instance_is_refused(dead: Dead, tmp_path: Path) -> None:
    other = Spool(tmp_path / "other")
    other.put([3])
    other.commit()
    other.stop()
    shutil.rmtree(dead.paths.journal)
    dead.paths.journal.mkdir()
    shutil.rmtree(dead.paths.archive)
    dead.paths.archive.mkdir()
    code, _, err = run("rebuild", dead.root, "--from-archive", other.paths.journal)
    assert code == 65 and "uuid" in err


@pytest.mark.parametrize("new_ones", ["whole", "damaged"])
def test_an_end_counts_with_its_unit_of_work(tmp_path: Path, new_ones: str) -> None:
    """A message that was exchanged for new ones has ended, unless a new one cannot be believed:
    then the exchange did not happen, and it is there as before."""
    made = Spool(tmp_path / "lived")
    first = made.put([3], b"first")
    made.put([3], b"second")
    made.commit()
    one, other = made.give(3, 2)
    before = made.expected()[first]
    made.move(one, [], new=[[4], [5]])
    made.commit()
    made.settle(other)
    made.commit()
    for _ in range(3):  # what lies behind says that all of it was durable
        made.put([3])
        made.commit()
    known = made.stop()
    assert first not in known
    new = [qpool for qpool, (_, parts) in known.items() if {part[0] for part in parts} & {4, 5}]
    assert len(new) == 2
    if new_ones == "damaged":
        location, offset, length = known[new[1]][0][2:5]
        path = made.paths.journal / file_name(number_of(location))
        overwrite(path, offset + length - 1, b"!")
        known = {q: known[q] for q in known if q not in new} | {first: before}
    code, _, err = run("rebuild", made.paths.root, "--from-archive", made.paths.archive)
    assert code == 0, err
    assert start(made.paths.root, made.info.uuid)[1] == known


@pytest.mark.parametrize("how", ["damaged", "gone"])
def test_archived_bodies_that_cannot_be_read_are_a_gap(dead: Dead, how: str) -> None:
    """The first look at history does not need them; nothing is swapped before they were read."""
    archived(dead)
    bodies = dead.paths.archive / "0000000002.omb"
    if how == "gone":
        bodies.unlink()
    else:
        overwrite(bodies, bodies.stat().st_size // 2, b"damage")
    shutil.rmtree(dead.paths.msgpool)
    code, _, err = run("rebuild", dead.root, "--from-archive", dead.paths.archive)
    assert code == 65 and "gaps" in err
    assert not dead.paths.msgpool.exists()
    code, out, err = run("rebuild", dead.root, "--from-archive", dead.paths.archive,
                         "--accept-loss")
    assert code == 0 and "rebuilt" in out, err
