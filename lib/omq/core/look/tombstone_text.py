"""The head of a tombstone: cause, stack, last requests, counters; the dump of the memory follows.

A dying manager writes it of itself (services.manager.tombstone); omqdump writes it of a segment
that a killed one left, as far as a segment tells. Lines without line ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from omq.base.clock import iso_time


def head_lines(when: str, cause: str, stack: str, requests: Iterable[str],
               counters: Mapping[str, int]) -> Iterator[str]:
    """See the module. `when`: the first line."""
    yield when
    yield f"Cause: {cause}"
    yield "Stack:"
    yield stack
    yield "Last requests (newest first):"
    yield from (f"  {line}" for line in requests)
    yield "Counters:"
    yield from (f"  {name} = {value}" for name, value in counters.items())


def left_over_lines(pid: int, heartbeat_ns: int, counters: Mapping[str, int]) -> Iterator[str]:
    """Of the segment of a manager that wrote no tombstone."""
    last = iso_time(heartbeat_ns) if heartbeat_ns else "never"
    yield from head_lines(
        f"Queue Manager, pid {pid}, is gone and left this segment; its last sign: {last}",
        "not known to a segment: it was killed, or its tombstone (logs/qmgr.tomb) says",
        "(not in a segment)",
        ["(not in a segment; 'Last Request at' of the readers below)"], counters)
    yield ""
