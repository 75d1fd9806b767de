"""The index segment: System V shared memory that the queue manager writes and everybody else reads.

Its id is in `run/ids.json`, written by rename in a directory that
only the spool's owner may write. An attacher believes an id only when boot id, instance uuid, epoch
and owner fit. Only its owner may look, and the operators' group where there is one; nobody else
may write.

Invariants: 1. one segment per epoch, removed at a clean stop or by the next start; 2. readers
attach with SHM_RDONLY, so a dying or hostile one cannot break it.
Errors: IpcLimit (with the sysctl to raise), ManagerUnavailable (nothing valid to attach),
AccessDenied, NotOperator.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
from dataclasses import asdict, dataclass, field
from typing import Any

import sysv_ipc

from omq.base import access, clock, modes, side_files
from omq.base.errors import IpcLimit, ManagerUnavailable
from omq.base.paths import SpoolPaths
from omq.format.findings import Finding
from omq.format.index import IndexHeader, read_header
from omq.storage.spool import open_spool

_IDS_BYTES_MAX = 1 << 16  # more than an ids.json has
_REFUSALS = (sysv_ipc.Error, OSError, MemoryError, ValueError)


@dataclass(frozen=True, slots=True)
class RuntimeIds:
    """`run/ids.json`: what a client or a tool needs to find a running manager."""

    epoch: int
    boot: str  # hex
    uuid: str  # hex
    pid: int
    started: int  # start time of that process, clock ticks
    segment: int  # id of the index segment
    requests: tuple[int, int]  # key, id of the request queue
    time_ns: int = 0
    extra: dict[str, Any] = field(default_factory=dict)

    def text(self) -> bytes:
        return (json.dumps(asdict(self), sort_keys=True) + "\n").encode()


def read_ids(paths: SpoolPaths) -> RuntimeIds | None:
    """The ids that the last manager published, whether it still lives or not; None: there are
    none. AccessDenied."""
    try:
        raw = json.loads(side_files.calls.read(str(paths.ids), _IDS_BYTES_MAX))
        return RuntimeIds(**{**raw, "requests": tuple(raw["requests"])})
    except PermissionError as error:
        raise access.denied(paths.ids, error) from error
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None
    except OSError as error:
        side_files.unseen(paths.ids, error)
        return None


def create(size: int, mode: int = modes.FILE, key: int = sysv_ipc.IPC_PRIVATE
           ) -> sysv_ipc.SharedMemory:
    """A new, zeroed segment of `size` bytes, or IpcLimit; sysv_ipc.ExistentialError when the key is
    taken.

    shmget(2) by itself: the constructor of sysv_ipc leaves the segment behind when there is no room
    to attach it, and touches every page of a new one; the kernel's own zeros cost memory only where
    they are used."""
    identifier = ctypes.CDLL(None, use_errno=True).shmget(
        key, ctypes.c_size_t(size), sysv_ipc.IPC_CREX | mode)
    if identifier < 0:
        if ctypes.get_errno() == errno.EEXIST:
            raise sysv_ipc.ExistentialError(f"key {key} is taken")
        raise _limit(size, os.strerror(ctypes.get_errno()))
    try:
        return attach(identifier, write=True)
    except _REFUSALS as error:
        sysv_ipc.remove_shared_memory(identifier)
        raise _limit(size, str(error)) from error


def _limit(size: int, reason: str) -> IpcLimit:
    return IpcLimit(what=f"shared memory segment of {size} bytes", reason=reason,
                    sysctl="kernel.shmmax, kernel.shmall, kernel.shmmni")


def attach(identifier: int, *, write: bool = False) -> sysv_ipc.SharedMemory:
    """Attach by id. sysv_ipc.Error when it is gone or not ours to read."""
    return sysv_ipc.attach(identifier, None, 0 if write else sysv_ipc.SHM_RDONLY)


def remove(identifier: int, owner: int) -> bool:
    """Remove a left-over segment that `owner` (uid) made; False when it is gone or not his."""
    try:
        segment = attach(identifier)
    except _REFUSALS:
        return False
    try:
        if segment.cuid != owner:
            return False
        segment.remove()
        return True
    except _REFUSALS:
        return False
    finally:
        segment.detach()


def _ids_of(paths: SpoolPaths, identifier: int) -> RuntimeIds:
    """What `run/ids.json` would say, from the header of the segment itself."""
    uuid = open_spool(paths.root).uuid
    try:
        memory = attach(identifier)
    except sysv_ipc.PermissionsError as error:
        raise access.index_denied(paths.root) from error
    except _REFUSALS as error:
        raise ManagerUnavailable(spool=paths.root, reason=f"no segment {identifier}: {error}"
                                 ) from error
    buffer = memoryview(memory).toreadonly()
    header = read_header(buffer)
    buffer.release()
    memory.detach()
    if isinstance(header, Finding) or header.uuid != uuid:
        reason = header.reason if isinstance(header, Finding) else "it is another instance's"
        raise ManagerUnavailable(spool=paths.root, reason=f"segment {identifier}: {reason}")
    return RuntimeIds(header.epoch, header.boot.hex(), header.uuid.hex(), header.pid,
                      header.started, identifier, (0, 0), header.time_ns)


class AttachedIndex:
    """A read-only view of a running (or left-over) index.

    `identifier`: the id of a segment that is known from elsewhere (ipcs), when run/ is lost."""

    def __init__(self, paths: SpoolPaths, identifier: int | None = None) -> None:
        ids = read_ids(paths) if identifier is None else _ids_of(paths, identifier)
        if ids is None:
            raise ManagerUnavailable(spool=paths.root, reason="run/ids.json is missing")
        if ids.boot != clock.boot_id().hex():
            raise ManagerUnavailable(spool=paths.root, reason="it last ran before the reboot")
        try:
            self._segment = attach(ids.segment)
        except sysv_ipc.PermissionsError as error:
            raise access.index_denied(paths.root) from error
        except _REFUSALS as error:
            raise ManagerUnavailable(spool=paths.root, reason=f"no index segment: {error}"
                                     ) from error
        owner = paths.root.stat().st_uid
        self.buffer = memoryview(self._segment).toreadonly()
        header = read_header(self.buffer)
        if (isinstance(header, Finding) or header.uuid.hex() != ids.uuid
                or header.epoch != ids.epoch or self._segment.cuid not in (owner, 0)):
            self.close()
            raise ManagerUnavailable(spool=paths.root, reason=f"segment {ids.segment} is not its "
                                     f"index: {header if isinstance(header, Finding) else 'other'}")
        self.ids = ids
        self.header: IndexHeader = header

    @property
    def alive(self) -> bool:
        """Does the manager that made it still run?"""
        return clock.process_start_ticks(self.ids.pid) == self.ids.started

    def close(self) -> None:
        """Detach; views taken from `buffer` must be gone."""
        self.buffer.release()
        self._segment.detach()
