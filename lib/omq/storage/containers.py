"""Containers: one file for each large message, named by an item reference like the original's.

    ~/data/0000005/000084u        the spool's data/0000005/000084u         ~/temp/000084u    its
    temp/

Invariants:
1. A reference has exactly the form above before any path is made of it; then it is opened by
   Disk.open_beneath, which cannot leave the spool and follows no link; what is opened is a regular
   file with one name.
2. `create` returns when the file, its directory and the directory above are synced (of a spare one
   they were when it was made or renamed): the submitter does that before the put, so a message
   never names a container that a crash can take away.
3. Names are unique over processes: made with O_EXCL, from a random start in each process.

In the middle of a crash: a container without a message is garbage that omqcheck finds; a message is
never without its container.

Errors: BadItemRef, FileNotFoundError (open_item), BodyUnavailable (read_item), DiskError
(AccessDenied where the user has not the right), SpoolFull.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, Protocol

from omq.base import access, modes
from omq.base.checksum import crc32c
from omq.base.errors import AccessDenied, BadItemRef, BodyUnavailable, DiskError
from omq.base.names import escape
from omq.base.paths import SpoolPaths
from omq.storage import durable
from omq.storage.disk import Buffer
from omq.storage.files import File

_REF = re.compile(r"~/((?:data/[0-9a-z]{7}|temp)/[0-9a-z]{7})")
REF_BYTES: Final = len("~/data/0000000/0000000")
"""Of the reference of a container."""
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_NAMES: Final = 36**7
CHUNK_BYTES: Final = 256 << 10
"""Of a body are written at once: the kernel looks for memory in one piece for each write, and that
of 1 MiB took it up to 2 ms where four of these take 0.4."""
OVERWRITE_BYTES: Final = 1 << 20
"""The same where memory and blocks are there: one call is quicker than four."""
DIRECTORY_ITEMS: Final = 1000
"""Items of one process in one directory: keeps directories short; empty ones are removed."""


def _base36(number: int) -> str:
    digits = ""
    for _ in range(7):
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits


class Spares(Protocol):
    """Containers made ahead, and used again (storage.spare_containers)."""

    def take(self, size: int = 0) -> tuple[str, File, int] | None: ...


class _Names:
    """This process's next directory and item; drawn anew after a fork."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.directory = secrets.randbelow(_NAMES)
        self.item = secrets.randbelow(_NAMES)
        self.made = 0

    def next(self) -> tuple[str, str]:
        self.item = (self.item + 1) % _NAMES
        self.made += 1
        if self.made % DIRECTORY_ITEMS == 0:
            self.directory = (self.directory + 1) % _NAMES
        return _base36(self.directory), _base36(self.item)


_names = _Names()


def new_item_ref() -> str:
    """A reference that this process has not used; `create` finds out whether anybody has."""
    global _names
    if _names.pid != os.getpid():
        _names = _Names()
    directory, item = _names.next()
    return f"~/data/{directory}/{item}"


def relative_path(ref: str) -> str:
    """`data/0000005/000084u`, relative to the spool. BadItemRef."""
    match = _REF.fullmatch(ref)
    if match is None:
        raise BadItemRef(ref=escape(ref, 64), reason="not of the form ~/data/xxxxxxx/xxxxxxx")
    return match[1]


def path_of(paths: SpoolPaths, ref: str) -> Path:
    """The path of a container. BadItemRef."""
    return paths.root / relative_path(ref)


def create(paths: SpoolPaths, chunks: Iterable[Buffer], spares: Spares | None = None,
           size_expected: int = 0) -> tuple[str, int, int]:
    """Write a container durably: (item reference, bytes, CRC-32C). Nothing stays when it fails.
    `spares`: where one may be taken whose name is on the disk; one of about `size_expected` bytes
    that is written over, if that is known."""
    def pour(file: File, there: int) -> tuple[int, int]:
        size = crc = 0
        for together in _together(chunks, OVERWRITE_BYTES if there else CHUNK_BYTES):
            file.write(together, size, new=True)
            if there:
                durable.current().begin_write(file.fd)  # it goes on while the CRC is made
            for chunk in together:
                size += len(chunk)
                crc = crc32c(chunk, crc)
        return size, crc

    made = _made(paths, pour, spares, size_expected)
    assert made is not None
    return made


def _together(chunks: Iterable[Buffer], least: int) -> Iterator[list[Buffer]]:
    """As many at once as have `least` bytes."""
    found: list[Buffer] = []
    held = 0
    for chunk in chunks:
        if chunk:
            found.append(chunk)
            held += len(chunk)
        if held >= least:
            yield found
            found, held = [], 0
    if found:
        yield found


