"""The repairs of pool records: rebuilt ones, cleared ones, records that name another body.

All of them are one set of changes, written by the pool's own double write: each batch is in the
pool wholly or not at all, and the same changes come out of the same history if it is done again.

A slot is only taken for a rebuilt record if it is free, damaged, cleared here, or holds this very
message: what is valid and somebody else's is never overwritten.

Errors: DiskError, SpoolFull.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from omq.base.paths import SpoolPaths
from omq.core.judge.cases import Action, Case
from omq.core.judge.finding import Found
from omq.core.redo.windows import Windows
from omq.format.double_write import COUNT_MAX
from omq.format.location import LocationKind, kind_of, number_of
from omq.format.pool import RECORD_BYTES, Message, Record, decode_record
from omq.storage.files import open_file, read_salvaged
from omq.storage.pool import PoolFiles
from omqtools.omqrecover.archive import readable
from omqtools.omqrecover.history import History, Progress
from omqtools.omqrecover.ledger import Ledger
from omqtools.omqrecover.originals import Originals
from omqtools.omqrecover.rebuilt_records import Shadow, images_of

Slot = tuple[int, int]
Changes = dict[Slot, bytes | None]
_SECTOR: Final = 512


@dataclass(slots=True)
class Result:
    """What was done: `refused` names messages that could not be made, each with its reason."""

    rebuilt: int = 0
    cleared: int = 0
    bodies: int = 0
    refused: list[str] = field(default_factory=list)


@dataclass(slots=True)
class RecordRepair:
    """Collects the changes for the findings of a plan, then writes them."""

    paths: SpoolPaths
    uuid: bytes
    pool: PoolFiles
    originals: Originals
    progress: Progress
    changes: Changes = field(default_factory=dict)
    result: Result = field(default_factory=Result)

    def run(self, findings: list[Found]) -> Result:
        """CLEAR, REBUILD and BODY of the plan."""
        for found in findings:
            if found.row.action is Action.CLEAR:
                self.changes[_slot(found)] = None
                self.result.cleared += 1
        rebuild = [found for found in findings if found.row.action is Action.REBUILD]
        if rebuild:
            self._rebuild(rebuild)
        for found in findings:
            if found.row.action is Action.BODY:
                self._body(found)
        self._write()
        return self.result

    # rebuild

    def _rebuild(self, findings: list[Found]) -> None:
        wanted = {found.qpool for found in findings if found.qpool}
        wanted |= self._of_files({_file(f) for f in findings if f.case is Case.POOL_FILE_MISSING})
        shadow = Shadow(wanted)
        for window in Windows(iter(self._history())):
            shadow.apply(window)
        made = shadow.messages()
        for found in findings:
            self._free(found, made.get(found.qpool))
        for qpool in sorted(wanted):
            message = made.get(qpool)
            if message is not None:
                self._take(message)
        ended = wanted - made.keys()
        self.result.refused += [f"message {qpool}: its PUT frame is damaged or it has ended"
                                for qpool in sorted(ended)]

    def _history(self) -> History:
        return History([self.paths.archive, self.paths.journal], self.uuid, self.progress)

    def _of_files(self, files: set[int]) -> set[int]:
        """The messages that history knows in these pool files."""
        if not files:
            return set()
        ledger = Ledger()
        for window in Windows(iter(self._history())):
            ledger.apply(window)
        return {qpool for file in files for qpool in ledger.in_file(file)["qpool"].tolist()}

    def _free(self, found: Found, message: Message | None) -> None:
        """The damaged or old record itself goes, unless the rebuilt one takes its slot."""
        if found.record < 0 or found.case is Case.RECORD_MISSING:
            return
        if found.case is Case.RECORD_OLD and message is None:
            return
        self.changes.setdefault(_slot(found), None)

    def _take(self, message: Message) -> None:
        images = images_of(message)
        taken = [slot for slot in images if not self._may_write(slot, message.qpool)]
        if taken:
            file, record = taken[0]
            self.result.refused.append(
                f"message {message.qpool}: slot {record} of {file}QP holds another message")
            return
        self._reach(message.location)
        self.changes.update(images)
        self.result.rebuilt += 1

    def _may_write(self, slot: Slot, qpool: int) -> bool:
        if slot in self.changes:
            return self.changes[slot] is None
        found = self._raw(slot)
        return not isinstance(found, Record) or found.message.qpool == qpool

    def _raw(self, slot: Slot) -> object:
        """The slot as it is; None when it is free or after the end."""
        file, record = slot
        try:
            opened = open_file(self.paths.msgpool / f"{file}QP")
        except FileNotFoundError:
            return None
        try:
            data = read_salvaged(opened, RECORD_BYTES, (record + 1) * RECORD_BYTES, _SECTOR)
        finally:
            opened.close()
        return decode_record(data, 0, file, record) if len(data) == RECORD_BYTES else None

    def _reach(self, word: int) -> None:
        """The body must be readable where the record says."""
        if kind_of(word) == LocationKind.JOURNAL:
            readable(self.paths, number_of(word))

    # bodies

    def _body(self, found: Found) -> None:
        """Let the record name the copy in the journal; its LSN stays, so redo goes on from it."""
        word, _, offset = found.target.partition(":")
        self._reach(int(word))
        for file in self.pool.files():
            for chunk in self.pool.scan(file):
                rows = chunk.records[chunk.live]
                for record in rows["record"][rows["qpool"] == found.qpool].tolist():
                    message = self.pool.read_record(file, record)
                    if isinstance(message, Message):
                        message.location, message.offset = int(word), int(offset)
                        self.changes.update(images_of(message))
                        self.result.bodies += 1
                        return
        self.result.refused.append(
            f"body of message {found.qpool}: no checkpoint holds its record yet; start the "
            "instance once, then scan again")

    # write

    def _write(self) -> None:
        for file in sorted({file for file, _ in self.changes}):
            self.originals.keep(self.paths.msgpool / f"{file}QP")
        listed = sorted(self.changes.items())
        for first in range(0, len(listed), COUNT_MAX):
            self.pool.write(dict(listed[first : first + COUNT_MAX]))
            self.progress(f"writing records: {first} of {len(listed)}")


def _slot(found: Found) -> Slot:
    return _file(found), found.record


def _file(found: Found) -> int:
    return int(found.file.removeprefix("msgpool/").removesuffix("QP"))
