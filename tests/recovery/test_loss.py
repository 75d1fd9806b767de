"""Damage that costs something: it is said, it is not repaired without --accept-loss, and with it
everything else is served again."""

from __future__ import annotations

import shutil

import pytest

from omq.base.errors import NeedsRepair
from omq.format.poolctrl import SLOT_BYTES
from omq.storage.journal import numbers_in
from omqtools.omqrecover.repairs import SKIPPED
from tests.recovery import test_repair as damages
from tests.recovery.conftest import Dead
from tests.recovery.spool import (
    Spool,
    control_of,
    damaged,
    file_name,
    overwrite,
    repair,
    run,
    scan,
    start,
)

LOSS = 65


def names(dead: Dead) -> set[str]:
    """The cases that a scan finds; it must be a loss."""
    code, findings = scan(dead.root)
    assert code == LOSS, findings
    return {each["finding"] for each in findings}


def refused(dead: Dead) -> str:
    """What apply says without --accept-loss; nothing may change."""
    plan = dead.root.parent / "plan"
    run("plan", dead.root, "--save", plan)
    before = damages.contents(dead.root)
    code, _, err = run("apply", dead.root, plan)
    after = damages.contents(dead.root)
    assert code == LOSS
    assert {k: v for k, v in after.items() if not k.endswith("lock")} == \
        {k: v for k, v in before.items() if not k.endswith("lock")}
    return err


def without_archive(dead: Dead) -> None:
    """archive=delete: history begins in the middle."""
    shutil.rmtree(dead.paths.archive)
    dead.paths.archive.mkdir()


def test_a_block_behind_the_checkpoint(dead: Dead) -> None:
    """Its frames are lost, the gap is told, what comes behind it is there."""
    path = dead.paths.journal / file_name(5)
    last = path.read_bytes().rfind(b"OMQB", 0)
    before = path.read_bytes().rfind(b"OMQB", 0, last)
    overwrite(path, before + 50, b"damage")
    assert names(dead) == {"journal_block"}
    assert "LSN" in refused(dead)
    repair(dead.root, "--accept-loss")
    recovered, messages = start(dead.root, dead.uuid)
    assert len(damaged(recovered)) == 1 and "are lost" in damaged(recovered)[0]
    # The lost block put eight messages and handed some out: none of the others is touched.
    assert messages.keys() <= dead.known.keys()
    assert any(dead.paths.quarantine.glob("0000000005.jnl-*.bin"))


def test_a_record_of_which_nothing_is_known(dead: Dead) -> None:
    without_archive(dead)
    damages._torn_record(dead)
    found = names(dead)
    assert "record_damaged" in found
    assert "--accept-loss" in refused(dead)
    repair(dead.root, "--accept-loss")
    assert start_with_bodies_missing(dead)[1].items() < dead.known.items()


def test_a_pool_file_of_which_some_is_known(dead: Dead) -> None:
    """What was born in the journal that is kept comes back."""
    without_archive(dead)
    damages._missing_file(dead)
    assert "pool_file_missing" in names(dead)
    repair(dead.root, "--accept-loss")
    _, messages = start_with_bodies_missing(dead)
    mine = {q for q, (where, _) in dead.known.items() if where[0] == 1}
    assert messages and mine & messages.keys() != mine
    assert {q for q in dead.known if q not in mine} <= messages.keys()


def start_with_bodies_missing(dead: Dead) -> tuple[object, dict[int, object]]:
    """A start of a spool in which bodies are gone: only the records are looked at."""
    from omq.core.load.recovery import recover
    from omq.storage.pool import PoolFiles
    from tests.recovery.spool import SMALL
    from tests.unit.core.redo_world import found

    pool = PoolFiles(dead.paths, dead.uuid)
    try:
        recovered = recover(dead.paths, SMALL, dead.uuid, pool, lambda _: None)
        return recovered, dict(found(pool))
    finally:
        pool.close()


