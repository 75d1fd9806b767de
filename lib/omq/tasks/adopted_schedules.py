"""Schedules of which a program says the whole list: those of Celery's beat, of dramatiq's actors.

Each has two properties: whose it is, under a name of the caller's, and ENTRY, a digest of what the
program said.

Invariants: 1. one that has not changed keeps its planned times; 2. only those that are marked as
the program's are taken out. Errors: those of Schedules.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from omq.tasks.schedule import Schedule
from omq.tasks.schedules import Schedules

ENTRY: Final = "omq.entry"


def marks(mark: str, application: str, said: str) -> dict[str, str]:
    """The two properties, of what the program has said of one schedule."""
    return {mark: application, ENTRY: hashlib.sha256(said.encode()).hexdigest()}


def adopt_all(schedules: Schedules, wanted: Iterable[Schedule], mark: str, application: str
              ) -> None:
    """Let those with the property `mark` = `application` be these."""
    new = {each.name: each for each in wanted}
    known = {each.name: each for each in schedules.list()
             if each.properties.get(mark) == application}
    for name, each in new.items():
        old = known.get(name)
        if old is None or old.properties.get(ENTRY) != each.properties[ENTRY]:
            schedules.define(name, each.queue, each.when, zone=each.zone, body=each.body,
                             properties=each.properties, priority=each.priority,
                             expiry_s=each.expiry_s, catch_up=each.catch_up, overlap=each.overlap)
    for name in known.keys() - new.keys():
        schedules.delete(name)