def clone(paths: SpoolPaths, source: int, shared: Callable[[], None], spares: Spares | None = None
          ) -> tuple[str, int, int] | None:
    """The same of a file that is there already (its descriptor), of which no byte is copied: they
    share their blocks. None: the file system cannot do that. `shared` is called when they do, and
    may raise.

    What is read for the CRC is the container's. In the middle of a crash: before the blocks are
    shared the kernel has written those of the source, the sync of the container is after that, and
    the put after the sync, as for every container."""
    def share(file: File, _: int) -> tuple[int, int] | None:
        if not file.clone(source):
            return None
        shared()
        size = crc = 0
        while chunk := file.read(CHUNK_BYTES, size):
            size += len(chunk)
            crc = crc32c(chunk, crc)
        return size, crc

    return _made(paths, share, spares)


def _made(paths: SpoolPaths, fill: Callable[[File, int], tuple[int, int] | None],
          spares: Spares | None, size_expected: int = 0) -> tuple[str, int, int] | None:
    """A container with what `fill` gives it, which gets how many bytes are there to be
    written over, and says its size and CRC; None: there is none."""
    durable.check_latch()
    spare = spares.take(size_expected) if spares is not None else None
    ref, file, there = spare or (*create_empty(paths), 0)
    complete = False
    try:
        if (filled := fill(file, there)) is None:
            return None
        _sync_written(file, filled[0], there)
        if spare is None:
            durable.sync_directory(file.path.parent)
            durable.sync_directory(paths.data)
        complete = True
    finally:
        file.close()
        if not complete and durable.latched() is None:
            durable.unlink(file.path, sync=False)
    return ref, *filled


def _sync_written(file: File, size: int, there: int) -> None:
    """Its `size` bytes are on the disk, and no more, where there were `there` bytes before. One of
    the same length has all that it needs to be read but its bytes: fdatasync leaves its times, for
    which the file system would have to write its own journal."""
    if size == there:
        file.sync(new=True)
        return
    if size < there:
        try:
            durable.current().truncate(file.fd, size)
        except OSError as error:
            raise durable.failure("truncate", file.path, error, new=True) from error
    file.sync_all(new=True)


def create_empty(paths: SpoolPaths) -> tuple[str, File]:
    """An empty one that nobody else has, open for writing; its name is not synced, but for that of
    its directory. DiskError, SpoolFull."""
    while True:
        ref = new_item_ref()
        path = path_of(paths, ref)
        try:
            try:
                return ref, _open_new(paths, ref)
            except FileNotFoundError:  # its directory is new, or was empty and somebody removed it
                durable.make_directory(path.parent)
                return ref, _open_new(paths, ref)
        except (FileNotFoundError, FileExistsError):
            continue  # removed again, or taken: the next name
        except OSError as error:
            raise durable.refusal("create", path, error) from error


def _open_new(paths: SpoolPaths, ref: str) -> File:
    relative = relative_path(ref)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
    fd = durable.current().open_beneath(str(paths.root), relative, flags)
    return File(fd, paths.root / relative, "container")


def open_spare(paths: SpoolPaths, ref: str) -> File | None:
    """An empty one that `create_empty` made, open for writing; None: it is not there, or not as it
    was."""
    try:
        fd = durable.current().open_beneath(str(paths.root), relative_path(ref), os.O_RDWR)
    except OSError:
        return None  # another one is made
    found = durable.current().fstat(fd)
    file = File(fd, path_of(paths, ref), "container")
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_size:
        file.close()
        return None
    return file


def open_again(paths: SpoolPaths, ref: str) -> File:
    """A container, made or emptied, for who writes another spool's anew; its name is not synced.
    BadItemRef, DiskError, SpoolFull."""
    relative, path = relative_path(ref), path_of(paths, ref)
    if durable.status(path.parent) is None:
        durable.make_directory(path.parent)
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK
    try:
        fd = durable.current().open_beneath(str(paths.root), relative, flags)
    except OSError as error:
        raise durable.refusal("create", path, error) from error
    file = File(fd, path, "container")
    found = durable.current().fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        file.close()
        raise BadItemRef(ref=ref, reason="not a regular file with one name")
    return file


def give_out(file: File) -> None:
    """Before the path or a descriptor of a container goes to where omq does not see what is done
    with it: its file is not used again. Pages of it may be on their way through a pipe or a socket
    when the last descriptor is closed. This needs no sync: they do not outlive the kernel.
    DiskError, AccessDenied."""
    disk = durable.current()
    try:
        mode = stat.S_IMODE(disk.fstat(file.fd).st_mode)
        if not mode & modes.GIVEN_OUT:
            disk.chmod(file.fd, mode | modes.GIVEN_OUT)
    except OSError as error:
        raise durable.refusal("chmod", file.path, error) from error


