"""Start, omqcheck and omqrecover of one real spool: they name the same, count the same, and what
omqrecover has repaired a start serves."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from omq.base.errors import NeedsRepair
from omq.base.paths import SpoolPaths
from omq.core.judge.cases import Case
from omq.core.judge.finding import Found
from omq.core.load.offline_index import read_files
from omq.format.poolctrl import ControlFlag
from omq.storage.journal import file_name
from tests.recovery.conftest import Dead
from tests.recovery.spool import Spool, control_of, overwrite, repair, run, scan, start
from tests.unit.core.redo_world import TIME_NS

DATA = 65
_BODIES = ("body_damaged", "container_damaged")


@dataclass(frozen=True)
class Stopped:
    root: Path
    paths: SpoolPaths
    uuid: bytes
    known: object


@pytest.fixture
def stopped(tmp_path: Path) -> Stopped:
    """The last checkpoint comes behind the STOP."""
    made = Spool(tmp_path / "spool")
    for i in range(30):
        made.put([3], b"%d" % i * 50)
    made.commit()
    made.checkpoint_here()
    made.engine.begin(TIME_NS, 1)
    made.engine.books.stop()
    made.commit()
    made.checkpoint_here()
    known = made.stop()
    assert control_of(made.paths).flags & ControlFlag.CLEAN
    return Stopped(made.paths.root, made.paths, made.info.uuid, known)


def checked(paths: SpoolPaths) -> list[Found]:
    """What omqcheck finds in the files."""
    return read_files(paths, TIME_NS).judged


def test_a_bit_of_the_stop_block(stopped: Stopped) -> None:
    control = control_of(stopped.paths)
    path = stopped.paths.journal / file_name(control.journal)
    data = bytearray(path.read_bytes())
    data[control.offset - 4096 + 40] ^= 1
    path.write_bytes(data)
    code, found = scan(stopped.root)
    assert code == 1
    assert [(each["finding"], each["verdict"]) for each in found] == [
        ("journal_block", "repairable")]
    assert [each.case for each in checked(stopped.paths)] == [Case.JOURNAL_BLOCK]
    recovered, messages = start(stopped.root, stopped.uuid)
    assert messages == stopped.known
    assert [each.case for each in recovered.judged] == [Case.JOURNAL_BLOCK]


def test_the_last_journal_file_of_a_clean_stop_is_an_older_one(stopped: Stopped) -> None:
    """Its blocks up to the checkpoint are zeros: an older copy. All of it is in the pool."""
    control = control_of(stopped.paths)
    overwrite(stopped.paths.journal / file_name(control.journal), control.offset - 4096,
              bytes(4096))
    code, found = scan(stopped.root)
    assert (code, [each["finding"] for each in found]) == (1, ["journal_behind"])
    assert start(stopped.root, stopped.uuid)[1] == stopped.known


def test_the_last_journal_file_of_a_clean_stop_is_missing(stopped: Stopped) -> None:
    """Only the bodies that lie in it are lost, each counts one; numbers go on."""
    control = control_of(stopped.paths)
    (stopped.paths.journal / file_name(control.journal)).unlink()
    code, found = scan(stopped.root)
    assert code == DATA
    assert [each["verdict"] for each in found if each["finding"] not in _BODIES] == ["repairable"]
    lost = [each for each in found if each["finding"] in _BODIES]
    assert len(lost) == 30
    assert sum(each.count for each in checked(stopped.paths)
               if each.case is Case.BODY_DAMAGED) == 30
    assert start_records(stopped) == 30


def test_bodies_that_are_gone_count_alike(dead: Dead) -> None:
    shutil.rmtree(dead.paths.data)
    dead.paths.data.mkdir(mode=0o700)
    (dead.paths.archive / file_name(1)).unlink()
    _, found = scan(dead.root)
    lost = [each for each in found if each["finding"] in _BODIES]
    seen = [each for each in checked(dead.paths) if each.case in (
        Case.BODY_DAMAGED, Case.CONTAINER_DAMAGED)]
    assert sum(each.count for each in seen) == len(lost) > 2
    assert {each.case for each in seen} == {Case.BODY_DAMAGED, Case.CONTAINER_DAMAGED}


def test_all_pool_files_that_are_missing_are_named(dead: Dead) -> None:
    for file in range(3):
        (dead.paths.msgpool / f"{file}QP").unlink()
    with pytest.raises(NeedsRepair) as refused:
        start(dead.root, dead.uuid)
    assert all(f"{file}QP" in str(refused.value) for file in range(3))


def test_the_journal_file_of_the_checkpoint_is_gone_and_later_ones_are_there(dead: Dead) -> None:
    """What is accepted is served: the checkpoint goes on in the next file."""
    control = control_of(dead.paths)
    (dead.paths.journal / file_name(control.journal)).unlink()
    with pytest.raises(NeedsRepair, match="goes on in it, and it is missing"):
        start(dead.root, dead.uuid)
    code, found = scan(dead.root)
    assert code == DATA and "journal_position" in {each["finding"] for each in found}
    plan = dead.root.parent / "plan"
    run("plan", dead.root, "--save", plan)
    assert run("apply", dead.root, plan)[0] == DATA
    repair(dead.root, "--accept-loss")
    assert control_of(dead.paths).journal != control.journal
    assert start_records(dead)


def start_records(dead: Dead | Stopped) -> int:
    """A start that looks at the records alone; how many messages there are."""
    from omq.core.load.recovery import recover
    from omq.storage.pool import PoolFiles
    from tests.recovery.spool import SMALL
    from tests.unit.core.redo_world import found

    pool = PoolFiles(dead.paths, dead.uuid)
    try:
        recover(dead.paths, SMALL, dead.uuid, pool, lambda _: None)
        return len(found(pool))
    finally:
        pool.close()


def test_a_journal_whose_first_block_is_damaged_is_not_clean(tmp_path: Path) -> None:
    """Nothing is before it that could miss it."""
    made = Spool(tmp_path / "spool")
    made.put([3], b"x")
    made.commit()
    made.put([3], b"y")
    made.commit()
    made.stop()
    path = made.paths.journal / file_name(1)
    data = bytearray(path.read_bytes())
    data[4096 + 70] ^= 1
    path.write_bytes(data)
    code, found = scan(made.paths.root)
    assert code == DATA and [each["finding"] for each in found] == ["journal_block"]
