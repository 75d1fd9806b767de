"""The copy that a standby begins with: the pool as a checkpoint has left it, the store, containers,
and then the journal from its oldest file on.

While pool and store are copied no checkpoint is taken (paths.checkpoint_lock): pool files are
written in place, and a copy of half of one could not be told from damage. Clients go on; the
journal grows meanwhile, and slows them down where it becomes too long (back_pressure). Nothing that
this pool names goes before the next checkpoint, and the journal is kept from its oldest file on
(standby_holds), so whatever is copied later is still there; containers that are gone have no
message any more, or their end is in the journal.

Invariants: 1. poolctrl and the manager are the same at the end as at the beginning, or the copy is
given up; 2. the journal file that is named last is none after the checkpoint's: all that the pool
lacks is in it or later.

A directory in which a copy was cut says what it has (base_had); of that a chunk of a file is sent
without its bytes, `durable` says how many there would be, and so is a whole container.

Errors: StreamBroken: the copy is given up, ask again; SpoolLocked; DiskError.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from typing import Final

from omq.base.errors import DiskError, SpoolLocked, StreamBroken
from omq.base.paths import SpoolPaths
from omq.format.standby import Piece, PieceKind
from omq.services.standby.base_had import CHUNK_BYTES, Had
from omq.storage import durable, poolctrl, spool, standby_holds
from omq.storage.containers import open_item
from omq.storage.files import File, open_file, read_file
from omq.storage.instance_file import Instance
from omq.storage.journal import file_name, numbers_in
from omq.storage.journal_reader import read_entry
from omq.storage.pool import DOUBLE_WRITE
from omq.storage.recycled_containers import offered
from omq.storage.store import store_numbers

LOCK_S: Final = 60.0  # a checkpoint takes seconds
RETRY_S: Final = 0.02


def base(paths: SpoolPaths, instance: Instance, member: str, alive: Callable[[], bool],
         had: Had | None = None) -> Generator[Piece, None, None]:
    """The pieces. `alive`: does the manager that ran at the beginning still run?"""
    term, had = instance.term, had or Had()
    standby_holds.note(paths, member, numbers_in(paths.journal)[0])
    held = _no_checkpoint(paths)
    try:
        before, _ = poolctrl.load(paths)
        if before is None or before.uuid != instance.uuid:
            raise _given_up("there is no checkpoint yet")
        first = _first(paths, instance)
        for name in _names(paths):
            yield from _copy(paths, name, term, had)
        after, _ = poolctrl.load(paths)
        if after is None or after.generation != before.generation or not alive():
            raise _given_up("the queue manager was started again meanwhile")
    finally:
        held.close()
    yield from _containers(paths, term, had)
    yield first
    yield Piece(PieceKind.COPIED, term, before.journal, before.offset, before.lsn)


def _first(paths: SpoolPaths, instance: Instance) -> Piece:
    """With which journal file it goes on. While no checkpoint is taken the oldest is none behind
    the checkpoint's; later it may be: `omq ship` holds fewer files with each object."""
    while True:
        number = numbers_in(paths.journal)[0]
        try:
            header = read_entry(paths, number, instance.uuid).header
            if header is None:
                raise _given_up(f"the header of journal/{file_name(number)} is damaged")
            page = read_file(paths.journal / file_name(number), header.page)
        except FileNotFoundError:
            continue  # retired by the checkpoint before: the next one is the oldest
        return Piece(PieceKind.FILE, instance.term, number, lsn=header.first_lsn - 1, payload=page)


def _no_checkpoint(paths: SpoolPaths) -> File:
    deadline = time.monotonic() + LOCK_S
    while True:
        try:
            return spool.lock(paths.checkpoint_lock, "omq standby, copying")
        except SpoolLocked:
            if time.monotonic() >= deadline:
                raise
            time.sleep(RETRY_S)


def _names(paths: SpoolPaths) -> list[str]:
    pool = [name for name in durable.list_directory(paths.msgpool)
            if name.endswith("QP") or name in (poolctrl.NAME, DOUBLE_WRITE)]
    return [f"msgpool/{name}" for name in pool] + [
        f"store/{number:010d}.sto" for number in store_numbers(paths)]


def _copy(paths: SpoolPaths, name: str, term: int, had: Had) -> Iterator[Piece]:
    try:
        file = open_file(paths.root / name)
    except FileNotFoundError:
        return  # a store file that nothing needs any more
    try:
        size, raw = file.size(), name.encode()
        for at in range(0, max(1, size), CHUNK_BYTES):
            part = file.read(min(CHUNK_BYTES, size - at), at)
            same = len(part) if had.chunk(name, at, part) else 0
            yield Piece(PieceKind.COPY, term, len(raw), at, size, same,
                        raw if same else raw + part)
    finally:
        file.close()


def _containers(paths: SpoolPaths, term: int, had: Had) -> Iterator[Piece]:
    spares = offered(paths)  # what is put into one from now on comes with its block
    for directory in durable.list_directory(paths.data):
        for item in durable.list_directory(paths.data / directory):
            if (name := f"~/data/{directory}/{item}") in spares:
                continue
            ref = name.encode()
            yield from _container(paths, ref, term, had)


def _container(paths: SpoolPaths, ref: bytes, term: int, had: Had) -> Iterator[Piece]:
    try:
        file = open_file(paths.root / ref.decode().removeprefix("~/"))
    except FileNotFoundError:
        return
    except DiskError as error:
        if not isinstance(error.__cause__, BlockingIOError):
            raise
        try:  # somebody has a lease: as a rule it becomes a spare, and has gone when that is over
            file = open_item(paths, ref.decode())
        except FileNotFoundError:
            return
    try:
        size = file.size()
        if had.whole(ref.decode(), file):
            yield Piece(PieceKind.CONTAINER, term, 0, 0, size, size, ref)
            return
        for at in range(0, max(1, size), CHUNK_BYTES):
            part = file.read(min(CHUNK_BYTES, size - at), at)
            if len(part) != min(CHUNK_BYTES, size - at):
                return  # it is being removed: its message has ended
            yield Piece(PieceKind.CONTAINER, term, 0, at, size, payload=ref + part)
    finally:
        file.close()


def _given_up(reason: str) -> StreamBroken:
    return StreamBroken(peer="a new standby", reason=f"the copy of the pool is given up: {reason}")
