"""Absence is damage: a pool file that is missing, cut, emptied, older or lost a record is refused
with the command to run, made again where history has it, and served as it is only when told to."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from omq.base.errors import NeedsRepair
from omq.format.journal import Newest
from omq.format.pool import RECORD_BYTES
from omq.storage import journal_newest, poolctrl
from omq.storage.journal import file_name
from omq.storage.pool import PoolFiles
from tests.recovery.conftest import Dead
from tests.recovery.spool import Spool, control_of, damaged, repair, run, scan, start
from tests.recovery.test_loss import start_with_bodies_missing

REPAIRABLE, DATA = 1, 65


def pool_file(dead: Dead, number: int) -> Path:
    return dead.paths.msgpool / f"{number}QP"


def _missing(dead: Dead) -> None:
    pool_file(dead, 0).unlink()


def _emptied(dead: Dead) -> None:
    pool_file(dead, 0).write_bytes(b"")


def _cut_at_a_record(dead: Dead) -> None:
    path = pool_file(dead, 0)
    path.write_bytes(path.read_bytes()[: 8 * RECORD_BYTES])


def _zeroed_record(dead: Dead) -> None:
    data = bytearray(pool_file(dead, 0).read_bytes())
    at = next(at for at in range(RECORD_BYTES, len(data), RECORD_BYTES) if any(data[at : at + 8]))
    data[at : at + RECORD_BYTES] = bytes(RECORD_BYTES)
    pool_file(dead, 0).write_bytes(data)


FAULTS: dict[str, Callable[[Dead], None]] = {
    "missing": _missing, "emptied": _emptied, "cut at a record": _cut_at_a_record,
    "zeroed record": _zeroed_record}


@pytest.fixture(params=FAULTS)
def faulty(request: pytest.FixtureRequest, dead: Dead) -> Dead:
    FAULTS[request.param](dead)
    return dead


def test_the_start_refuses_and_names_file_and_command(faulty: Dead) -> None:
    before = {path: path.read_bytes() for path in faulty.paths.msgpool.iterdir()}
    with pytest.raises(NeedsRepair, match=r"0QP.* the last checkpoint left.*omqrecover plan") as no:
        start(faulty.root, faulty.uuid)
    assert no.value.exit_code == DATA
    after = {path: path.read_bytes() for path in faulty.paths.msgpool.iterdir()
             if path.name != "checkpoint.dw"}
    assert after == {path: data for path, data in before.items() if path.name != "checkpoint.dw"}


def test_what_history_has_is_made_again(faulty: Dead) -> None:
    assert scan(faulty.root)[0] == REPAIRABLE
    repair(faulty.root)
    recovered, messages = start(faulty.root, faulty.uuid)
    assert messages == faulty.known and damaged(recovered) == []


def test_without_history_it_is_a_loss_and_served_only_when_told_to(faulty: Dead) -> None:
    for path in faulty.paths.archive.iterdir():
        path.unlink()
    code, findings = scan(faulty.root)
    assert code == DATA
    assert any(each["file"] == "msgpool/0QP" and each["verdict"] == "loss" for each in findings)
    plan = faulty.root.parent / "plan"
    run("plan", faulty.root, "--save", plan)
    code, _, err = run("apply", faulty.root, plan)
    assert code == DATA and "--accept-loss" in err
    with pytest.raises(NeedsRepair):
        start(faulty.root, faulty.uuid)
    repair(faulty.root, "--accept-loss")
    _, messages = start_with_bodies_missing(faulty)  # they were in the archive
    assert messages.keys() < faulty.known.keys() and messages


def test_a_file_that_is_put_back_is_served(dead: Dead, tmp_path: Path) -> None:
    """The refused start has changed nothing that would make the right file a wrong one."""
    shutil.move(pool_file(dead, 0), tmp_path / "kept")
    for _ in range(2):
        with pytest.raises(NeedsRepair):
            start(dead.root, dead.uuid)
    shutil.move(tmp_path / "kept", pool_file(dead, 0))
    assert start(dead.root, dead.uuid)[1] == dead.known


def test_an_older_pool_file_brings_nothing_back(tmp_path: Path) -> None:
    made = Spool(tmp_path / "spool")
    for _ in range(20):
        made.put([3], b"x" * 100)
    made.commit()
    made.checkpoint_here()
    older = (made.paths.msgpool / "0QP").read_bytes()
    for entry in made.give(3, 10):
        made.settle(entry)
    made.commit()
    made.checkpoint_here()
    made.stop()
    (made.paths.msgpool / "0QP").write_bytes(older)
    with pytest.raises(NeedsRepair, match=r"it holds 20.*older copy"):
        start(made.paths.root, made.info.uuid)


def test_a_file_that_vanishes_while_it_runs_is_noticed_by_the_writer(tmp_path: Path) -> None:
    """What is counted goes on from what should be there: the loss does not become lasting."""
    made = Spool(tmp_path / "spool")
    for _ in range(20):
        made.put([3], b"x" * 100)
    made.commit()
    made.checkpoint_here()
    made.pool_files.close()
    (made.paths.msgpool / "0QP").unlink()
    made.pool_files = PoolFiles(made.paths, made.info.uuid)  # the next pool.writer
    made.pool_files.recover_double_write(control_of(made.paths))
    made.redo = made.restart(made.pool_files)
    made.put([3], b"y")
    made.commit()
    made.checkpoint_here()
    assert [finding.file for finding in made.pool_files.findings] == ["0QP"]
    made.stop()
    with pytest.raises(NeedsRepair, match="21 records"):
        start(made.paths.root, made.info.uuid)


def test_a_spool_of_an_earlier_version_is_upgraded_by_its_first_start(dead: Dead) -> None:
    control = control_of(dead.paths)
    poolctrl.store(dead.paths, replace(control, generation=control.generation + 1, contents=None))
    (dead.paths.journal / "newest").unlink()
    (dead.paths.msgpool / "checkpoint.dw").write_bytes(bytes(64))
    assert control_of(dead.paths).contents is None
    recovered, messages = start(dead.root, dead.uuid)
    assert messages == dead.known and damaged(recovered) == []
    assert control_of(dead.paths).contents is not None
    noted = journal_newest.load(dead.paths)
    assert noted is not None and noted.number == 5
    assert scan(dead.root) == (0, [])


def test_of_an_earlier_version_at_least_the_number_of_files_is_asked_for(dead: Dead) -> None:
    control = control_of(dead.paths)
    poolctrl.store(dead.paths, replace(control, generation=control.generation + 1, contents=None))
    (dead.paths.msgpool / "checkpoint.dw").write_bytes(bytes(64))
    pool_file(dead, 0).unlink()
    with pytest.raises(NeedsRepair, match="3 pool files, 2 are there"):
        start(dead.root, dead.uuid)


# omqrecover


def test_journal_and_pool_of_an_old_backup_beside_a_newer_archive(tmp_path: Path) -> None:
    """The last archived file was rotated, so another one followed it: not "nothing is lost"."""
    made = Spool(tmp_path / "spool")
    backup = tmp_path / "backup"
    made.put([3], b"old" * 100)
    made.commit()
    made.checkpoint_here()
    for name in ("journal", "msgpool"):
        shutil.copytree(made.paths.root / name, backup / name)
    made.stop()
    shutil.move(made.paths.journal / file_name(1), made.paths.archive / file_name(1))
    for name in ("journal", "msgpool"):
        shutil.rmtree(made.paths.root / name)
        shutil.copytree(backup / name, made.paths.root / name)
    (made.paths.journal / file_name(1)).unlink()
    (made.paths.journal / "newest").write_bytes(bytes(8192))
    code, findings = scan(made.paths.root)
    assert code == DATA
    assert ("journal_no_follower", "unknown") in {
        (each["finding"], each["verdict"]) for each in findings}


def test_a_missing_archive_file_is_no_loss_where_the_pool_is_what_it_should_be(dead: Dead) -> None:
    """Messages that ended in the file that is gone are not called lost."""
    (dead.paths.archive / file_name(2)).unlink()
    _, findings = scan(dead.root)
    assert {each["finding"] for each in findings} == {"journal_gap", "body_damaged"}
    assert {each["verdict"] for each in findings if each["finding"] == "journal_gap"} == {
        "repairable"}, "its frames are in the pool; only bodies were nowhere else"


def test_the_newest_journal_file_is_missed(dead: Dead) -> None:
    """Behind a kill it holds what was acknowledged last; nothing else would show that it was."""
    (dead.paths.journal / "newest").rename(dead.root / "kept")
    _rotated(dead)
    with pytest.raises(NeedsRepair, match="newest journal file"):
        start(dead.root, dead.uuid)
    code, findings = scan(dead.root)
    assert code == DATA
    assert [(each["finding"], each["verdict"]) for each in findings] == [
        ("journal_newest", "unknown")]
    repair(dead.root, "--accept-loss")
    assert start(dead.root, dead.uuid)[1] == dead.known


def _rotated(dead: Dead) -> None:
    """The manager had gone on to file 6, and that is gone."""
    file = journal_newest.open_newest(dead.paths)
    journal_newest.note(file, Newest(dead.uuid, 6, 1, dead.end_lsn + 1))
    file.close()
