"""`poolctrl`: where the last checkpoint stands. Two slots, written in turn, synced.

Invariants: 1. `store` writes the slot that does not hold the newest checkpoint, so one slot is
whole at any instant; 2. it is called only when everything that the checkpoint says is durable; 3.
generations go up by one.

In the middle of a crash: the slot being written fails its CRC and the other one counts; redo then
starts from the older checkpoint and finds most of its work done. So one bad slot with a valid one
(or with one that was never written) is TORN, what a cut checkpoint leaves, and not damage; should
it have been the newest all the same, redo reports a GAP if anything that it needs is gone.

Errors: DiskError (latched), SpoolFull while the file is made for the first time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from omq.base.paths import SpoolPaths
from omq.format.findings import Finding, Kind
from omq.format.poolctrl import SLOT_BYTES, PoolControl, newest
from omq.storage.files import File, create_filled, open_file, read_salvaged

NAME: Final = "poolctrl"
_PAGE: Final = 4096  # unit of reading around bad places


def load(paths: SpoolPaths, *, settle: bool = False) -> tuple[PoolControl | None, list[Finding]]:
    """The newest checkpoint (None: there never was one) and what is wrong with the slots.

    `settle`: at a start, sync and drop the page cache first."""
    try:
        file = open_file(paths.msgpool / NAME, "poolctrl", write=settle)
    except FileNotFoundError:
        return None, []
    try:
        if settle:
            file.settle()
        control, findings = newest(read_salvaged(file, 2 * SLOT_BYTES, 0, _PAGE))
    finally:
        file.close()
    cut = control is not None or any(finding.kind is Kind.END for finding in findings)
    return control, [replace(finding, file=NAME, kind=Kind.TORN)
                     if cut and finding.kind is Kind.CORRUPT else replace(finding, file=NAME)
                     for finding in findings]


def store(paths: SpoolPaths, control: PoolControl) -> None:
    """Make a checkpoint count. `control.generation` is one more than the newest in the file."""
    file = _open(paths)
    try:
        file.write([control.encode()], control.generation % 2 * SLOT_BYTES)
        file.sync()
    finally:
        file.close()


def _open(paths: SpoolPaths) -> File:
    path = paths.msgpool / NAME
    try:
        return open_file(path, "poolctrl", write=True)
    except FileNotFoundError:
        return create_filled(path, 2 * SLOT_BYTES, "poolctrl")
