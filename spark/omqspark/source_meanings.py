"""What each column of the data source's tables means, and in which unit; meanings.py has those of
OUT. Numbers of frames, flags and reasons come from the format's own tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final

from omq.format.frame_rules import Reason
from omq.format.journal import FrameFlag, FrameType


@dataclass(frozen=True)
class Meaning:
    """A table: what a row of it is, and what its columns are, besides those of EVERYWHERE."""

    row: str
    columns: Mapping[str, str]


def _numbered(kinds: Iterable[IntEnum | IntFlag]) -> str:
    return ", ".join(f"{int(kind)} {kind.name}" for kind in kinds)


SOURCE: Final[dict[str, Meaning]] = {
    "events": Meaning("a frame of the journal, as FORMATS describes it; also `bronze`", {
        "lsn": "log sequence number: the order of everything",
        "time_ns": "wall clock, ns",
        "ts": "the same in microseconds",
        "type": f"FrameType: {_numbered(FrameType)}",
        "flags": f"bits: {_numbered(FrameFlag)}",
        "queue": "number of the queue; its name is in `dict`",
        "priority": "0 to 9, 9 first",
        "attempt": "failed attempts; in GIVE with this one",
        "qpool": "QPoolId: which message; 0 = none",
        "size": "bytes of the body",
        "client": "client id in its epoch",
        "pid": "process of the client",
        "uid": "user of that process",
        "lease": "LSN of the GIVE that is answered; PUT: hash of a given message id",
        "token": "hash, the 64 bits as a signed number",
        "sequence": "number of the client's request",
        "correlation": "hash of the correlation id, the 64 bits as a signed number",
        "argument": "DEFER: until, ns",
        "unit": "LSN of the first frame of its unit of work; 0 = alone",
        "reason": f"of frames that have one: {_numbered(Reason)}",
        "target": "POISON: queue that it went to",
        "length": "bytes of the payload",
        "onto": "queues that a PUT or MOVE names in its payload; null = none",
        "onto_priority": "priority on each of them",
        "until_s": "not handed out there before, unix seconds; 0 = at once",
        "group_id": "PUT: group of the message, as programs see it; null = none",
        "group_sequence": "number in the group, 0 = none; null = no group",
        "group_last": "whether it is the last of its group; null = no group",
    }),
    "blocks": Meaning("a sealed block of frames in an archive file", {
        "block": "its number in the file",
        "count": "frames in it",
        "first_lsn": "lowest LSN in it",
        "last_lsn": "highest LSN in it",
        "time_min_ns": "earliest time in it, ns",
        "time_max_ns": "latest time in it, ns",
        "follows_lsn": "last LSN before the file",
    }),
    "dict": Meaning("a name or a text that a frame carries; also `names`", {
        "kind": "queue, reader, program, or text: reason, evidence or order of the frame `lsn`",
        "key": "queue: its number; reader, program: client id; text: FrameType",
        "lsn": "of the frame that says so",
        "text": "the name or text",
    }),
}
