"""A new standby: the copy of its primary's pool, store and containers, then the journal up to the
checkpoint of that pool. Then only it is a standby.

Until `finish` the directory has no instance.json, so nobody takes it for a spool; what was begun
and not finished goes on (base_had): of what was said to be here pieces come without their bytes.

Invariants: 1. names are those of pool and store files, and nothing else is written; 2. the pool is
compared with the sums of its checkpoint before instance.json is written, last; 3. each file is
synced, also where nothing of it was sent; what is here of an earlier run and was not sent goes.

In the middle of a crash: a directory without instance.json.

Errors: StreamBroken; StandbyDiverged: what was copied is not what the checkpoint says; SpoolFull;
DiskError.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from omq.base.errors import StandbyDiverged, StreamBroken
from omq.base.paths import SpoolPaths
from omq.core.judge.presence import pool_findings
from omq.format.findings import Finding
from omq.format.journal import Newest, decode_file_header
from omq.format.standby import Piece, PieceKind, Synced
from omq.services.standby.base_had import forget_others
from omq.storage import durable, instance_file, journal_newest, poolctrl
from omq.storage.container_copy import ContainerCopy
from omq.storage.containers import REF_BYTES, path_of
from omq.storage.files import File, create_file, create_filled, open_file
from omq.storage.instance_file import Instance
from omq.storage.journal import file_name
from omq.storage.mirror_start import adopt
from omq.storage.pool import PoolFiles

_NAME: Final = re.compile(r"msgpool/([0-9]{1,2}QP|poolctrl|checkpoint\.dw)|store/[0-9]{10}\.sto")


class BaseReceiving:
    """See the module. `take` until it is `complete`: all was copied, and the pool is that of `lsn`;
    `bytes`: taken so far, `kept`: that were here already. `had`: the names that were said to be
    here."""

    def __init__(self, paths: SpoolPaths, had: frozenset[str] = frozenset()) -> None:
        self.complete = False
        self.lsn = self.bytes = self.kept = 0
        self.uuid = b""
        self._paths, self._had = paths, had
        self._names = set[str]()  # that are a part of this copy
        self._file: File | None = None
        self._name = ""
        self._offset = 0
        self._containers = ContainerCopy(paths)

    def take(self, piece: Piece) -> None:
        """One piece of the copy."""
        self.bytes += len(piece.payload)
        if piece.kind is PieceKind.COPY:
            self._copy(piece)
        elif piece.kind is PieceKind.CONTAINER:
            self._container(piece)
        elif piece.kind is PieceKind.FILE:
            self._begin_journal(piece)
        elif piece.kind is PieceKind.COPIED and self.uuid and self._file is None:
            self._containers.sync()
            forget_others(self._paths, self._names)
            for folder in (self._paths.msgpool, self._paths.store, self._paths.journal):
                durable.sync_directory(folder)
            self.lsn, self.complete = piece.lsn, True
        elif piece.kind is PieceKind.REFUSE:
            raise _broken("it refuses: " + bytes(piece.payload[:500]).decode("utf-8", "replace"))
        else:
            raise _broken(f"{piece.kind.name} in the middle of a copy")

    def _container(self, piece: Piece) -> None:
        data = memoryview(piece.payload)
        ref = bytes(data[:REF_BYTES])
        name = ref.decode("ascii", "replace")
        self._names.add(name)
        if not piece.durable:
            self._containers.write(ref, piece.offset, data[REF_BYTES:], piece.lsn)
            return
        if name not in self._had or len(data) != REF_BYTES or piece.durable != piece.lsn:
            raise _broken(f"a container that is here, {name!r}")
        file = open_file(path_of(self._paths, name), write=True)
        try:
            if file.size() != piece.lsn:
                raise _broken(f"{piece.lsn} bytes that are here, of {name}")
            file.sync_all()
        finally:
            file.close()
        self.kept += piece.lsn

    def _copy(self, piece: Piece) -> None:
        raw = memoryview(piece.payload)
        name = bytes(raw[: piece.number]).decode("ascii", "replace")
        data = raw[piece.number :]
        if _NAME.fullmatch(name) is None:
            raise _broken(f"a copy of {name[:80]!r}")
        if piece.offset == 0 and self._file is None:
            path = self._paths.root / name
            self._file = (open_file(path, write=True) if name in self._had
                          else create_file(path, replace=True))
            self._name, self._offset = name, 0
            self._names.add(name)
        if self._file is None or (name, piece.offset) != (self._name, self._offset) or (
                self._offset + max(len(data), piece.durable) > piece.lsn) or (
                piece.durable and (len(data) > 0 or name not in self._had)):
            raise _broken(f"{len(data)} bytes at {piece.offset} of {name}")
        if piece.durable:
            self.kept += piece.durable
        else:
            self._file.write([data], piece.offset, new=True)
        self._offset += piece.durable or len(data)
        if self._offset == piece.lsn:
            if self._file.size() != piece.lsn:  # of an earlier run
                self._file.truncate(piece.lsn)
            self._file.sync_all(new=True)
            self._file.close()
            self._file = None

    def _begin_journal(self, piece: Piece) -> None:
        header = decode_file_header(piece.payload)
        if isinstance(header, Finding) or header.number != piece.number:
            raise _broken("the first file of the journal has no header")
        for name in durable.list_directory(self._paths.journal):  # it is sent from its beginning
            durable.unlink(self._paths.journal / name)
        path = self._paths.journal / file_name(header.number)
        file = create_filled(path, header.size)
        file.write([piece.payload], 0)
        file.sync()
        file.close()
        noted = journal_newest.open_newest(self._paths)
        journal_newest.note(noted, Newest(header.uuid, header.number, header.epoch,
                                          header.first_lsn, header.term))
        noted.close()
        adopt(self._paths, header.uuid, Synced(
            header.uuid, 1, header.number, header.term, header.epoch, header.page,
            header.first_lsn - 1))
        self.uuid = header.uuid

    def finish(self, instance: Instance) -> None:
        """The journal is here up to the checkpoint: from now on this is a standby."""
        control, slots = poolctrl.load(self._paths, settle=True)
        pool = PoolFiles(self._paths, self.uuid)
        try:
            if control is None or control.uuid != self.uuid or control.lsn != self.lsn:
                raise self._not_it("poolctrl", "it is not the checkpoint that was copied")
            pool.recover_double_write(control)
            for found in [*slots, *pool_findings(control, pool, pool.possible)]:
                if found.file != poolctrl.NAME:
                    raise self._not_it(found.file, found.reason)
        finally:
            pool.close()
        instance_file.write(self._paths, replace(instance, uuid=self.uuid))

    def _not_it(self, name: str, reason: str) -> StandbyDiverged:
        return StandbyDiverged(path=self._paths.msgpool / name, reason=reason)

    def close(self) -> None:
        """Let go of what is not whole."""
        if self._file is not None:
            self._file.close()
        self._containers.close()


def _broken(reason: str) -> StreamBroken:
    return StreamBroken(peer="the primary", reason=reason)
