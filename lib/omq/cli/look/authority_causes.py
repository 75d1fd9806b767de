"""Who was refused what by authority.conf a moment ago, from the end of the event log (OM 1215).

A queue that nobody may read looks like one that nobody reads. Only the last BYTES of the log are
looked at, and what is older than PERIOD_S is over.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from omq.base import events
from omq.base.amounts import duration
from omq.base.clock import NS_PER_S
from omq.base.paths import SpoolPaths
from omq.cli.look.cause import Cause
from omq.cli.look.event_lines import parse

BYTES: Final = 64 * 1024
PERIOD_S: Final = 600
_REFUSED: Final = re.compile(r"uid (\d+) has no authority to (\w+) on queue ([^;]{1,64});")


@dataclass(frozen=True, slots=True)
class Refused:
    """The last time that somebody was."""

    uid: int
    action: str
    time_ns: int


@dataclass(frozen=True, slots=True)
class Refusals:
    """By queue."""

    found: dict[str, dict[tuple[int, str], Refused]] = field(default_factory=dict)

    @property
    def queues(self) -> set[str]:
        """Where somebody was refused something."""
        return set(self.found)

    def of(self, queue: str, now_ns: int) -> Iterator[Cause]:
        """A cause for each user and action."""
        for each in self.found.get(queue, {}).values():
            who, ago_s = _name(each.uid), (now_ns - each.time_ns) / NS_PER_S
            yield Cause(
                "authority", f"user {who} may not {each.action} there: refused "
                f"{duration(ago_s)} ago, for authority.conf does not grant it",
                (f"if that is wrong: [{queue}] user:{who} = {each.action} in authority.conf, then "
                 "omq conf, and a reload of the queue manager (kill -HUP, systemctl reload)",),
                queue=queue)


def refused(paths: SpoolPaths, now_ns: int) -> Refusals:
    """See the module; nothing where the log cannot be read."""
    found: dict[str, dict[tuple[int, str], Refused]] = {}
    for line in _last_lines(paths):
        if b"has no authority to" not in line:
            continue
        event = parse(line)
        if event is None or event.event != events.REQUEST_REFUSED.number or (
                not 0 <= now_ns - event.time_ns <= PERIOD_S * NS_PER_S):
            continue
        match = _REFUSED.search(str(event.fields.get("reason", "")))
        if match is not None:
            uid, action, queue = int(match[1]), match[2], match[3]
            found.setdefault(queue, {})[uid, action] = Refused(uid, action, event.time_ns)
    return Refusals(found)


def _last_lines(paths: SpoolPaths) -> list[bytes]:
    with suppress(OSError), paths.event_log.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - BYTES))
        return file.read(BYTES).splitlines()
    return []


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
