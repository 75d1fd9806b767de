"""The standby's side: it says where it is, takes what follows, and says what it has.

    FOLLOW              blocks come from here on; which promotions there were
    BACK                what the primary's history lacks is taken away, and HELLO said again
    FILE BLOCK HOLE     storage.journal_mirror
    CONTAINER           storage.container_copy
    DURABLE             nothing new; how far the primary's disk is

`settle` makes all that came together durable by one sync of the journal, and gives the ACK; `apply`
redoes it, whenever that may be; `checkpoint` makes what was redone the pool.

Invariants: 1. a piece of an earlier term is refused: it is a former primary's (its refusal changes
nothing, and is reported as it is); 2. of a later one instance.json is written first: this standby
follows no earlier one again, whatever comes; 3. an ACK is made after the sync; containers are
synced before it; 4. a checkpoint is taken after a synced mark; 5. a connection begins after all
that came by the one before.

Errors: StreamBroken; StandbyDiverged; DiskError; those of Replica.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from omq.base.errors import StreamBroken
from omq.base.paths import SpoolPaths
from omq.core.standby.replica import Replica
from omq.format.standby import Piece, PieceKind
from omq.storage import instance_file, promotions
from omq.storage.container_copy import ContainerCopy
from omq.storage.containers import REF_BYTES
from omq.storage.instance_file import Instance
from omq.storage.journal_mirror import JournalMirror


class Receiving:
    """See the module. `hello` first; the answer to it comes through `take`."""

    def __init__(self, paths: SpoolPaths, instance: Instance, replica: Replica, *,
                 begun: bool = True, says: Callable[[], dict[str, Any]] = dict) -> None:
        """`begun`: it is a standby, and not the copy of one that is not whole yet. `says`: what the
        primary learns about it besides who it is."""
        self.instance = instance
        self._begun, self._says = begun, says
        self.following = False
        self.mirror = JournalMirror(paths, instance.uuid)
        self._paths, self._replica = paths, replica
        self._containers = ContainerCopy(paths)
        self._peer = "the primary"

    def hello(self) -> Piece:
        """Who this is, and where it goes on: behind what came before, also when the line broke in
        the middle of a group."""
        self.following = False
        self._containers.close()
        self.settle()
        who = self._says() | {"uuid": self.instance.uuid.hex(), "member": self.instance.member}
        return Piece(PieceKind.HELLO, self.instance.term, self.mirror.number,
                     payload=self.mirror.mark.encode() + json.dumps(who).encode())

    def take(self, piece: Piece) -> Piece | None:
        """One piece; an answer that it needs at once. Nothing of it counts before `settle`."""
        if piece.kind is PieceKind.REFUSE:
            raise self._broken("it refuses: " + bytes(piece.payload[:500]).decode("utf-8",
                                                                                 "replace"))
        self._check_term(piece)
        answer = None
        if piece.kind is PieceKind.FOLLOW and not self.following:
            self._hear(piece)
            self.following = True
        elif piece.kind is PieceKind.BACK and not self.following:
            self._go_back(piece)
            answer = self.hello()
        elif self.following:
            self._take(piece)
        else:
            raise self._broken(f"{piece.kind.name} before it is agreed where to go on")
        if self.following:
            self.mirror.note_durable(piece.durable)
        return answer

    def _check_term(self, piece: Piece) -> None:
        if piece.term < self.instance.term:
            raise self._broken(f"it is the primary of term {piece.term}, a later one of term "
                               f"{self.instance.term} is known here")
        if piece.term > self.instance.term:
            self.instance = replace(self.instance, term=piece.term)
            if self._begun:
                instance_file.write(self._paths, self.instance)

    def _hear(self, piece: Piece) -> None:
        """Of the promotions before; an earlier omq tells none."""
        if not len(piece.payload):
            return
        told = promotions.decode(bytes(piece.payload[: promotions.BYTES_MAX]))
        if told is None:
            raise self._broken("it does not say which promotions there were")
        promotions.take(self._paths, told, self.instance.term)

    def _go_back(self, piece: Piece) -> None:
        if piece.number == self.mirror.number:
            self.mirror.cut(piece.lsn)
        else:
            self.mirror.back(piece.number)
        self._replica.rewind()

    def _take(self, piece: Piece) -> None:
        if piece.kind is PieceKind.BLOCK:
            if not self._containers.complete:
                raise self._broken("a container that a block names is not whole")
            self.mirror.write_block(piece.number, piece.offset, piece.payload)
        elif piece.kind is PieceKind.FILE:
            self._containers.sync()  # the file before is synced with its blocks
            self.mirror.begin_file(piece.payload)
        elif piece.kind is PieceKind.HOLE:
            self.mirror.skip(piece.number, piece.offset, piece.lsn)
        elif piece.kind is PieceKind.CONTAINER:
            data = memoryview(piece.payload)
            self._containers.write(bytes(data[:REF_BYTES]), piece.offset, data[REF_BYTES:],
                                   piece.lsn)
        elif piece.kind is not PieceKind.DURABLE:
            raise self._broken(f"a primary does not say {piece.kind.name} here")

    def settle(self) -> Piece:
        """All that came is on the disk; what may be acknowledged."""
        self._containers.sync()
        mark = self.mirror.sync()
        return Piece(PieceKind.ACK, self.instance.term, mark.number, lsn=mark.lsn,
                     durable=mark.lsn)

    def apply(self) -> int:
        """Redo what both disks have; how many bytes of blocks. 0: there is nothing left."""
        self.mirror.note_soon()
        return self._replica.advance(self.mirror.redo_limit)

    def checkpoint(self, time_ns: int) -> bool:
        """Make what was redone the checkpoint, if there is anything; was there?"""
        self.mirror.note()
        return self._replica.checkpoint(time_ns) is not None

    def _broken(self, reason: str) -> StreamBroken:
        return StreamBroken(peer=self._peer, reason=reason)

    def close(self) -> None:
        """Close the files; what was not settled is sent again."""
        self._containers.close()
        self.mirror.close()
