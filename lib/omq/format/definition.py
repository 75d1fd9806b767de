"""What a queue is that was made at run time: one line of JSON, in frames (DEFINE) and in poolctrl.

    {"kind": "local", "name": "ORDERS.2", "max_depth": "1000"}

`kind` is a Kind, every other key one of queues.conf or of the kind, with its value as text, as an
author would write it there. A line is the whole definition: the last one of a name counts, so a
frame that is redone a second time changes nothing. A Definition does not know what its values mean:
core.engine.queues judges them, when it is made.

Errors: none; what is not a definition is None, or has the name "".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b
from typing import Final

from omq.base import limits

LINE_BYTES_MAX: Final = 2048
_NAME: Final = re.compile(r"[A-Z0-9_.]+")


class Kind(Enum):
    """What a queue can be."""

    LOCAL = "local"  # holds messages
    ALIAS = "alias"  # another name of one queue, or of several
    MODEL = "model"  # what queues are like that are made of it
    TEMPORARY = "temporary"  # made of a model; gone with the connection that made it
    REMOTE = "remote"  # a queue of another queue manager
    TRANSMISSION = "transmission"  # holds messages on their way there
    PAUSE = "pause"  # no queue: a key of one that is paused (core.engine.key_pauses)


HOLDING: Final = frozenset({Kind.LOCAL, Kind.TEMPORARY, Kind.TRANSMISSION})
"""Those that hold messages: they have a number."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One queue; `keys` in the words of queues.conf."""

    name: str
    kind: Kind
    keys: Mapping[str, str] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """It holds messages."""
        return self.kind in HOLDING

    def line(self) -> str:
        """As frames and poolctrl have it."""
        return json.dumps({**dict(sorted(self.keys.items())), "kind": self.kind.value,
                           "name": self.name}, ensure_ascii=True)

    def words(self, key: str) -> tuple[str, ...]:
        """The value of a key that is a list."""
        return tuple(self.keys.get(key, "").split())


def pause_line(queue: str, key: str) -> Definition:
    """What is written down of a key of a queue that is paused."""
    digest = blake2b(f"{queue}\0{key}".encode(), digest_size=5).hexdigest().upper()
    return Definition(f"PAUSE.{digest}", Kind.PAUSE, {"queue": queue, "key": key})


def read_line(line: str) -> Definition | None:
    """The definition in a line; None: it is none."""
    try:
        told = json.loads(line) if len(line) <= LINE_BYTES_MAX else None
    except ValueError:
        return None
    if not isinstance(told, dict) or not all(isinstance(value, str) for value in told.values()):
        return None
    name, kind = told.pop("name", ""), told.pop("kind", "")
    if kind not in {each.value for each in Kind} or not _is_name(name):
        return None
    return Definition(name, Kind(kind), told)


def name_in(line: str) -> str:
    """Whose definition it is, also of a kind that only a newer omq knows; "": it is none."""
    try:
        told = json.loads(line)
    except ValueError:
        return ""
    name = told.get("name") if isinstance(told, dict) else None
    return name if isinstance(name, str) and _is_name(name) else ""


def _is_name(text: str) -> bool:
    return 0 < len(text) <= limits.QUEUE_NAME_BYTES and _NAME.fullmatch(text) is not None
