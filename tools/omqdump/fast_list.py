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
from omq.core.item_refs import brief, place
from omq.format.index import EntryState
from omq.format.pool import RecordFlag
from omqdump import render

_STATES: Final = {int(state): f"{state.name.lower():<8}" for state in EntryState}
_ACTIVE: Final = int(EntryState.ACTIVE)
_CONTAINER: Final = int(RecordFlag.CONTAINER)
_KEPT: Final = "ny"  # by RecordFlag.PERSISTENT
assert int(RecordFlag.PERSISTENT) == 1
_SECONDS_KEPT: Final = 100_000


_ENTRY: Final = ("e_priority", "e_state", "e_attempts", "e_submitted")
_MESSAGE: Final = ("m_qpool", "m_flags", "m_size", "m_location", "m_offset", "m_length")


def table_lines(view: IndexView, queues: Iterable[int]) -> Iterator[str]:
    """l as a table, of the queues with these numbers."""
    yield render.ENTRY_TITLE
    times = _Times()
    files = _Files()
    for queue in queues:
        for columns in view.columns(queue, _ENTRY, _MESSAGE):
            yield from _chunk(view, columns, times, files)


class _Files(dict[int, str]):
    """Brief names of files by location word, up to the offset."""

    def __missing__(self, word: int) -> str:
        shown = self[word] = brief(place(word, 0))[:-1]
        return shown


class _Times(dict[int, str]):
    """Seconds since 1970 as listings show them, padded."""

    def __missing__(self, second: int) -> str:
        if len(self) > _SECONDS_KEPT:
            self.clear()
        shown = self[second] = f"{seed_time(second * NS_PER_S):<17}"
        return shown


def _chunk(view: IndexView, columns: list[list[int]], times: _Times, files: _Files) -> list[str]:
    priorities, states, attempts, submitted, qpools, flags, sizes, words, offsets, lengths = columns
    refs = [f"{files[word]}{offset}" for word, offset in zip(words, offsets, strict=True)]
    for at, flag in enumerate(flags):
        if flag & _CONTAINER:
            refs[at] = brief(view.item_ref(words[at], offsets[at], lengths[at], flag))
    failed = [attempt - (attempt > 0 and state == _ACTIVE)
              for attempt, state in zip(attempts, states, strict=True)]
    return [f"{qpool:<9} {priority:<3} {_STATES[state]} {_KEPT[flag & 1]} {fails:<4} {size:<8} "
            f"{times[second // NS_PER_S]} {ref}"
            for qpool, priority, state, flag, fails, size, second, ref in zip(
                qpools, priorities, states, flags, failed, sizes, submitted, refs, strict=True)]


def json_lines(view: IndexView, raws: Iterable[RawEntry]) -> Iterator[str]:
    """l as JSON lines."""
    names = view.queue_names()
    for raw in raws:
        yield json.dumps(render.entry_record(view.entry_of(raw, names)))
