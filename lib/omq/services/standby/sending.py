"""The primary's side of one standby: it says where their histories agree, then sends what is on the
disk here, or is being synced.

    HELLO    is the standby's position in our history? FOLLOW, or BACK as far as it is
    ASK      what is this? SAID
    REFUSE   why it cannot go on, as on a full disk
    ACK      what the standby has; the journal file in which it goes on is kept (standby_holds)

A container is sent before the block that names it. One that is gone has no message any more: its
end is in a block that follows.

Invariants: 1. nothing is sent before FOLLOW; 2. every piece says the term of this primary and how
far its disk is; 3. a standby that knows a later term is sent nothing: this is a former primary
(`superseded`); 4. a term is believed of a member of this instance alone: a stranger's would stop
it.

Errors: StreamBroken: the peer is not a standby of this instance, or says what it must not; those of
JournalSource.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import numpy as np

from omq.base.errors import SpoolFull, StreamBroken
from omq.base.paths import SpoolPaths
from omq.format.findings import Finding
from omq.format.journal import BLOCK, FRAME, FrameFlag, frame_count
from omq.format.standby import SYNCED, Piece, PieceKind, Synced, decode_synced
from omq.services.standby.ask_members import answer, is_asked
from omq.storage import promotions, standby_holds
from omq.storage.containers import REF_BYTES, open_item
from omq.storage.instance_file import Instance, is_member_name
from omq.storage.journal_scan import has_containers
from omq.storage.journal_source import JournalSource

HELD_S: Final = 1.0
"""A standby that is at the same file as before is noted again after so long: somebody may have had
it forgotten. In between each ACK would be a look at a file, and a client may wait for it."""
CHUNK_BYTES: Final = 1 << 20  # of a container in one piece
_CONTAINER: Final = int(FrameFlag.CONTAINER)


class Sending:
    """See the module. `acked`, `synced`: LSNs that the standby has, and has on its disk."""

    def __init__(self, paths: SpoolPaths, instance: Instance) -> None:
        self.member = ""
        self.said: dict[str, Any] = {}  # what it says of itself
        self.acked = self.synced = 0
        self.superseded = 0  # the later term that the standby knows
        self.following = self.more = False
        self._held = (0, 0.0)  # the file that was noted last, and until when that is enough
        self._paths, self._instance = paths, instance
        self._source = JournalSource(paths, instance.uuid, instance.term)

    def take(self, piece: Piece, durable: int) -> list[Piece]:
        """What the standby says; the answer. `durable`: the last LSN on the disk here."""
        if piece.kind is PieceKind.ASK and is_asked(piece, self._instance):
            self.superseded = piece.term if piece.term > self._instance.term else 0
            return [answer(self._paths, self._instance)]
        if piece.kind is PieceKind.HELLO:
            mark = self._position(piece)
            self.refuse_superseded(piece.term)
            with suppress(SpoolFull):
                standby_holds.note(self._paths, self.member, mark.number)
            self._held = mark.number, time.monotonic() + HELD_S
            said = self._source.agree(mark)
            self.following = said.kind is PieceKind.FOLLOW
            if not self.following:
                return [replace(said, durable=durable)]
            told = promotions.encode(promotions.load(self._paths, self._instance.term))
            return [replace(said, durable=durable, payload=told)]
        if piece.kind is PieceKind.ACK and self.following:
            self.refuse_superseded(piece.term)
            self.acked, self.synced = piece.lsn, piece.durable
            self._hold(piece.number)
            return []
        if piece.kind is PieceKind.REFUSE:
            raise self._broken("it cannot go on: " + bytes(piece.payload[:500]).decode(
                "utf-8", "replace"))
        raise self._broken(f"a standby does not say {piece.kind.name} here")

    def _hold(self, number: int) -> None:
        """The journal is kept from that file on. Where that cannot be noted at once, the note
        before counts, which keeps more, and it is tried again: clients may wait for this standby,
        also with what makes room."""
        now = time.monotonic()
        if number == self._held[0] and now < self._held[1]:
            return
        standby_holds.note_if_free(self._paths, self.member, number)
        self._held = number, now + HELD_S

    def _position(self, piece: Piece) -> Synced:
        """Who it is, and where it goes on."""
        raw = bytes(piece.payload)
        mark = decode_synced(raw[: SYNCED.size])
        try:
            found = json.loads(raw[SYNCED.size :])
            uuid, member = str(found["uuid"]), str(found["member"])  # so it is a dict
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise self._broken("it does not identify itself") from error
        if isinstance(mark, Finding):
            raise self._broken(mark.reason)
        if uuid != self._instance.uuid.hex() or mark.uuid != self._instance.uuid:
            raise self._broken(f"it is of the instance {uuid[:32]}")
        if not is_member_name(member) or member == self._instance.member:
            raise self._broken("its name is not one of another member")
        self.member, self.said = member, found
        self.acked = self.synced = mark.lsn
        return mark

    def refuse_superseded(self, term: int) -> None:
        """StreamBroken: who is of this instance knows a later term."""
        if term > self._instance.term:
            self.superseded = term
            raise self._broken(f"it knows term {term}, this is the primary of term "
                               f"{self._instance.term}: another member was promoted since")

    def turn(self, durable: int, bytes_max: int, written: int = 0, within: int = 0
             ) -> list[Piece]:
        """What is new up to there, about so many bytes; `more` says whether there may be more.
        `written`: up to there it may be sent, too, though it is not durable here yet; `within`: in
        that file it ends, 0: nobody says."""
        self.more = False
        if not self.following:
            return []
        out: list[Piece] = []
        if written < durable:
            within = 0
        left = bytes_max
        for piece in self._source.read(max(durable, written), bytes_max, durable, within):
            if piece.kind is PieceKind.BLOCK:
                out += self._containers(piece)
                left -= len(piece.payload)
            out.append(piece)
        self.more = left <= 0
        return out

    def _containers(self, block: Piece) -> Iterator[Piece]:
        """Those that the block's messages name."""
        data = memoryview(block.payload)
        count = frame_count(data)
        if not has_containers(data, count):
            return
        frames = FRAME.array(data, count, BLOCK.size)
        rows = np.flatnonzero(frames["flags"] & _CONTAINER)  # births alone have the flag
        behind = BLOCK.size + FRAME.size * count
        for row in rows.tolist():
            end = behind + int(frames["offset"][row]) + int(frames["length"][row])
            yield from self._pieces_of(bytes(data[end - REF_BYTES : end]), block)

    def _pieces_of(self, ref: bytes, block: Piece) -> Iterator[Piece]:
        try:
            file = open_item(self._paths, ref.decode("ascii", "replace"))
        except FileNotFoundError:
            return
        try:
            size = file.size()
            for at in range(0, max(1, size), CHUNK_BYTES):
                part = file.read(min(CHUNK_BYTES, size - at), at)
                yield Piece(PieceKind.CONTAINER, block.term, block.number, at, size,
                            block.durable, ref + part)
        finally:
            file.close()

    def _broken(self, reason: str) -> StreamBroken:
        return StreamBroken(peer=self.member or "a standby", reason=reason)

    def close(self) -> None:
        """Close the files; the journal is kept for the standby."""
        self._source.close()
