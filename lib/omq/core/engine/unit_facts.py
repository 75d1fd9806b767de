"""What is known of a unit of work in doubt: the body of the message that stands for it, JSON.

    {"name": given by its program, "program": of the client, "uid", "pid", "gets": entries, "puts"}

Damage: a body that cannot be read, or says what cannot be, gives facts of nobody (`uid` None).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from omq.format import message as message_format


@dataclass(frozen=True, slots=True)
class Facts:
    """See the module."""

    name: str = ""
    program: str = ""
    uid: int | None = None
    pid: int = 0
    gets: int = 0
    puts: int = 0

    def encode(self) -> bytes:
        """The body."""
        return json.dumps(asdict(self), sort_keys=True).encode()


def read_facts(body: bytes) -> Facts:
    """The facts in a body; those of nobody when it is none."""
    try:
        said = json.loads(body)
        found = Facts(**said)
    except (ValueError, TypeError, RecursionError):
        return Facts()
    numbers = (found.uid, found.pid, found.gets, found.puts)
    if (all(type(number) is int and number >= 0 for number in numbers)
            and type(found.name) is str and type(found.program) is str):
        return found
    return Facts()


def payload_of(facts: Facts) -> bytes:
    """Of the message that stands for a unit."""
    return message_format.encode(message_format.Descriptor(), (), b"", facts.encode())


@dataclass(slots=True)
class UnitInDoubt:
    """One of them. `own`: the entry of its message, -1: that is lost, and with it the facts."""

    number: int
    qpool: int  # of its message: its id; 0: lost
    facts: Facts
    since_ns: int
    own: int = -1
    entries: list[int] = field(default_factory=list)  # what it took and put

    @property
    def lost(self) -> bool:
        """Nobody knows whose it is."""
        return self.facts.uid is None
