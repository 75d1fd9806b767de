"""journal/ and msgpool/ from an old backup beside a newer archive/ of the same instance: what was
only in the journal of today is gone, and scan does not say that nothing is."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from omq.base.errors import NeedsRepair
from omq.core.engine.state import IDEL
from omq.storage import durable
from omq.storage.disk import Disk
from omq.storage.journal import numbers_in
from omq.storage.journal_reader import read_entry
from omq.storage.journal_retire import retire
from tests.recovery.spool import Spool, repair, run, scan, start
from tests.unit.core.redo_world import Known, QuietDisk

LOSS = 65


@dataclass
class Truth:
    """What was acknowledged: LSN of the commit with the birth and with the end of each message."""

    root: Path
    uuid: bytes
    born: dict[int, int]
    ended: dict[int, int]
    archived_lsn: int  # last LSN that is in archive/

    def alive(self, lsn: int) -> set[int]:
        """Messages that were alive once this LSN was committed."""
        return {qpool for qpool, at in self.born.items()
                if at <= lsn and self.ended.get(qpool, lsn + 1) > lsn}

    @property
    def now(self) -> set[int]:
        return {*self.born} - {*self.ended}


class Life(Spool):
    """A spool that writes down what it acknowledges."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.born: dict[int, int] = {}
        self.ended: dict[int, int] = {}
        self.chance = random.Random(5)

    def births(self, count: int) -> None:
        for _ in range(count):
            qpool = self.put([3], self.chance.randbytes(3_000))
            self.commit()
            self.born[qpool] = self.lsn

    def ends(self, count: int) -> None:
        t = self.core.t
        for entry in self.give(3, count):
            qpool = t.m_qpool[t.e_message[entry]]
            self.settle(entry)
            self.commit()
            self.ended[qpool] = self.lsn

    def archive(self) -> None:
        """As pool.writer retires: all that lies before the checkpoint's file."""
        for number in numbers_in(self.paths.journal):
            if number < self.writer.file_number:
                retire(self.paths, number, keep=True)


@pytest.fixture
def mixed(tmp_path: Path) -> Iterator[Truth]:
    durable.use(QuietDisk())
    made, backup = Life(tmp_path / "spool"), tmp_path / "backup"
    made.births(200)
    made.ends(20)
    made.checkpoint_here()
    for name in ("journal", "msgpool"):
        shutil.copytree(made.paths.root / name, backup / name)
    made.births(150)
    made.ends(200)  # 180 of the backup, 20 since
    made.births(60)
    made.checkpoint_here()
    made.archive()
    assert len(numbers_in(made.paths.archive)) >= 4
    header = read_entry(made.paths, made.writer.file_number, made.info.uuid).header
    assert header is not None
    archived = header.follows_lsn
    made.births(50)
    made.ends(40)
    made.checkpoint_here()
    made.stop()
    for name in ("journal", "msgpool"):
        shutil.rmtree(made.paths.root / name)
        shutil.copytree(backup / name, made.paths.root / name)
    yield Truth(made.paths.root, made.info.uuid, made.born, made.ended, archived)
    durable.use(Disk())


def on_queues(messages: Known) -> set[int]:
    """Those that a reader would get; the others wait for idel.server."""
    return {qpool for qpool, (_, parts) in messages.items()
            if any(part[0] != IDEL for part in parts)}


def test_scan_says_that_it_cannot_be_known_and_the_start_refuses(mixed: Truth) -> None:
    code, findings = scan(mixed.root)
    assert code == LOSS
    assert [(each["finding"], f"LSN {mixed.archived_lsn} " in each["reason"])
            for each in findings if each["verdict"] == "unknown"] == [("journal_no_follower", True)]
    code, out, _ = run("scan", mixed.root)
    assert code == LOSS and "no message is lost" not in out and "history unknown" in out
    with pytest.raises(NeedsRepair, match=r"older backup.*omqrecover plan"):
        start(mixed.root, mixed.uuid)


def test_apply_refuses_until_told_and_then_loses_and_brings_back_only_the_unknown(
        mixed: Truth) -> None:
    plan = mixed.root.parent / "plan"
    run("plan", mixed.root, "--save", plan)
    code, _, err = run("apply", mixed.root, plan)
    assert code == LOSS and "--accept-loss" in err
    repair(mixed.root, "--accept-loss")
    assert scan(mixed.root) == (0, [])
    _, messages = start(mixed.root, mixed.uuid)
    there = on_queues(messages)
    assert there == mixed.alive(mixed.archived_lsn), "all that any file still knew"
    lost, back = mixed.now - there, there - mixed.now
    assert {mixed.born[qpool] > mixed.archived_lsn for qpool in lost} == {True} and len(lost) >= 50
    assert {mixed.ended[qpool] > mixed.archived_lsn for qpool in back} == {True}
    assert len(back) == 40
