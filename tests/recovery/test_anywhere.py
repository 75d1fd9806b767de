"""Damage at any place of any file: a scan always ends with a verdict, and behind the repair that it
asks for the recovery of a start goes through and loses nothing but what the scan said."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from omq.core.load.recovery import recover
from omq.format.pool import RECORD_BYTES
from omq.storage.pool import PoolFiles
from tests.recovery.conftest import Dead
from tests.recovery.spool import SMALL, run, scan
from tests.unit.core.redo_world import found

FOLDERS = ("msgpool", "journal", "archive", "store")


def damage(root: Path, chance: random.Random) -> str:
    """Flip a bit, or zero, scramble or cut; what was done."""
    files = [path for folder in FOLDERS for path in sorted((root / folder).iterdir())
             if path.is_file() and path.name != "lock"]
    path = chance.choice(files)
    data = bytearray(path.read_bytes())
    end = len(data.rstrip(b"\0")) or 1
    at = chance.randrange(end)
    kind = chance.choice(("flip", "zero", "scramble", "cut", "remove"))
    if kind == "flip":
        data[at] ^= 1 << chance.randrange(8)
    elif kind == "zero":
        at = at // RECORD_BYTES * RECORD_BYTES
        data[at : at + RECORD_BYTES] = bytes(len(data[at : at + RECORD_BYTES]))
    elif kind == "scramble":
        length = min(chance.randrange(1, 5_000), len(data) - at)
        data[at : at + length] = chance.randbytes(length)
    elif kind == "cut":
        del data[at:]
    if kind == "remove":
        path.unlink()
    else:
        path.write_bytes(bytes(data))
    return f"{kind} {path.relative_to(root)} at {at}"


@pytest.mark.parametrize("seed", range(24))
def test_damage_anywhere(dead: Dead, seed: int) -> None:
    chance = random.Random(seed)
    done = [damage(dead.root, chance) for _ in range(1 + seed % 3)]
    code, findings = scan(dead.root)
    assert code in (0, 1, 65), done
    plan = dead.root.parent / "plan"
    run("plan", dead.root, "--save", plan)
    applied, _, err = run("apply", dead.root, plan, "--accept-loss")
    assert applied in (0, 65) and "Traceback" not in err, (done, err)
    pool = PoolFiles(dead.paths, dead.uuid)
    try:
        recover(dead.paths, SMALL, dead.uuid, pool, lambda _: None)
        messages = found(pool)
    finally:
        pool.close()
    # Damage in the very last block cannot be told from an append that was cut: nothing says more.
    torn = any(each["finding"] == "torn_tail" for each in findings)
    if code != 65 and applied == 0 and not torn:
        assert messages.keys() == dead.known.keys(), (done, findings)

