"""What the index says of queues and readers: rows made of copies, the part of core.index.view that
has nothing to do with messages.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from omq.core.index.copies import IndexCopies
from omq.core.index.rows import Averages, QueueRow, ReaderRow, name_at
from omq.format.index import Counter, EntryState, QueueFlag, ReaderFlag

_QUEUE: Final = (
    "q_flags", "q_depth", "q_active", "q_ready", "q_deferred", "q_held", "q_ever", "q_processed",
    "q_hour", "q_last_hour", "q_hour_at", "q_sampled", "q_started", "q_max_depth", "q_max_length",
    "q_expired", "q_failed", "q_dead")
_LOAD: Final = ("q_load1", "q_load5", "q_load15")
_RATE: Final = ("q_rate1", "q_rate5", "q_rate15")
_READER: Final = (
    "r_flags", "r_queue", "r_pid", "r_uid", "r_client", "r_processed", "r_registered", "r_request",
    "r_response", "r_timeout", "r_started")
_STATES: Final = (EntryState.ACTIVE, EntryState.READY, EntryState.DEFERRED)
_READS: Final = ReaderFlag.IN_USE | ReaderFlag.READS


class QueuesAndReaders:
    """See the module."""

    def __init__(self, copies: IndexCopies) -> None:
        self._copies = copies

    def queues(self) -> list[QueueRow]:
        """All queues by name, the special ones last."""
        names = self._copies.queue_names()
        found = self._copies.rows(_QUEUE, np.arange(len(names)))
        rows = [self._queue(number, names[number], values) for number, values in enumerate(found)
                if values[0] & QueueFlag.IN_USE]
        return sorted(rows, key=lambda row: (row.special, row.name))

    def readers(self) -> list[ReaderRow]:
        """All registered readers by number; clients that only put are not listed."""
        high = self._copies.high(Counter.READERS_HIGH, self._copies.layout.readers)
        found = self._copies.rows(_READER, np.arange(high))
        held = self._copies.held()
        names = self._copies.queue_names()
        return [self._reader(number, values, names, held.get(number, []))
                for number, values in enumerate(found) if values[0] & _READS == _READS]

    def client(self, number: int) -> tuple[str, int] | None:
        """Name and pid of the client in a row, be it a reader or not; None: nobody is."""
        if not 0 <= number < self._copies.high(Counter.READERS_HIGH, self._copies.layout.readers):
            return None
        ((flags, pid),) = self._copies.rows(("r_flags", "r_pid"), np.array([number]))
        return (self._copies.reader_name(number), pid) if flags & ReaderFlag.IN_USE else None

    def _queue(self, number: int, name: str, values: tuple[int, ...]) -> QueueRow:
        (flags, depth, active, ready, deferred, held, ever, processed, hour, last_hour, hour_ns,
         sampled_ns, started_ns, max_depth, max_length, expired, failed, dead) = values
        ids: dict[int, int] = {}
        if flags & QueueFlag.PSEUDO:  # IDEL
            ids = self._copies.remembered(number)
            depth, active, ready, deferred = (max(0, count - of) for count, of in zip(
                (depth, active, ready, deferred),
                (sum(ids.values()), *(ids.get(int(state), 0) for state in _STATES)), strict=True))
        return QueueRow(
            number=number, name=name, messages=depth, active=active, ready=ready,
            deferred=deferred, held=held, ever=ever, processed=processed,
            load=self._averages(_LOAD, number), throughput=self._averages(_RATE, number),
            flags=flags, special=bool(flags & QueueFlag.SPECIAL), hour=hour, last_hour=last_hour,
            hour_ns=hour_ns, sampled_ns=sampled_ns, started_ns=started_ns, max_depth=max_depth,
            max_length=max_length, expired=expired, remembered=sum(ids.values()), failed=failed,
            dead=dead)

    def _averages(self, names: tuple[str, str, str], number: int) -> Averages:
        one, five, fifteen = self._copies.averages(names, number)
        return one, five, fifteen

    def _reader(self, number: int, values: tuple[int, ...], names: list[str],
                held: list[tuple[int, int]]) -> ReaderRow:
        (flags, queue, pid, uid, client, processed, registered_ns, request_ns, response_ns,
         timeout_s, started) = values
        selector, whole = self._copies.reader_selector(number)
        return ReaderRow(
            number=number, name=self._copies.reader_name(number), queue=name_at(names, queue),
            pid=pid, uid=uid, client=client, auxiliary=bool(flags & ReaderFlag.AUXILIARY),
            active=len(held), current=min(held)[1] if held else None, processed=processed,
            registered_ns=registered_ns, request_ns=request_ns, response_ns=response_ns,
            timeout_s=timeout_s, flags=flags, started=started, selector=selector,
            selector_whole=whole)
