"""What a changing command is about to do: the change, its items, and the plan file of --dry-run.

A plan is a text file: a JSON object that says the change, then one a message. Each message carries
the LSN of the last frame that changed it; when the plan is applied, what has changed since is
refused by the queue manager, never carried out on something else.

    {"plan": 1, "action": "move", "targets": ["ERROR"], ..., "uuid": "...", "lsn": 1234}
    {"qpool_id": 956, "queue": "LOCAL", "lsn": 1200, "state": "ready", "size": 512}

Errors: PlanUnusable (not a plan, a newer one, another instance's), InputUnreadable.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from omq.base.clock import iso_time, wall_ns
from omq.base.errors import InputUnreadable, PlanUnusable
from omq.base.names import escape
from omq.core.index.rows import EntryRow

VERSION: Final = 1
Target = tuple[int, str, int]  # QPoolId, queue, LSN when it was looked at


class Doing(StrEnum):
    """What is done to messages. All but COPY are one order of the queue manager."""

    HOLD = "hold"
    RELEASE = "release"
    MOVE = "move"
    DELETE = "delete"
    RESTORE = "restore"
    COPY = "copy"


@dataclass(frozen=True, slots=True)
class Change:
    """One change, whatever it is done to."""

    doing: Doing
    targets: tuple[str, ...] = ()  # of MOVE and COPY; a MOVE without: back to the queue of origin
    priority: int | None = None
    keep_s: float | None = None  # of DELETE: how long it can be undone; None: operator_undo_s
    force: bool = False  # also what a reader has in its hands

    def text(self) -> str:
        """`move to ERROR`."""
        if self.doing is Doing.RESTORE and self.targets:
            return f"put on {', '.join(self.targets)}"
        return f"{self.doing}{' to ' + ', '.join(self.targets) if self.targets else ''}"


def counted(count: int) -> str:
    """`1 message`, `12 messages`."""
    return f"{count} message{'' if count == 1 else 's'}"


def target(row: EntryRow) -> Target:
    return row.message.qpool, row.queue, row.message.lsn


def plan_lines(change: Change, rows: Iterable[EntryRow], uuid: bytes, lsn: int) -> Iterator[str]:
    """The plan, line by line; memory does not depend on the number of messages."""
    yield json.dumps({
        "plan": VERSION, "action": change.doing.value, "targets": list(change.targets),
        "priority": change.priority, "keep_s": change.keep_s, "force": change.force,
        "uuid": uuid.hex(), "lsn": lsn, "made": iso_time(wall_ns())})
    for row in rows:
        yield json.dumps({
            "qpool_id": row.message.qpool, "queue": row.queue, "lsn": row.message.lsn,
            "state": row.state.name.lower(), "priority": row.priority, "size": row.message.size})


def read_plan(path: Path, uuid: bytes) -> tuple[Change, list[Target]]:
    """A plan of this instance."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputUnreadable(file=escape(str(path)), reason=error.strerror) from error
    lines = text.splitlines()
    try:
        head: dict[str, Any] = json.loads(lines[0])
        version, owner = int(head["plan"]), str(head["uuid"])
        change = Change(
            Doing(head["action"]), tuple(map(str, head["targets"])),
            None if head["priority"] is None else int(head["priority"]),
            None if head["keep_s"] is None else float(head["keep_s"]),
            bool(head["force"]))
        items = [_item(json.loads(line)) for line in lines[1:]]
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise PlanUnusable(file=escape(str(path)), reason=f"it is not a plan: {escape(str(error))}"
                           ) from error
    if version != VERSION:
        raise PlanUnusable(file=escape(str(path)), reason=f"it has version {version}")
    if owner != uuid.hex():
        raise PlanUnusable(file=escape(str(path)), reason="it was made for another instance")
    return change, items


def _item(record: dict[str, Any]) -> Target:
    lsn = int(record["lsn"])
    if lsn <= 0:
        raise ValueError("a message without its LSN")
    return int(record["qpool_id"]), str(record["queue"]), lsn
