"""The limit of open files of queue.manager: raised to what its clients need, or fewer clients.

    needed = 4 * clients_max + 2 * callers_max + its own   (ipc.server.admission)

The soft limit is raised as far as the hard one lets it (root may go beyond). What is then still
missing comes off clients_max, with an event: a manager that serves fewer is better than none, and
better than one that meets EMFILE where it opens its next journal file.

A unit of ours may not change its limits (SystemCallFilter=~@resources) nor, by the same call, ask
for them: `omq setup` writes what is needed into LimitNOFILE=, and /proc tells it.

Errors: TooFewDescriptors when there is no room for a single client.
"""

from __future__ import annotations

import contextlib
import re
import resource
from pathlib import Path
from typing import Final

from omq.base import events
from omq.base.errors import TooFewDescriptors
from omq.base.event_log import WARNING, EventLog
from omq.base.settings import Settings
from omq.ipc.server.admission import DESCRIPTORS_OF_A_CLIENT, descriptors_needed

LIMITS: Final = Path("/proc/self/limits")
_LINE: Final = re.compile(r"Max open files +(\w+) +(\w+)")


def raise_limit(settings: Settings, log: EventLog) -> int:
    """How many clients can be served: clients_max, or fewer."""
    needed = descriptors_needed(settings.clients_max, settings.callers_max)
    soft, hard = found()
    if _lacks(soft, needed):
        for limits in ((needed, max(hard, needed)), (min(needed, hard), hard)):
            with contextlib.suppress(ValueError, OSError):  # only root goes beyond `hard`
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
                break
        soft, _ = found()
    if not _lacks(soft, needed):
        return settings.clients_max
    clients = (soft - descriptors_needed(0, settings.callers_max)) // DESCRIPTORS_OF_A_CLIENT
    if clients < 1:
        raise TooFewDescriptors(found=soft, needed=descriptors_needed(1, settings.callers_max))
    log.event(events.CLIENTS_LOWERED, WARNING, clients_max=clients,
              configured=settings.clients_max, open_files=soft, needed=needed)
    return clients


def found() -> tuple[int, int]:
    """The soft and the hard limit of open files."""
    try:
        return resource.getrlimit(resource.RLIMIT_NOFILE)
    except OSError:
        line = _LINE.search(LIMITS.read_text(encoding="ascii"))
        if line is None:
            raise
        soft, hard = (resource.RLIM_INFINITY if word == "unlimited" else int(word)
                      for word in line.groups())
        return soft, hard


def _lacks(soft: int, needed: int) -> bool:
    return soft != resource.RLIM_INFINITY and soft < needed
