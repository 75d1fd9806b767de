"""Why something does not move in an instance, found in one place for all tools.

Evidence is what lies open: the index in shared memory, /proc/PID/stat of the processes, the files
in run/, the event log's end, the configuration, the payloads of a few messages. Nobody is asked
and nothing is changed.

Invariant: the cost is bounded by the size of the index and the limits in reader_causes,
group_causes and authority_causes; a queue on which nothing waits costs nothing.

Errors: none; what may not be read, or is gone meanwhile, is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress

from omq.base.errors import OmqError
from omq.cli.look.authority_causes import Refusals, refused
from omq.cli.look.cause import Cause, Causes
from omq.cli.look.gateways import Gateway
from omq.cli.look.instance_causes import of_instance
from omq.cli.look.queue_causes import of_queue
from omq.cli.look.service_status import Status
from omq.core.index.rows import QueueRow, ReaderRow
from omq.core.look.look import Look
from omq.services.daemon.options import Location


def find(location: Location, seen: Look | None, now_ns: int, services: Sequence[Status],
         gateways: Sequence[Gateway], wrong: str = "", absent: str = "") -> Causes:
    """See the module. `seen` None: there is no index, `absent` says why. `wrong`: what is wrong
    with the configuration."""
    refusals = refused(location.paths, now_ns)
    instance = [*of_instance(location, seen, services, gateways, wrong, absent),
                *_of_nobody(seen, refusals, now_ns)]
    if seen is None:
        return Causes(tuple(instance))
    readers: dict[str, list[ReaderRow]] = defaultdict(list)
    for reader in seen.view.readers():
        readers[reader.queue].append(reader)
    queues = {}
    for row in seen.view.queues():
        found = tuple(of(location, seen, row, readers[row.name], services, gateways, refusals,
                         now_ns)) if _waits(row) else ()
        if found:
            queues[row.name] = found
    return Causes(tuple(instance), queues)


def of(location: Location, seen: Look, row: QueueRow, readers: list[ReaderRow],
       services: Sequence[Status], gateways: Sequence[Gateway], refusals: Refusals, now_ns: int
       ) -> Iterator[Cause]:
    """Of one queue. A look at what changes meanwhile may find half of it: then there is none."""
    with suppress(OmqError):
        yield from of_queue(location, seen, row, readers, services, gateways, now_ns)
        yield from refusals.of(row.name, now_ns)


def _waits(row: QueueRow) -> bool:
    """Something is on it; on IDEL it only waits to be deleted, or to be brought back."""
    return row.messages > 0 and (not row.special or row.name == "POISON")


def _of_nobody(seen: Look | None, refusals: Refusals, now_ns: int) -> Iterator[Cause]:
    """What was refused on queues where nothing waits, for that very reason perhaps."""
    waiting = {row.name for row in seen.view.queues() if _waits(row)} if seen else set()
    for queue in sorted(refusals.queues - waiting):
        yield from refusals.of(queue, now_ns)
