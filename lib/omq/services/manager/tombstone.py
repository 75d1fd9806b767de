"""The tombstone: what a dying queue.manager says of itself, in logs/qmgr.tomb.

One that a fatal signal ends (SIGABRT of the watchdog or an operator, SIGSEGV) can say nothing but
its stack (services.daemon.last_words): the next one writes the tombstone for it, from that stack
and the segment that it left, before it removes that. kill -9 leaves none, as in the original.

Cause, stack, last requests and counters (core.look.tombstone_text), then the text dump of the
memory as omqdump's `t` `q` writes it, cut at DUMP_LINES_MAX. It is a side file (base.side_files):
the disk may be what killed the manager. The tables may be half changed; what the dump cannot say of
them stands at its end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from omq.base import clock, side_files
from omq.base.names import escape
from omq.base.paths import SpoolPaths
from omq.core.index.tables import Tables
from omq.core.index.view import IndexView
from omq.core.look.text_dump import memory_lines
from omq.core.look.tombstone_text import head_lines
from omq.format.index import Counter
from omq.ipc.server.recent_requests import RecentRequests

DUMP_LINES_MAX: Final = 200_000
"""About 10,000 messages: more would keep the next manager waiting, and nobody reads it."""


_STACK_BYTES: Final = 1 << 18


def write_tombstone(paths: SpoolPaths, tables: Tables, cause: str, stack: str,
                    recent: RecentRequests, sample_period_s: int) -> None:
    """Write it as far as the system allows; the process ends in any case."""
    counters = {counter.name.lower(): tables.counters[counter] for counter in Counter}
    lines = list(head_lines(
        f"Queue Manager died at {clock.iso_time(clock.wall_ns())}, pid {os.getpid()}", cause, stack,
        recent.lines(_clients(tables)), counters))
    first = ("\n".join(lines) + "\n\n").encode()  # what cannot fail
    side_files.attempt(paths.tombstone, lambda: _write(paths, first, tables, sample_period_s))


def write_of_predecessor(paths: SpoolPaths, stack_file: Path, sample_period_s: int) -> None:
    """Of the manager whose stack this is, before its segment goes; without a segment, what is
    known."""
    pid, counters, lines = 0, dict[str, int](), list[str]()
    raw, there = side_files.read(stack_file, _STACK_BYTES), side_files.seen(stack_file)
    stack = "(it cannot be read)" if raw is None else raw.decode("utf-8", "backslashreplace")
    died_ns = clock.wall_ns() if there is None else there.st_mtime_ns
    try:
        with IndexView.attach(paths) as view:
            pid = view.header.pid if view.header is not None else 0
            counters = view.counters()
            lines = list(islice(memory_lines(view, clock.wall_ns(), sample_period_s),
                                DUMP_LINES_MAX))
    except Exception as error:  # whatever it left: the stack must not be hidden, nor a start end
        lines.append(f"(the dump ends here: {error!r})")
    text = "\n".join((*head_lines(
        f"Queue Manager died at {clock.iso_time(died_ns)}, pid {pid}",
        f"a fatal signal: {escape(stack.partition(chr(10))[0])}", stack,
        ["(not in the segment that it left; 'Last Request at' of the readers below)"], counters),
        "", *lines, "")).encode()
    side_files.attempt(paths.tombstone, lambda: _write_all(paths, text))


def _write_all(paths: SpoolPaths, text: bytes) -> None:
    handle = side_files.calls.open(
        str(paths.tombstone), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW)
    try:
        side_files.write_all(handle, text)
    finally:
        os.close(handle)


def _write(paths: SpoolPaths, first: bytes, tables: Tables, sample_period_s: int) -> None:
    handle = side_files.calls.open(
        str(paths.tombstone), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW)
    try:
        side_files.write_all(handle, first)
        side_files.write_all(handle, ("\n".join(_dump(paths, tables, sample_period_s)) + "\n")
                             .encode())
    finally:
        os.close(handle)


def _clients(tables: Tables) -> dict[int, str]:
    """Who the clients are, from their rows."""
    rows = range(min(tables.counters[Counter.READERS_HIGH], tables.layout.readers))
    return {tables.r_client[row]: f"{escape(tables.reader_name(row))} (pid {tables.r_pid[row]})"
            for row in rows if tables.r_client[row]}


def _dump(paths: SpoolPaths, tables: Tables, sample_period_s: int) -> Iterator[str]:
    """The dump, as far as the tables allow it; what went wrong is its last line."""
    try:
        view = IndexView.of(tables, paths)
        lines = memory_lines(view, clock.wall_ns(), sample_period_s)
        yield from islice(lines, DUMP_LINES_MAX)
        if next(lines, None) is not None:
            yield f"(cut here: {DUMP_LINES_MAX} lines)"
        view.close()
    except Exception as error:  # whatever the tables are in: the cause above must not be hidden
        yield f"(the dump ends here: {error!r})"