def test_the_journal_behind_the_checkpoint_is_gone(dead: Dead) -> None:
    """The manager refuses and names the tool; accepted, numbers go on far above all known ones."""
    for number in (4, 5):
        (dead.paths.journal / file_name(number)).unlink()
    with pytest.raises(NeedsRepair, match="omqrecover plan"):
        start(dead.root, dead.uuid)
    # What ended in the lost part has no record, and the checkpoint says that none is missing.
    assert names(dead) == {"journal_position", "body_damaged"}
    assert "the checkpoint" in refused(dead)
    checkpoint = control_of(dead.paths).lsn
    repair(dead.root, "--accept-loss")
    recovered, messages = start_with_bodies_missing(dead)
    assert recovered.first_lsn > checkpoint + SKIPPED  # type: ignore[attr-defined]
    assert recovered.next_qpool > SKIPPED  # type: ignore[attr-defined]
    assert len(messages) > 100
    assert numbers_in(dead.paths.journal) == [6]


def test_the_journal_comes_from_an_older_backup(dead: Dead) -> None:
    """It ends before the checkpoint: refused, explained, and accepted with a skip."""
    path = dead.paths.journal / file_name(5)
    with path.open("r+b") as file:
        file.truncate(4096)
        file.truncate(256 * 1024)
    assert "journal_behind" in names(dead)
    assert "ends at LSN" in refused(dead)
    repair(dead.root, "--accept-loss")
    recovered, _ = start_with_bodies_missing(dead)
    assert recovered.first_lsn > dead.end_lsn + SKIPPED // 2  # type: ignore[attr-defined]


def test_poolctrl_and_journal_are_gone(dead: Dead) -> None:
    """The archive still has the names of the queues."""
    damages._both_slots(dead)
    for number in (4, 5):
        (dead.paths.journal / file_name(number)).unlink()
    with pytest.raises(NeedsRepair, match="newest journal file"):
        start(dead.root, dead.uuid)
    assert "control_lost" in names(dead)
    repair(dead.root, "--accept-loss")
    made = control_of(dead.paths)
    assert made.queues[3] == "Q3" and made.queues[42] == "Q42"
    recovered, messages = start_with_bodies_missing(dead)
    assert len(messages) > 100
    assert recovered.next_qpool > SKIPPED  # type: ignore[attr-defined]


def test_without_any_name_queues_get_one(dead: Dead) -> None:
    without_archive(dead)
    damages._both_slots(dead)
    for number in (4, 5):
        (dead.paths.journal / file_name(number)).unlink()
    repair(dead.root, "--accept-loss")
    assert control_of(dead.paths).queues[3] == "LOST3"


def test_a_container_is_missing(dead: Dead) -> None:
    (container,) = dead.paths.data.glob("*/*")
    container.unlink()
    assert names(dead) == {"container_damaged"}
    container.write_bytes(b"d" * 300_000)
    assert names(dead) == {"container_damaged"}, "same length, other bytes"


def test_a_body_of_which_there_is_no_copy(dead: Dead) -> None:
    without_archive(dead)
    damages._relocated_body(dead)
    assert names(dead) >= {"body_damaged"}


def test_another_instance(dead: Dead, tmp_path: pytest.TempPathFactory) -> None:
    """The pool of another spool: nothing is done, and the reason said."""
    other = Spool(dead.root.parent / "other")
    other.put([3], b"body")
    other.commit()
    other.checkpoint_here()
    other.stop()
    shutil.rmtree(dead.paths.msgpool)
    shutil.copytree(other.paths.msgpool, dead.paths.msgpool)
    assert names(dead) >= {"control_foreign", "pool_file_foreign"}
    plan = dead.root.parent / "plan"
    run("plan", dead.root, "--save", plan)
    code, _, err = run("apply", dead.root, plan, "--accept-loss")
    assert code == LOSS and "restore the right one" in err


def test_a_newer_format_is_no_damage(dead: Dead) -> None:
    overwrite(dead.paths.msgpool / "1QP", 8, b"\2")
    code, findings = scan(dead.root)
    assert "newer" in {each["finding"] for each in findings}
    plan = dead.root.parent / "plan"
    run("plan", dead.root, "--save", plan)
    code, _, err = run("apply", dead.root, plan, "--accept-loss")
    assert code == LOSS and "use the newer omq" in err


def test_half_of_poolctrl_is_not_enough_to_refuse(dead: Dead) -> None:
    """One slot is damaged, the other older: its journal file may have gone; the start goes on."""
    newest = control_of(dead.paths).generation % 2
    overwrite(dead.paths.msgpool / "poolctrl", newest * SLOT_BYTES + 50, b"damage")
    assert start(dead.root, dead.uuid)[1] == dead.known
