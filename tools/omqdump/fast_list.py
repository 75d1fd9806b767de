"""Listings of any length: lines made from plain numbers, without a record for each message.

The lines are those of render.entry_table and render.entry_record, made about ten times as fast; a
test compares them. Seconds are turned into text once each.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Final

from omq.base.clock import NS_PER_S, seed_time
from omq.core.index_view import IndexView, RawEntry
from omq.core.item_refs import place
from omq.format.index import EntryState
from omq.format.pool import RecordFlag
from omqdump import render

_STATES: Final = {int(state): state.name.lower() for state in EntryState}
_ACTIVE: Final = int(EntryState.ACTIVE)
_CONTAINER: Final = int(RecordFlag.CONTAINER)
_PERSISTENT: Final = int(RecordFlag.PERSISTENT)
_SECONDS_KEPT: Final = 100_000


def table_lines(view: IndexView, raws: Iterable[RawEntry]) -> Iterator[str]:
    """l as a table."""
    yield render.ENTRY_TITLE
    times: dict[int, str] = {}
    files: dict[int, str] = {}
    for _, entry, _, message in raws:
        second = entry[6] // NS_PER_S
        shown = times.get(second)
        if shown is None:
            if len(times) > _SECONDS_KEPT:
                times.clear()
            shown = times[second] = seed_time(entry[6])
        state, attempts, flags = entry[1], entry[4], message[4]
        if state == _ACTIVE and attempts:
            attempts -= 1
        if flags & _CONTAINER:
            ref = view.item_ref(message)
        else:
            file = files.get(message[8])
            if file is None:
                file = files[message[8]] = place(message[8], 0)[:-1]
            ref = f"{file}{message[9]}"
        yield (f"{message[0]:<11} {entry[2]:<4} {_STATES[state]:<9} "
               f"{'y' if flags & _PERSISTENT else 'n':<5} {attempts:<7} {message[5]:<11} "
               f"{shown:<18} {ref}")


def json_lines(view: IndexView, raws: Iterable[RawEntry]) -> Iterator[str]:
    """l as JSON lines."""
    names = view.queue_names()
    for raw in raws:
        yield json.dumps(render.entry_record(view.entry_of(raw, names)))
