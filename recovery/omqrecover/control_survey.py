"""poolctrl and the double-write file: where the last checkpoint stands, and whether it is ours.

Errors: DiskError.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from omq.base.paths import SpoolPaths
from omq.core.judge.cases import Case
from omq.core.judge.finding import Found
from omq.format.findings import Finding, Kind
from omq.format.poolctrl import SLOT_BYTES, PoolControl, decode
from omq.storage.files import open_file, read_salvaged
from omq.storage.pool import DOUBLE_WRITE
from omq.storage.poolctrl import NAME
from omqtools.omqrecover.pending_pool import PendingPool

_PAGE: Final = 4096


@dataclass(slots=True)
class ControlState:
    """The newest valid slot of this instance; None when there is none."""

    control: PoolControl | None = None
    slots: list[dict[str, Any]] = field(default_factory=list)
    written: bool = False  # was there ever a checkpoint?


def read_control(paths: SpoolPaths, uuid: bytes) -> ControlState:
    """Both slots. What is wrong with them, core.judge says."""
    state = ControlState()
    try:
        file = open_file(paths.msgpool / NAME)
    except FileNotFoundError:
        return state
    try:
        data = read_salvaged(file, 2 * SLOT_BYTES, 0, _PAGE)
    finally:
        file.close()
    for slot in (0, 1):
        _slot(slot, data[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES], uuid, state)
    return state


def _slot(slot: int, data: bytes, uuid: bytes, state: ControlState) -> None:
    found = decode(data)
    line: dict[str, Any] = {"part": "poolctrl", "name": f"slot {slot}"}
    if isinstance(found, PoolControl):
        state.written = True
        line |= {"state": "valid", "generation": found.generation, "lsn": found.lsn,
                 "queues": len(found.queues), "clients": len(found.clients)}
        if found.uuid != uuid:
            line["state"] = "foreign"
        elif state.control is None or found.generation > state.control.generation:
            state.control = found
    elif found.kind is Kind.END:
        line["state"] = "never written"
    else:
        state.written = True
        line |= {"state": "damaged", "reason": found.reason}
    state.slots.append(line)


def read_double_write(pool: PendingPool) -> list[Found]:
    """What the double-write file means for the next start."""
    found = pool.double_write
    name = f"msgpool/{DOUBLE_WRITE}"
    if not isinstance(found, Finding):
        return [Found(Case.DOUBLE_WRITE_CUT, name, f"{pool.pending} records to write again")]
    cases = {Kind.FOREIGN: Case.DOUBLE_WRITE_FOREIGN, Kind.CORRUPT: Case.DOUBLE_WRITE_FOREIGN,
             Kind.NEWER: Case.NEWER}
    case = cases.get(found.kind)
    return [Found(case, name, found.reason)] if case else []
