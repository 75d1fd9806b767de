"""What an option works with: the facts, the answers, the output, and what the session has open."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, TextIO

from omq.services.daemon.options import Location
from omqtools.omqdump.handles import Handles, Opened
from omqtools.omqdump.prompts import Prompts
from omqtools.omqdump.sources import Sources

_CHUNK_LINES: Final = 2048


@dataclass(frozen=True, slots=True)
class Orders:
    """What the command line says of all changes of the session."""

    reason: str = ""
    yes: bool = False
    command: str = "omqdump"


@dataclass(frozen=True, slots=True)
class Desk:
    """See the module."""

    sources: Sources
    answers: Prompts
    out: TextIO
    location: Location
    json: bool = False  # one JSON object a line instead of tables
    orders: Orders = field(default_factory=Orders)
    handles: Handles = field(default_factory=Handles)
    note: Callable[[str], None] = print

    def print(self, lines: Iterable[str]) -> None:
        """Lines of any number, in few writes."""
        remaining = iter(lines)
        while chunk := list(islice(remaining, _CHUNK_LINES)):
            chunk.append("")
            self.out.write("\n".join(chunk))

    def record(self, record: Mapping[str, Any]) -> None:
        self.out.write(json.dumps(record) + "\n")

    def opened(self) -> Opened:
        """The message whose handle is asked for; the last one by default."""
        handles = self.handles
        return handles.get(self.answers.number(f"Msg Handle ({handles.last}):", handles.last))

    def queue(self, prompt: str = "Queue Name:") -> str:
        return self.answers.ask(prompt).upper()
