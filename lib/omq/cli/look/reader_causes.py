"""What the readers of a queue do that keeps its messages from moving.

Evidence: the state of each reader's process (proc(5): T stopped by a signal, D in the kernel, S
asleep), when it asked last and what it holds (the index), its selector tested on what is ready.
A reader is one of: stopped; silent, with a message for long; one whose selector chooses nothing;
busy; one that waits and is handed nothing; one that does not ask. The first three are causes by
themselves; the others only where no able reader is left.

Invariant: LOOKED_MAX payloads are read for a selector at most; where more would be needed, the
cause is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from omq.base import clock
from omq.base.amounts import counted, duration
from omq.base.clock import NS_PER_S
from omq.base.errors import OmqError
from omq.base.names import escape
from omq.cli.look.cause import Cause, Severity
from omq.core.index.rows import QueueRow, ReaderRow
from omq.core.look.first_chosen import Verdict, first_chosen
from omq.core.look.look import Look
from omq.format.index import EntryState
from omq.services.daemon.options import Location

SILENT_S: Final = 60
"""A reader with a message that has asked for nothing for so long may hang; it may also work."""
SETTLED_S: Final = 2
"""What came or was asked for a moment ago is on its way."""
LOOKED_MAX: Final = 500
_STATES: Final = {"D": "waits in the kernel, for a disk or a network file system (D)",
                  "S": "sleeps (S)", "R": "runs (R)", "Z": "has ended (Z)"}
_SHOWN: Final = 80


def of_readers(location: Location, seen: Look, row: QueueRow, readers: list[ReaderRow],
               now_ns: int) -> Iterator[Cause]:
    """See the module; for a queue with messages that are ready or active."""
    able = []
    for reader in readers:
        found = _of_one(row, reader, now_ns)
        if found is None:
            able.append(reader)
        else:
            yield found
    if not row.ready:
        return
    told: dict[tuple[str, bool], Verdict] = {}
    left = []
    for reader in able:
        found = _of_selector(location, seen, row, reader, now_ns, told)
        if found is None:
            left.append(reader)
        else:
            yield found
    yield from _of_able(seen, row, left, now_ns)


def _runs(reader: ReaderRow) -> str:
    """The state of its process; empty: it is not there any more, or another one has its pid."""
    if reader.started and clock.process_start_ticks(reader.pid) != reader.started:
        return ""
    return clock.process_state(reader.pid)


def _of_one(row: QueueRow, reader: ReaderRow, now_ns: int) -> Cause | None:
    state = _runs(reader)
    who = f"reader {reader.name} (pid {reader.pid})"
    has = f" with {counted(reader.active, 'message')} in its hands" if reader.active else ""
    back = (f"omfreeq {row.name} -p {reader.pid} takes back what it holds",) if (
        reader.active) else ()
    if state in clock.STOPPED:
        return Cause("reader_stopped", f"{who} is stopped by a signal (process state {state}){has}",
                     (f"kill -CONT {reader.pid} lets it go on", *back), queue=row.name)
    silent_s = (now_ns - max(reader.request_ns, reader.response_ns)) / NS_PER_S
    if reader.active and silent_s > SILENT_S:
        what = _STATES.get(state, "is not seen from here")
        return Cause(
            "reader_silent", f"{who} has been silent for {duration(silent_s)}{has}; its process "
            f"{what}: it is busy for long, or hangs",
            (*back, f"omshowlog -P -i {reader.pid} shows what it logged"), queue=row.name)
    return None


def _of_selector(location: Location, seen: Look, row: QueueRow, reader: ReaderRow, now_ns: int,
                 told: dict[tuple[str, bool], Verdict]) -> Cause | None:
    """Its selector chooses none of what is ready: known, not guessed."""
    if not reader.selector or reader.active:
        return None
    key = reader.selector, reader.selector_whole
    if key not in told:
        told[key] = _chosen(location, seen, row, reader, now_ns)
    verdict = told[key]
    if verdict is not Verdict.NONE:
        return None
    return Cause(
        "selector", f"the selector of reader {reader.name} (pid {reader.pid}) matches none of the "
        f"{counted(row.ready, 'ready message')}: {escape(reader.selector, _SHOWN)}",
        (f"omqdump -e 'l {row.name}' lists what waits; the program needs another selector, or a "
         "second reader without one",), queue=row.name)


def _chosen(location: Location, seen: Look, row: QueueRow, reader: ReaderRow, now_ns: int
            ) -> Verdict:
    if not reader.selector_whole:
        return Verdict.UNKNOWN
    try:
        return first_chosen(seen.view, location.paths, row, reader.selector, now_ns, LOOKED_MAX)
    except (OmqError, RecursionError):  # no selector at all, or payloads that are not for us
        return Verdict.UNKNOWN


def _of_able(seen: Look, row: QueueRow, readers: list[ReaderRow], now_ns: int) -> Iterator[Cause]:
    """None of these is stopped, silent or too choosy."""
    if not readers:
        return
    busy = [reader for reader in readers if reader.active]
    if len(busy) == len(readers):
        since = [entry.until_ns for entry in seen.view.active() if entry.queue == row.name]
        oldest_s = (now_ns - min(since, default=now_ns)) / NS_PER_S
        slowest = min(busy, key=lambda reader: reader.request_ns)
        yield Cause(
            "readers_busy", f"all {len(busy)} readers have messages, the oldest for "
            f"{duration(oldest_s)}; {row.ready:,} wait",
            ("omqadvise shows whether more readers would help",
             f"omfreeq {row.name} -p {slowest.pid} releases the one that was silent longest"),
            Severity.NOTE, row.name)
        return
    oldest_ns = seen.view.oldest((EntryState.READY,)).get(row.number, now_ns)
    for reader in readers:
        quiet_s = (now_ns - max(reader.request_ns, oldest_ns)) / NS_PER_S
        if reader.active or reader.selector or quiet_s < SETTLED_S:
            return  # it takes the next one, or may
    first = readers[0]
    quiet_s = (now_ns - max(first.request_ns, oldest_ns)) / NS_PER_S
    who = f"reader {first.name} (pid {first.pid})"
    if first.waits:
        yield Cause(
            "waits_for_others", f"{who} has waited for {duration(quiet_s)} and is handed none of "
            f"the {counted(row.ready, 'ready message')}: it asks for certain ones, by their id, or "
            "for a whole group", (f"omqwhy ID says it of one message; omqdump -e 'l {row.name}' "
                                  "lists them",), queue=row.name)
    else:
        yield Cause(
            "reader_idle", f"{who} has not asked for a message for {duration(quiet_s)}: its "
                           "program does something else", (f"omshowlog -P -i {first.pid} shows "
                                                            "what it logged",),
            queue=row.name)
