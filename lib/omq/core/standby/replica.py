"""The Message Pool of a standby: its journal is redone as it comes, and checkpoints are taken.

As pool.writer's Following, led by the journal's own position instead of a live index. The caller
says how far frames may be redone (storage.journal_mirror.redo_limit): what is synced here and known
to be on the primary's disk.

A RELOCATE says that pool.writer of the primary has copied bodies into a store file. `advance` does
the same here before the frame is redone: it copies them from where they lie by then to the same
place, synced. So no record of the pool, and no checkpoint, ever names a place without its body, and
what the copies were made from may go when a checkpoint has passed the frame (`retire`).

A container goes after the checkpoint that covers the end of its message; one that a crash leaves
is an orphan, which omscan shows.

`retire` decides from the pool alone: after a checkpoint everything that was redone is in it, so a
file that no record names, and in which no frame lies that would be redone, is needed by nobody.
Bodies are put into the newest journal file only, and copies only where a frame after the
checkpoint says so, which makes its file anew.

Invariants: 1. nothing is written without the pool lock, which the caller holds; 2. frames above the
limit are not read; 3. journal files go oldest first and never leave a gap.

In the middle of a crash: the last poolctrl slot counts, `start` finishes a checkpoint that was cut,
and the same frames are redone; copies are written to the same places again.

Errors: DiskError (latched); SpoolFull, which forgets nothing, and may be tried again;
BodyUnavailable and BodyDamaged: a body that was to be copied; StandbyDiverged: the pool has no
checkpoint of this instance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import takewhile
from typing import Final

import numpy as np

from omq.base.arrays import Vector
from omq.base.checksum import crc32c
from omq.base.errors import BadItemRef, BodyDamaged, BodyUnavailable, SpoolFull, StandbyDiverged
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.core.engine.state import IDEL
from omq.core.judge.presence import pool_findings
from omq.core.redo.changes import Unusable
from omq.core.redo.checkpoint import Checkpointer, CheckpointResult
from omq.core.redo.redo import ALL, Redo
from omq.core.redo.window import MOVES_BODIES
from omq.format.findings import Finding, Kind
from omq.format.journal import FRAME_QUEUE, FRAME_TYPE, FrameFlag, frame_bytes
from omq.format.location import LocationKind, kind_of, location, number_of
from omq.format.pool import RecordFlag
from omq.format.store import HEADER_BYTES
from omq.storage import containers, durable, poolctrl
from omq.storage.containers import REF_BYTES
from omq.storage.journal_follower import JournalFollower
from omq.storage.journal_retire import retirable, retire
from omq.storage.journal_scan import Block
from omq.storage.mirror_chain import has_payloads
from omq.storage.payloads import PayloadReader
from omq.storage.pool import PoolFiles
from omq.storage.store import file_name, remove_store_file, store_numbers
from omq.storage.store_copy import StoreCopy

WINDOW_BYTES: Final = 64 << 20
_LAST_PART: Final = int(FrameFlag.LAST_PART)
_MOVES_NONE: Final = bytes(np.flatnonzero(~MOVES_BODIES).tolist())
_IDEL_LOW: Final = IDEL & 255


class Replica:
    """See the module. `start` first. `findings`: damage that was met, for the caller to tell."""

    def __init__(self, paths: SpoolPaths, uuid: bytes, settings: Settings,
                 progress: Callable[[], None] = lambda: None) -> None:
        self._paths, self._uuid, self._settings = paths, uuid, settings
        self.pool = PoolFiles(paths, uuid)
        self.redo = Redo(self.pool, progress=progress)
        self._checkpointer = Checkpointer(self.pool, self.redo, paths, uuid, settings, progress)
        self._follower = JournalFollower(paths, uuid)
        self._reader = PayloadReader(paths)
        self._copies = StoreCopy(paths, uuid)
        self._epoch = 0
        self._at = (0, 0, 0)  # file, offset, LSN after the last block that was redone
        self._held: list[Block] = []  # that follow it, and are not redone yet
        self._durable = 0  # what the blocks until now said
        self._ended: list[str] = []  # references of containers that no message names after it
        self.checkpoint_lsn = 0
        self.findings: list[Finding] = []

    @property
    def lsn(self) -> int:
        """Redone up to here."""
        return self.redo.lsn

    def start(self) -> None:
        """Take up the last checkpoint."""
        control, slots = poolctrl.load(self._paths, settle=True)
        if control is None or control.uuid != self._uuid:
            raise StandbyDiverged(path=self._paths.msgpool, reason="its pool has no checkpoint of "
                                  "this instance")
        self.pool.recover_double_write(control)
        self._note(slots)
        if len(self.pool.possible) > 1:  # the files say which
            self._note(pool_findings(control, self.pool, self.pool.possible))
        self._note(self.pool.findings)
        redo = self.redo
        redo.queues, redo.clients = dict(control.queues), dict(control.clients)
        redo.definitions = dict(control.definitions)
        redo.lsn, redo.next_qpool = control.lsn, control.next_qpool
        self._checkpointer.generation = control.generation
        self._epoch, self.checkpoint_lsn = control.epoch, control.lsn
        self._at = control.journal, control.offset, control.lsn
        self.rewind()

    def rewind(self) -> None:
        """The journal behind what was redone has changed: look at it anew."""
        self._follower.close()
        self._follower = JournalFollower(self._paths, self._uuid, *self._at)
        self._held = []

    def advance(self, limit: int) -> int:
        """Redo up to `limit`, or about WINDOW_BYTES of it; how many bytes of blocks. 0: nothing."""
        read = self._follower.read(limit, WINDOW_BYTES)
        self._note(self._follower.findings)
        done, self._held = 0, [*self._held, *read]
        try:
            for blocks, known in self._judged():
                for part in _apart(blocks):
                    self._redo(part, known)
                done += sum(block.header.length for block in blocks)
        except SpoolFull:
            self.rewind()  # what was read and not redone returns, when there is room
            raise
        return done

    def _judged(self) -> Iterator[tuple[list[Block], int]]:
        """What can be redone of the blocks that are there, each part with what was durable when its
        epoch ended (ALL: it goes on, and the primary has them on its disk). Where an epoch ended
        uncleanly its last blocks may be torn, and the primary's start has judged them by that
        (core.load.recovery). So a block with a payload that is not valid is held until a later one
        says which it is: durable, and damaged; or torn (ADR 0129)."""
        while self._held:
            blocks = _same_epoch(self._held)
            known = max(self._durable, *(block.header.durable for block in blocks))
            over = len(blocks) < len(self._held)
            if not over:
                blocks = _whole(blocks, known)
            self._held = self._held[len(blocks):]
            if not blocks:
                return
            self._durable = known
            yield blocks, known if over else ALL

    def _redo(self, part: list[Block], known: int) -> None:
        self._carry_out(part[0])
        self._note_containers(part[0])
        self.redo.apply(part, known)
        last = part[-1]
        self._at = last.number, last.offset + last.header.length, last.header.last_lsn
        self._epoch = max(self._epoch, last.header.epoch)
        self.redo.next_qpool = max(self.redo.next_qpool,
                                   *(block.header.next_qpool for block in part))
        torn = [each for each in self.redo.findings if each.lsn > known]
        self._note([each for each in self.redo.findings if each not in torn])
        self.redo.findings.clear()

    def _note(self, found: list[Finding]) -> None:
        """Keep what is damage; what a mere crash leaves is none."""
        self.findings += [each for each in found if each.kind not in (Kind.END, Kind.TORN)]
        found.clear()

    def _carry_out(self, block: Block) -> None:
        """The copies of bodies that a block says, if it says any."""
        moving = np.flatnonzero(MOVES_BODIES[block.frames["type"]]).tolist()
        for row in moving:
            frame = block.frames[row].item()
            named = block.frames[row]
            raw = block.payload(int(named["offset"]), int(named["length"]))
            try:
                rows = self.redo.relocations(frame, raw)
            except Unusable:
                continue  # redo tells it, and does not believe it either
            for each in rows:
                self._copy(int(named["lsn"]), *each.item())
        if moving:
            self._copies.sync()

    def _copy(self, lsn: int, qpool: int, word: int, offset: int, record: int, file: int) -> None:
        message = self.redo.find(qpool, file, record)
        if message is None or message.lsn >= lsn or kind_of(word) != LocationKind.STORE:
            return  # it has ended, or the pool is past this frame: its copy was made
        payload = self._reader.read(message.location, message.offset, message.length, qpool)
        if crc32c(payload) != message.crc:
            raise BodyDamaged(qpool_id=qpool, where=f"location {message.location:#010x}",
                              expected=message.crc, got=crc32c(payload))
        self._copies.write(number_of(word), offset, qpool, payload, message.crc)

    def _note_containers(self, block: Block) -> None:
        """Those of the messages that end here: they go after the next checkpoint."""
        for row in np.flatnonzero(_leaves_idel(block)).tolist():
            named = block.frames[row]
            message = self.redo.find(int(named["qpool"]), int(named["file"]),
                                     int(named["record"]))
            if message is None or not message.flags & RecordFlag.CONTAINER:
                continue
            try:
                payload = self._reader.read(message.location, message.offset, message.length)
            except BodyUnavailable:
                continue  # an orphan stays, which omscan shows
            self._ended.append(payload[-REF_BYTES:].decode("ascii", "replace"))

    def _remove_containers(self) -> None:
        for ref in self._ended:
            with suppress(BadItemRef):
                containers.remove(self._paths, ref)
        self._ended.clear()

    def checkpoint(self, time_ns: int) -> CheckpointResult | None:
        """Make what was redone the checkpoint; None: there is nothing new."""
        if self.redo.lsn <= self.checkpoint_lsn:
            return None
        number, offset, _ = self._at
        result = self._checkpointer.take(self._epoch, number, offset, time_ns)
        self.checkpoint_lsn = result.lsn
        self._remove_containers()
        self._note(self.pool.findings)
        self._note(list(self.pool.lost()))
        return result

    def retire(self) -> int:
        """Right after a checkpoint: remove journal and store files that nothing needs; how many.
        None goes while something in the pool cannot be read."""
        if self.redo.lsn != self.checkpoint_lsn or self.findings:
            return 0
        live, gone = self._live(), 0
        if live is None:
            return 0
        for number in retirable(self._paths, self._at[0] - self._settings.journal_files_kept):
            if location(LocationKind.JOURNAL, number) in live:
                break
            gone += retire(self._paths, number, keep=False)
        for number in store_numbers(self._paths):
            found = durable.status(self._paths.store / file_name(number))
            if (location(LocationKind.STORE, number) not in live and found is not None
                    and found.st_size > HEADER_BYTES):
                gone += remove_store_file(self._paths, number)
        if gone:
            self._reader.close()
        return gone

    def _live(self) -> set[int] | None:
        """Location words of the pool's records; None: one of them cannot be read."""
        words: set[int] = set()
        for file in self.pool.files():
            for chunk in self.pool.scan(file):
                if chunk.findings:
                    return None
                words.update(np.unique(chunk.records[chunk.live]["location"]).tolist())
        return words

    def close(self) -> None:
        """Let go of the files."""
        for each in (self._follower, self._reader, self._copies, self.pool):
            each.close()


