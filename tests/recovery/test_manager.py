"""With the real queue manager: it starts with damaged parts set aside, or refuses and names the
command; behind a repair everything is delivered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.base.errors import Exit
from omq.format.index import IndexFlag, IndexHeader, read_header
from omq.format.pool import RECORD_BYTES
from omq.storage.journal import numbers_in
from omq.storage.segment import AttachedIndex
from tests.process.test_manager import WAIT_S, Manager, drain
from tests.recovery.spool import overwrite, repair, run, scan


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(tmp_path / "spool")
    yield made
    if made.process is not None and made.process.poll() is None:
        assert made.stop() == 0


def fill(manager: Manager, count: int) -> list[bytes]:
    """Messages, and a restart: the second start has written them all to the pool."""
    manager.start()
    with manager.connect() as c:
        bodies = [b"message %d" % i * 200 for i in range(count)]
        for at in range(0, count, 100):
            c.put_many("A", bodies[at : at + 100])
    assert manager.stop() == 0
    manager.start()
    manager.connect().close()
    assert manager.stop() == 0
    return bodies


def index_flags(manager: Manager) -> int:
    index = AttachedIndex(manager.paths)
    try:
        header = read_header(index.buffer)
        assert isinstance(header, IndexHeader)
        return header.flags
    finally:
        index.close()


def test_damaged_records_are_set_aside_then_repaired(manager: Manager) -> None:
    bodies = fill(manager, 300)
    (pool,) = manager.paths.msgpool.glob("*QP")
    for record in (5, 70):
        overwrite(pool, (record + 1) * RECORD_BYTES + 50, b"damage")
    manager.start()
    manager.connect().close()
    assert index_flags(manager) & IndexFlag.POOL_DAMAGED
    assert manager.stop() == 0
    assert len(list(manager.paths.quarantine.glob("*QP-*.bin"))) == 2
    assert scan(manager.root)[0] == 1
    repair(manager.root)
    assert scan(manager.root) == (0, [])
    manager.start()
    manager.connect().close()
    assert not index_flags(manager) & IndexFlag.POOL_DAMAGED
    assert [body for body, _ in drain(manager, "A")] == bodies


def test_a_lost_pool_comes_back_from_the_journal(manager: Manager) -> None:
    bodies = fill(manager, 300)
    for path in manager.paths.msgpool.glob("*"):
        path.unlink()
    code, out, err = run("rebuild", manager.root, "--from-archive", manager.paths.journal)
    assert code == 0, err
    assert "rebuilt 300 messages" in out
    manager.start()
    assert [body for body, _ in drain(manager, "A")] == bodies


def test_it_refuses_and_names_the_command(manager: Manager) -> None:
    """The command that it names leads to a spool that starts."""
    fill(manager, 20)
    for number in numbers_in(manager.paths.journal):
        (manager.paths.journal / f"{number:010d}.jnl").unlink()
    assert manager.start().wait(WAIT_S) == Exit.DATA
    repair(manager.root, "--accept-loss")
    manager.start()
    with manager.connect() as c:
        identity = c.put("B", b"new")
    assert [body for body, _ in drain(manager, "B")] == [b"new"] and identity


def test_a_running_manager_is_named(manager: Manager) -> None:
    process = manager.start()
    manager.connect().close()
    code, _, err = run("scan", manager.root)
    assert code == Exit.TEMPORARY and f"process {process.pid}" in err
