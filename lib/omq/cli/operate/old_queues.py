"""The old-style `queues/` directory as omqconv leaves it: NAME.qua and NAME.qub
(omq.format.old_queue), and next to them a flag file NAME.R6 of each queue that is through.

A flag file has a line for people, then one a message:

    {"item_ref": ITEM_REF, "queues": [NAME]}     it was put
    {"left": ITEM_REF, "why": REASON}            it was not, and waits for somebody

Errors: InputUnreadable.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from omq.base.errors import InputUnreadable, OmqError
from omq.base.names import escape
from omq.format.findings import Finding
from omq.format.old_queue import OldMessage, decode_header, decode_record
from omq.storage.files import read_file

FLAG: Final = ".R6"
_FILE_BYTES_MAX: Final = 64 << 20


@dataclass(slots=True)
class Old:
    """One old queue. `problems`: what of it cannot be read; `lost`: messages among that, 1 when
    neither of its files can be read."""

    name: str
    readable: bool = True
    lost: int = 0
    messages: list[OldMessage] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def names(folder: Path) -> list[str]:
    try:
        found = {path.stem for path in folder.iterdir() if path.suffix in (".qua", ".qub")}
    except OSError as error:
        raise InputUnreadable(file=escape(str(folder)), reason=error.strerror) from error
    return sorted(found)


def flag_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a flag file. One that a crash cut is left out."""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines()[1:]:
        with suppress(ValueError):
            record = json.loads(line)
            if isinstance(record, dict):
                yield record


def flagged(folder: Path, name: str) -> dict[str, list[str]] | None:
    """What a flag file says was put: item reference -> queues; None when there is none."""
    path = folder / (name + FLAG)
    if not path.exists():
        return None
    # A line cut by a crash is left out: the id of the message keeps it from being put twice.
    return {str(record["item_ref"]): [str(each) for each in record["queues"]]
            for record in flag_lines(path) if isinstance(record.get("queues"), list)
            and "item_ref" in record}


def read(folder: Path, name: str) -> Old:
    old = Old(name)
    copies = [_copy(folder / (name + suffix), old) for suffix in (".qua", ".qub")]
    if not any(data for data, _ in copies):
        old.readable, old.lost = False, 1
    for number in range(max(count for _, count in copies)):
        found = [decode_record(data, number) for data, count in copies if number < count]
        good = [each for each in found if not isinstance(each, Finding)]
        if not good:
            old.problems.append(f"record {number}: {found[0]}")
            old.lost += 1
        elif good[0] is not None:
            old.messages.append(good[0])
    return old


def _copy(path: Path, old: Old) -> tuple[bytes, int]:
    try:
        data = read_file(path, _FILE_BYTES_MAX)
    except (FileNotFoundError, OmqError) as error:
        old.problems.append(f"{path.name}: {escape(str(error))}")
        return b"", 0
    count = decode_header(data)
    if isinstance(count, Finding):
        old.problems.append(f"{path.name}: {count.reason}")
        return b"", 0
    return data, count


def waiting(folder: Path) -> frozenset[str]:
    """Item references of the messages that wait here: those that were left, and those of queues
    that nobody has converted yet. Nothing where there is no such directory."""
    found = set[str]()
    with suppress(InputUnreadable):
        for name in names(folder):
            path = folder / (name + FLAG)
            if path.exists():
                found |= {str(each["left"]) for each in flag_lines(path) if "left" in each}
            else:
                found |= {each.item_ref for each in read(folder, name).messages}
    return frozenset(found)
