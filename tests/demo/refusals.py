"""Why mail does not get through: the deliveries that the instance's event log says were refused.

The log is read on from where the last look ended; a line that is not yet whole is read next time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from omq.base import events
from omq.cli.look.event_lines import Logged, parse

_REFUSED: Final = frozenset(event.number for event in (
    events.GATEWAY_DEFERRED, events.GATEWAY_NO_PEER, events.LOCAL_FAILED))
_REASONS: Final = ("answer", "reason")  # the fields that say why


class Refusals:
    """The refused deliveries of one instance so far."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._read = 0
        self._rest = b""
        self._count = 0
        self._last: Logged | None = None

    def tell(self) -> str:
        """How many there were and the reason of the last; empty when there was none."""
        self._look()
        if self._last is None:
            return ""
        fields = self._last.fields
        why = next((str(fields[name]) for name in _REASONS if name in fields), self._last.text)
        return f"{self._count} deliveries refused for now, the last by {self._last.service}: {why}"

    def _look(self) -> None:
        if not self._log.is_file():
            return
        with self._log.open("rb") as log:
            log.seek(self._read)
            data = log.read()
        self._read += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for event in filter(None, map(parse, lines)):
            if event.event in _REFUSED:
                self._count += 1
                self._last = event
