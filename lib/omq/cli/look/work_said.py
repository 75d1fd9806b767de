"""What the reader of a message in work says of its work: the one thing that omqwhy asks the queue
manager, which alone has it, and for which it does not wait long."""

from __future__ import annotations

from typing import Final

import omq
from omq.base.errors import OmqError
from omq.core.index.rows import EntryRow
from omq.services.daemon.options import Location

_WAIT_S: Final = 1.0


def work_said(location: Location, name: str, entry: EntryRow) -> dict[str, str]:
    """`progress` and its time; nothing where the reader said nothing, or has ended; why, where it
    cannot be asked."""
    try:
        with omq.connect(location.paths.root, name=name, timeout_s=_WAIT_S) as connection:
            words, moment = connection.said_of(entry.message.qpool, entry.queue)
    except OmqError as error:
        return {"progress_unknown": str(error)}
    return {} if moment is None else {
        "progress": words, "progress_time": moment.isoformat(timespec="seconds")}