def open_item(paths: SpoolPaths, ref: str) -> File:
    """A container, open for reading. BadItemRef when it is refused, FileNotFoundError.

    It has its name yet when it is open: who makes a spare of one whose message has ended asks, when
    the name is gone, who has it open (storage.recycled_containers), and this finds who opened it
    after that, having found the name before."""
    relative, disk = relative_path(ref), durable.current()
    try:
        fd = _open_when_it_may(paths, relative)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(f"container {ref} is missing") from error
    except PermissionError as error:
        raise access.denied(paths.root / relative, error) from error
    except OSError as error:
        raise BadItemRef(ref=ref, reason=error.strerror) from error
    file = File(fd, paths.root / relative, "container")
    found, named = disk.fstat(fd), durable.status(file.path)
    if named is None or (named.st_dev, named.st_ino) != (found.st_dev, found.st_ino):
        file.close()
        raise FileNotFoundError(f"container {ref} is missing: it went while it was opened")
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        file.close()
        raise BadItemRef(ref=ref, reason="not a regular file with one name")
    return file


def _open_when_it_may(paths: SpoolPaths, relative: str) -> int:
    """A FIFO must not hang us; but for who has a lease (Disk.lease) the kernel has us wait."""
    disk, flags = durable.current(), os.O_RDONLY
    try:
        return disk.open_beneath(str(paths.root), relative, flags | os.O_NONBLOCK)
    except BlockingIOError:
        if not stat.S_ISREG(disk.lstat(str(paths.root / relative)).st_mode):
            raise
    return disk.open_beneath(str(paths.root), relative, flags)


def read_item(paths: SpoolPaths, ref: str, size: int, qpool: int = 0) -> bytes:
    """The whole content, which must have `size` bytes; the CRC is for the caller."""
    try:
        file = open_item(paths, ref)
        try:
            data = file.read(size + 1, 0)
        finally:
            file.close()
    except AccessDenied:
        raise  # not the body's fault
    except (FileNotFoundError, DiskError) as error:
        raise BodyUnavailable(qpool_id=qpool, where=ref, reason=str(error)) from error
    if len(data) != size:
        reason = f"its length is not {size} bytes"
        raise BodyUnavailable(qpool_id=qpool, where=ref, reason=reason)
    return data


def remove(paths: SpoolPaths, ref: str, *, sync: bool = True) -> bool:
    """Remove a container, tolerant of what is gone (False), and its directory when that is empty.

    With `sync` a power cut cannot bring it back; without, an orphan may be left to omqcheck."""
    path = path_of(paths, ref)
    durable.step("container.before_unlink", path)
    if not _is_inside(paths, path):
        return False
    _cut(path)
    removed = durable.unlink(path, sync=False)
    if removed and sync:
        durable.sync_removal(path.parent)
    if path.parent != paths.temp:
        durable.remove_directory(path.parent)
    return removed


def remove_unused(paths: SpoolPaths, ref: str) -> bool | None:
    """The same; but None, and it stays, where somebody has it open: the writer of a body whose put
    is to come, stopped for however long. Nobody opens it meanwhile. Where the kernel cannot tell,
    it is removed."""
    disk = durable.current()
    try:
        fd = disk.open_beneath(str(paths.root), relative_path(ref), os.O_RDONLY | os.O_NONBLOCK)
    except BlockingIOError:
        return None
    except OSError:
        return remove(paths, ref)
    try:
        disk.lease(fd)
    except BlockingIOError:
        disk.close(fd)
        return None
    except OSError:
        pass  # as on NFS
    try:
        return remove(paths, ref)
    finally:
        disk.close(fd)


def _cut(path: Path) -> None:
    """Give its space back even while a client has it open. What fails here fails in the unlink, or
    is not worth more: the file goes all the same."""
    disk = durable.current()
    with contextlib.suppress(OSError):
        fd = disk.open(str(path), os.O_WRONLY | os.O_NONBLOCK)
        try:
            found = disk.fstat(fd)
            if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
                disk.truncate(fd, 0)
        finally:
            disk.close(fd)


def _is_inside(paths: SpoolPaths, path: Path) -> bool:
    """Whether the directory of a container is a directory of the spool and no link to elsewhere."""
    found = durable.status(path.parent)
    return found is not None and stat.S_ISDIR(found.st_mode) and paths.root in path.parents
