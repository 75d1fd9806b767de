"""A unit of work of which a payload rots behind its acknowledgement goes as a whole: frames of one
unit have one number. A power cut does not show that: what it tears is condemned by its request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from unittest import mock

import pytest

from omq.core.engine import units
from omq.core.judge.cases import Case
from omq.format.journal import FrameType
from omq.storage.journal_scan import scan_file
from tests.crash.sim import mutants
from tests.crash.sim.absence import Files, mounted, snapshot
from tests.crash.sim.disk import SimDisk
from tests.crash.sim.life import (
    ROOT,
    SETTINGS,
    START_NS,
    A,
    B,
    Life,
    fixed,
    make_spool,
    recover_into,
)

SEED = 31


def rotted() -> Iterator[set[int]]:
    """Of a unit of three puts behind the checkpoint: which of them are served when a payload of one
    is damaged. Each of the three in turn."""
    with fixed(SEED):
        disk = SimDisk(record=False)
        make_spool(disk)
        life = Life(disk, SETTINGS)
        life.put(A)
        life.commit()
        life.checkpoint()
        first = life.unit([], [(B, 300)] * 3)
        life.commit()
        life.put(A)
        life.commit()  # whose block says that the unit is durable
        uuid = life.core.uuid
        disk.kill()
        files = snapshot(disk)
        mine = {first, first + 1, first + 2}
        for path, at in _payloads(files, uuid, mine):
            data = bytearray(files[path])
            data[at + 20] ^= 1
            found, _, _ = recover_into(mounted({**files, path: bytes(data)}, disk), SETTINGS,
                                       START_NS)
            assert Case.JOURNAL_BLOCK in {each.case for each in found.recovered.judged}
            yield mine & found.view.keys()


def _payloads(files: Files, uuid: bytes, qpools: set[int]) -> list[tuple[str, int]]:
    """Where the payload of each PUT of these messages lies."""
    out = []
    for path, data in files.items():
        if path.startswith(f"{ROOT}/journal/0"):
            number = int(path.rpartition("/")[2].removesuffix(".jnl"))
            for block in scan_file(data, number, uuid):
                for frame in block.frames:
                    if frame["type"] == FrameType.PUT and int(frame["qpool"]) in qpools:
                        out.append((path, block.payload_at + int(frame["offset"])))
    assert len(out) == len(qpools)
    return out


@pytest.mark.parametrize("planted", [False, True])
def test_a_unit_is_whole_or_gone(planted: bool) -> None:  # noqa: FBT001
    bug = mock.patch.object(units, "append", mutants._of_its_own) if planted else nullcontext()
    with bug:
        halved = [served for served in rotted() if served]
    assert bool(halved) is planted, halved
