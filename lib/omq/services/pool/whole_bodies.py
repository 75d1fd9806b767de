"""Bodies as their submitters sent them, out of a file that is to go. One that fails its CRC, or
cannot be read, is an event, has a copy in quarantine, and stays where it is.

Errors: DiskError (latched).
"""

from __future__ import annotations

from dataclasses import dataclass

from omq.base import event_log, events
from omq.base.arrays import Vector
from omq.base.checksum import crc32c, crc32c_each
from omq.base.errors import BodyUnavailable, OmqError
from omq.base.event_log import EventLog
from omq.base.paths import SpoolPaths
from omq.format.findings import Finding, Kind
from omq.storage import durable
from omq.storage.payloads import PayloadReader, payload_paths
from omq.storage.quarantine import save


@dataclass(frozen=True, slots=True)
class WholeBodies:
    """Of one spool."""

    paths: SpoolPaths
    log: EventLog

    def read(self, reader: PayloadReader, word: int, batch: Vector
             ) -> list[memoryview | bytes | None]:
        """Those of `batch` (rows of live_index.BODY, by offset); None for a damaged one."""
        out: list[memoryview | bytes | None] = []
        runs = reader.read_runs(word, batch["offset"].tolist(), batch["length"].tolist())
        for count, base, data in runs:
            run = batch[len(out) : len(out) + count]
            begins = (run["offset"] - base).tolist()
            ends = (run["offset"] - base + run["length"]).tolist()
            view = memoryview(data)
            crcs = crc32c_each(view, begins, ends)
            out += [view[begin:end] if crc == found and end <= len(view) else None
                    for begin, end, crc, found
                    in zip(begins, ends, run["crc"].tolist(), crcs, strict=True)]
        for i in (i for i, payload in enumerate(out) if payload is None):
            out[i] = self._alone(reader, word, batch[i].item())
        return out

    def _alone(self, reader: PayloadReader, word: int, body: tuple[int, ...]) -> bytes | None:
        """One that was not read well with its neighbours; None is reported."""
        qpool, offset, length, crc, *_ = body
        try:
            data = reader.read(word, offset, length, qpool)
        except BodyUnavailable as error:
            self._report(qpool, str(error))
            return None
        if crc32c(data) == crc:
            return data
        name = payload_paths(self.paths, word)[0].name
        finding = Finding(Kind.CORRUPT, f"payload of message {qpool} fails its CRC", name,
                          offset, length)
        try:
            save(self.paths, finding, data)
        except OmqError as error:
            self.log.event(events.FAILED, event_log.ERROR, at="quarantine", reason=str(error))
            durable.check_latch()
        self._report(qpool, str(finding))
        return None

    def _report(self, qpool: int, reason: str) -> None:
        self.log.event(events.BODY_DAMAGED, event_log.ERROR, qpool_id=qpool, reason=reason)
