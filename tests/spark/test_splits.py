"""Whatever files come together, and in whatever order: the tables are those of one run."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow.dataset as ds
import pytest

from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.state import Party
from omq.format.frame_rules import GIVEN_OUT_OF_TURN
from omq.format.journal import FrameFlag, FrameType
from omq.format.wire import Settlement
from omq.storage import archive as archive_files
from omq.storage import durable
from omq.storage.disk import Disk
from omqtools.omqspark import audit_steps, views
from omqtools.omqspark.audit import audit
from omqtools.omqspark.audited import Audited
from omqtools.omqspark.lake import Lake
from omqtools.omqspark.out_directory import AUDITED
from omqtools.omqspark.pipeline import run
from omqtools.omqspark.session import Later
from tests import share
from tests.model import instance as model_instance
from tests.model.test_model import Machine
from tests.spark.test_histories import EVENTS, REASONS, archived, steps
from tests.spark.told import no_session, told
from tests.unit.engine.world import A, B, World, make_named

STEPS = 500  # of the model: some 60 files
READERS = [Party(slot, slot, 100 + slot, 0, 10 + slot) for slot in (2, 3, 4)]


def cut(world: World) -> None:
    """What follows is in another file."""
    core = world.core
    world.writer.rotate(core.block.first_lsn, core.next_qpool, world.wall)
    world.engine.books.name_everything()
    world.engine.commit()


def work(world: World, queue: int, pick: random.Random, kind: Settlement, wanted: int) -> None:
    """A reader takes some, and settles them one after the other."""
    reader = pick.choice(READERS)
    for verdict in world.give(wanted, queue, reader, seconds=pick.randrange(1, 9)):
        world.begin(pick.randrange(1, 2000))
        world.settle(kind, verdict, reader=reader, argument=10**9)


def lived(world: World, pick: random.Random) -> None:
    """Messages on one queue and on two, of each way to be settled; a queue that gets another name;
    some are taken long before they are settled, across a cut, of which one before it."""
    for part in range(4):
        for _ in range(12):
            both = pick.random() < 0.5
            world.put(*((A, B) if both else (pick.choice((A, B)),)), body=b"x" * pick.randrange(99),
                      persistent=pick.random() < 0.8, delay_s=pick.choice([0, 0, 0, 30]))
        work(world, A, pick, Settlement.DONE, 9)
        work(world, pick.choice((A, B)), pick, Settlement.FAIL, 2)
        work(world, pick.choice((A, B)), pick, Settlement.DEFER, 1)
        work(world, pick.choice((A, B)), pick, Settlement.RELEASE, 1)
        for _ in range(3):
            world.put(A, body=b"held")
        held = world.give(3, A, READERS[0])
        world.begin(1500)  # taken together, and the first of them ended in this file
        world.settle(Settlement.DONE, held.pop(0), reader=READERS[0])
        assert held
        if part == 2:
            world.engine.books.define_queues([QueueRules(A, "RENAMED", 1000, 1 << 20)])
            world.engine.commit()
        cut(world)
        for verdict in held:
            world.begin(pick.randrange(1, 40_000))
            world.settle(Settlement.DONE, verdict, reader=READERS[0])
        work(world, B, pick, Settlement.DONE, 9)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    before = durable.use(Disk())
    base = tmp_path_factory.mktemp("splits")
    world = make_named(base / "spool")
    lived(world, random.Random(3))
    world.writer.close()
    limit, to = None, base / "archive"
    to.mkdir()
    for path in sorted(world.info.paths.journal.glob("[0-9]*.jnl"), reverse=True):
        pieces = archive_files.cut(path.read_bytes(), int(path.stem), world.info.uuid, limit=limit)
        (to / archive_files.archive_name(int(path.stem))).write_bytes(
            b"".join(archive_files.encode(pieces, level=1)[1]))
        limit = pieces.follows_lsn
    yield to
    durable.use(before)


@pytest.fixture(scope="module")
def once(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = str(tmp_path_factory.mktemp("once") / "tables")
    run(Later(no_session), str(archive), out, incremental=False)
    return out


def test_the_archive_has_what_a_split_can_get_wrong(archive: Path, once: str) -> None:
    assert len(list(archive.iterdir())) == 5
    with views.database(once) as database:
        rows = database.sql("SELECT qpool, queue_name, work_ns FROM stays WHERE left_ns IS NOT "
                            "NULL AND work_ns IS NOT NULL").fetchall()
    both = Counter(qpool for qpool, _, _ in rows)
    assert sum(count > 1 for count in both.values()) > 3, "work on both queues"
    assert {name for _, name, _ in rows} == {"A", "B", "RENAMED"}


@pytest.mark.parametrize(("seed", "by"), share.of_cases([
    (0, "duckdb"), (1, "spark"), (2, "duckdb")]))
def test_any_split_in_any_order(archive: Path, once: str, seed: int, by: str,
                                request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """0: one after the other; else shuffled, some at a time."""
    engine = request.getfixturevalue("spark") if by == "spark" else Later(no_session)
    pick, here = random.Random(seed), tmp_path / "archive"
    here.mkdir()
    waiting = sorted(archive.iterdir())
    if seed:
        pick.shuffle(waiting)
    while waiting:
        count = pick.randrange(1, 4) if seed else 1
        for path in waiting[:count]:
            shutil.copy(path, here)
        del waiting[:count]
        run(engine, str(here), str(tmp_path / "tables"), incremental=True, files_per_batch=2)
    assert told(tmp_path / "tables") == told(once)


FLAGS = (FrameFlag.FAILED, FrameFlag.PREPARED, FrameFlag.TIMELESS, FrameFlag.MEMORY,
         FrameFlag.TO_IDEL, FrameFlag.LAST_PART)


@pytest.fixture(scope="module")
def anything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """What the model of omq can do, by chance, in many small files: units in two phases, groups,
    ids that a queue has had, operators' orders, retries, deaths of readers and of the manager; and
    the tables of one run."""
    base = tmp_path_factory.mktemp("anything")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_instance, "SETTINGS",
                      replace(model_instance.SETTINGS, archive="keep", archive_days=0))
        before = durable.use(Disk())
        machine, pick = Machine(), random.Random(1)
        try:
            for _ in range(STEPS):
                steps(machine, pick)
            machine.world.close()
            (base / "archive").mkdir()
            archived(Path(machine._folder.name) / "spool", machine.world.instance.uuid,
                     base / "archive")
        finally:
            machine.teardown()
        durable.use(before)
    run(Later(no_session), str(base / "archive"), str(base / "tables"), incremental=False)
    yield base / "archive", str(base / "tables")


def test_the_model_does_each_kind_of_thing(anything: tuple[Path, str]) -> None:
    """What a split can get wrong is there at all."""
    found = ds.dataset(f"{anything[1]}/bronze").to_table().to_pylist()
    assert {FrameType(row["type"]).name for row in found} >= EVENTS
    assert {row["reason"] for row in found} >= {int(each) for each in REASONS}
    assert all(any(row["flags"] & flag for row in found) for flag in FLAGS)
    gives = [row for row in found if row["type"] == FrameType.GIVE]
    assert {row["argument"] for row in gives} == {0, GIVEN_OUT_OF_TURN}
    for name in ("correlation", "unit", "lease", "group_id"):
        assert any(row[name] for row in found), name
    assert max(row["group_sequence"] or 0 for row in found) > 1
    assert max(row["attempt"] for row in found) > 1
    assert {bool(row["group_last"]) for row in found if row["group_id"]} == {True, False}
    assert any(len(row["onto"] or []) > 1 for row in found)
    assert len({row["epoch"] for row in found}) > 3 and len(list(anything[0].iterdir())) > 40


@pytest.mark.parametrize("seed", share.of_cases(range(3)))
def test_any_split_of_anything(anything: tuple[Path, str], seed: int, tmp_path: Path) -> None:
    """In order or shuffled, some files a run and some a batch."""
    pick, here, out = random.Random(seed), tmp_path / "archive", tmp_path / "tables"
    here.mkdir()
    waiting = sorted(anything[0].iterdir())
    if seed:
        pick.shuffle(waiting)
    while waiting:
        count = pick.randrange(1, 30)
        for path in waiting[:count]:
            shutil.copy(path, here)
        del waiting[:count]
        run(Later(no_session), str(here), str(out), incremental=True,
            files_per_batch=pick.randrange(1, 20))
    assert told(out) == told(anything[1])


def test_an_audit_in_steps_knows_who_was_chosen(anything: tuple[Path, str]) -> None:
    """Which hand-outs say that they are not in their turn; the verdict is that of one look."""
    lake = Lake(Later(no_session, 1), anything[1])
    rows = audit_steps._Rows(lake, cast(Any, lake.engine), lake.known(), Audited(3))
    chosen = [lsn for batch, files in rows._by_bronze().items()
              for lsn in rows._chosen(batch, files)["given_lsn"].to_pylist()]
    wanted = [row["lsn"] for row in ds.dataset(f"{anything[1]}/bronze").to_table().to_pylist()
              if row["type"] == FrameType.GIVE and row["argument"] == GIVEN_OUT_OF_TURN]
    assert sorted(chosen) == sorted(wanted) and wanted
    counts = []
    for engine in (Later(no_session), Later(no_session, 1)):
        (Path(anything[1]) / AUDITED).unlink(missing_ok=True)
        counts.append(audit(Lake(engine, anything[1]), str(anything[0]), pool=None)["counts"])
    assert counts[0] == counts[1] and not counts[0]["out_of_order"]
