"""Bugs that a standby could have, made by replacing one function: the explorers must find each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from omq.core.redo.redo import ALL
from omq.core.standby.replica import Replica
from omq.format.standby import Piece, PieceKind, Synced
from omq.services.standby.sending import Sending
from omq.storage import mirror_chain, mirror_start
from omq.storage.container_copy import ContainerCopy
from omq.storage.journal_mirror import JournalMirror
from omq.storage.journal_scan import Block, FileScan
from tests.crash.sim.pair_explore import MOVING, How, StandbyCuts, primary_cut

Patch = Callable[[], Any]
LATE = How(delay=0.6, breaks=0.05)


def _acknowledges_first(self: JournalMirror) -> Synced:
    return replace(self.mark, lsn=self.lsn)


def _notes_first(self: JournalMirror) -> Synced:
    if self.lsn > self.mark.lsn:
        self._note(replace(self.mark, offset=self.offset, lsn=self.lsn, durable=self.durable,
                           last_crc=self._crc, exact=False))
        assert self._file is not None
        self._file.sync()
    return self.mark


def _notes_later(self: JournalMirror) -> Synced:
    """Also what needs its mark."""
    if self.lsn > self.mark.lsn:
        assert self._file is not None
        self._file.sync()
        self.mark = replace(self.mark, offset=self.offset, lsn=self.lsn, durable=self.durable,
                            last_crc=self._crc, exact=False)
        self._owed = True
    return self.mark


_note = JournalMirror._note


def _never_synced(self: JournalMirror, mark: Synced, *, sync: bool = True) -> None:
    """A group with a container, or the first one behind a copy, has no synced mark either."""
    _note(self, mark, sync=sync and mark.number != self.mark.number)


def _over_holes(mark: Synced, scan: FileScan) -> Synced:
    for block in scan:
        mark = replace(mark, offset=block.offset + block.header.length, lsn=block.header.last_lsn,
                       last_crc=int.from_bytes(block.data[4:8], "little"), exact=False)
    return mark


_retire = Replica.retire


def _retires_early(self: Replica) -> int:
    before, self.checkpoint_lsn = self.checkpoint_lsn, self.redo.lsn
    try:
        return _retire(self)
    finally:
        self.checkpoint_lsn = before


def _believes_all(self: Replica) -> Iterator[tuple[list[Block], int]]:
    blocks, self._held = self._held, []
    if blocks:
        yield blocks, ALL


_turn = Sending.turn


def _containers_last(self: Sending, durable: int, bytes_max: int, written: int = 0
                     ) -> list[Piece]:
    return sorted(_turn(self, durable, bytes_max, written),
                  key=lambda piece: piece.kind is PieceKind.CONTAINER)


def _written_is_durable(self: Sending, durable: int, bytes_max: int, written: int = 0
                        ) -> list[Piece]:
    return _turn(self, max(durable, written), bytes_max)


@dataclass(frozen=True, slots=True)
class PairMutant:
    """`found`: what is wrong, by the explorer that is to find it; empty: it was not."""

    patch: Patch
    found: Callable[[], list[str]]


def _by_standby_cuts(*names: str, how: How = LATE) -> Callable[[], list[str]]:
    def look() -> list[str]:
        for name in names:
            for seed in (1, 2, 3):
                count = StandbyCuts(name, seed, how, thin=2, goes_on=0.1, nested=0).run()
                if count.violations:
                    return list(count.violations[0].wrong)
        return []
    return look


def _by_primary_cuts(*names: str) -> Callable[[], list[str]]:
    def look() -> list[str]:
        for name in names:
            for call in range(1, 80):
                there, wrong = primary_cut(name, 1, call, restart=False)
                if wrong:
                    return wrong
                if not there:
                    break
        return []
    return look


MUTANTS = {
    "acknowledges before its sync": PairMutant(
        lambda: mock.patch.object(JournalMirror, "sync", _acknowledges_first),
        _by_standby_cuts("plain")),
    "notes its position before its sync": PairMutant(
        lambda: mock.patch.object(JournalMirror, "sync", _notes_first),
        _by_standby_cuts("plain")),
    "a mark that a group needs is noted later": PairMutant(
        lambda: mock.patch.object(JournalMirror, "sync", _notes_later),
        _by_standby_cuts("plain", "large")),
    "a start believes what is above its mark": PairMutant(
        lambda: mock.patch.object(mirror_start, "_clear_above", lambda file, offset: None),
        _by_standby_cuts("plain", "groups")),
    "a start takes blocks behind a gap": PairMutant(
        lambda: mock.patch.object(mirror_start, "extended", _over_holes),
        _by_standby_cuts("plain", "groups")),
    "a start takes blocks whose payloads are torn": PairMutant(
        lambda: mock.patch.object(mirror_chain, "is_certain", lambda header, data: True),
        _by_standby_cuts("groups", "plain", "moves")),
    "a start takes nothing behind its mark": PairMutant(
        lambda: mock.patch.object(mirror_start, "extended", lambda mark, scan: mark),
        _by_standby_cuts("plain")),
    "no mark is synced": PairMutant(
        lambda: mock.patch.object(JournalMirror, "_note", _never_synced),
        _by_standby_cuts("plain", "large")),
    "redo goes beyond what the primary has": PairMutant(
        lambda: mock.patch.object(JournalMirror, "redo_limit", property(
            lambda self: self.mark.lsn)),
        _by_primary_cuts("plain", "checkpoints", "rotation")),
    "what is being synced is said to be durable": PairMutant(
        lambda: mock.patch.object(Sending, "turn", _written_is_durable),
        _by_primary_cuts("plain", "checkpoints", "rotation")),
    "a torn tail of the primary is damage": PairMutant(
        lambda: mock.patch.object(Replica, "_judged", _believes_all),
        _by_primary_cuts("rotation")),
    "bodies are not copied": PairMutant(
        lambda: mock.patch.object(Replica, "_carry_out", lambda self, block: None),
        _by_standby_cuts("rotation", "behind_store", how=MOVING)),
    "a container comes after its block": PairMutant(
        lambda: mock.patch.object(Sending, "turn", _containers_last),
        _by_standby_cuts("large")),
    "names of containers are not synced": PairMutant(
        lambda: mock.patch.object(ContainerCopy, "sync", lambda self: None),
        _by_standby_cuts("large")),
    "a journal file goes before its checkpoint": PairMutant(
        lambda: mock.patch.object(Replica, "retire", _retires_early),
        _by_standby_cuts("generations", "rotation", how=MOVING)),
}


def found(name: str) -> list[str]:
    """What the explorer says of this mutant."""
    mutant = MUTANTS[name]
    with ExitStack() as stack:
        stack.enter_context(mutant.patch())
        return mutant.found()