def _leaves_idel(block: Block) -> Vector:
    """Which frames end a message that waited for its container to be removed."""
    frames = block.frames
    return np.asarray((frames["queue"] == IDEL) & (frames["flags"] & _LAST_PART != 0))


def _is_first(block: Block) -> bool:
    """Does it move bodies, or end messages that have containers?"""
    data, count = block.data, block.header.count
    if frame_bytes(data, count, FRAME_TYPE).translate(None, _MOVES_NONE):
        return True
    return _IDEL_LOW in frame_bytes(data, count, FRAME_QUEUE) and bool(_leaves_idel(block).any())


def _same_epoch(blocks: list[Block]) -> list[Block]:
    """Those at the beginning that are of one epoch."""
    epoch = blocks[0].header.epoch
    return list(takewhile(lambda block: block.header.epoch == epoch, blocks))


def _whole(blocks: list[Block], known: int) -> list[Block]:
    """Those before the first that is above what is known to be durable, and has a payload that is
    not valid."""
    return list(takewhile(lambda block: block.header.last_lsn <= known
                          or has_payloads(block.header, block.data), blocks))


def _apart(blocks: list[Block]) -> Iterator[list[Block]]:
    """The blocks in order, in lists of which only the first block may move bodies, or end messages
    that have containers: what these are is known when all before it is redone."""
    begin = 0
    for i, block in enumerate(blocks):
        if i > begin and _is_first(block):
            yield blocks[begin:i]
            begin = i
    if begin < len(blocks):
        yield blocks[begin:]
