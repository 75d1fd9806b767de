"""A spool that an older omq left, killed in the middle of its work, is taken over by a start.

tests/golden/spools/2026-11-22.tar.xz was made by the code of commit e22ab12: what its clients put
stands in the test. A format that changes so that it cannot be taken over must be refused with the
command to run, and this test say so.
"""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.cli import launch
from tests.process.instance import MANAGER, WRITER, Instance, instance
from tests.process.processes import WAIT_S

SPOOLS = Path(__file__).parents[1] / "golden" / "spools"
QUEUES = "[*]\ndeath_delay_s = 0\n[A]\n[B]\n[C]\nexpired_to = LATE\n[LATE]\n"


def unpack(archive: Path, folder: Path) -> None:
    """File by file: what else tarfile offers differs between versions of Python."""
    with tarfile.open(archive) as packed:
        for member in packed:
            path = folder / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            content = packed.extractfile(member) if member.isfile() else None
            if content is None:
                path.mkdir(exist_ok=True)
            else:
                path.write_bytes(content.read())
            path.chmod(member.mode)


@pytest.fixture
def older(tmp_path: Path) -> Iterator[Instance]:
    with instance(tmp_path) as made:
        shutil.rmtree(made.root)
        unpack(SPOOLS / "2026-11-22.tar.xz", made.root.parent)
        made.root.chmod(0o711)
        made.queues(QUEUES)
        yield made


def test_it_is_taken_over(older: Instance, capfd: pytest.CaptureFixture[str]) -> None:
    """Messages of every kind, in their order; a queue made at run time; a unit in doubt; groups.
    What was put on C had a day, by the rule of then, so it has expired whenever this test runs."""
    older.start(WRITER, MANAGER)
    with older.connect() as c:
        urgent = [row for row in c.browse("A") if row.priority == 9]
        assert [row.properties["n"] for row in urgent] == ["9", "19", "29"]
        assert {row.body for row in c.browse("A")} == {
            *(b"a%d" % n * 50 for n in range(30)), b"both", b"behind the checkpoint"}
        rows = {row.body: row for row in c.browse("B")}
        assert rows.keys() == {b"both", b"later", b"L" * 300_000, b"g1", b"g2", b"g3"}
        assert (rows[b"both"].message_id, rows[b"both"].correlation) == ("given-id", "corr")
        assert rows[b"later"].state.name == "DEFERRED"
        assert [row.body for row in c.browse("RUNTIME")] == [b"run time"]
        assert c.queues.show("RUNTIME").keys["max_depth"] == "7"
        (doubt,) = c.units_in_doubt()
        assert (doubt.name, doubt.puts, doubt.queues) == ("old-unit", 1, {"C": (0, 1)})
        c.commit_unit("old-unit")
        late: set[bytes] = set()
        with c.reader("LATE") as reader:
            while not {b"with a time", b"in doubt"} <= late:
                (message,) = reader.next(timeout_s=WAIT_S)
                late.add(message.body)
                message.done()
        with c.group_reader("B") as reader:
            group = reader.next(timeout_s=WAIT_S)
            assert group is not None and group.body == b"g1g2g3"
            group.done()
    assert launch.run("omqcheck", ["--spool", str(older.root)]) == 0, capfd.readouterr().out
    older.stop(WRITER, MANAGER)
    older.start(WRITER, MANAGER)  # and what this one left is its own
    assert len(older.drain("A")) == 32
