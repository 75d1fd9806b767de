"""A file that is there becomes the body of a message.

The client opens it, with its own rights and once: all that follows is by that descriptor, so what
happens to the name matters no more. Where spool and file are on one file system that can, the
spool's owner makes a container that shares the file's blocks (storage.containers.clone): a moment's
picture of it, whatever others write meanwhile. Else the file is copied, by others than the owner
into a memory file that the manager copies (ADR 0021), and one that is changed meanwhile is refused.

In the middle of a crash: as for every body, the container is whole and durable before the put; the
file itself is only read.

Errors: BadArgument, FileNotPut, FileChanged, FileNotShared, AccessDenied, MessageTooLong; those of
put.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from omq.base import access
from omq.base.errors import FileChanged, FileNotPut, FileNotShared, MessageTooLong
from omq.base.names import escape
from omq.ipc.client.bodies import PIECE_BYTES
from omq.ipc.client.body_pieces import Poured
from omq.ipc.client.put_arguments import without_body
from omq.ipc.wire import arguments
from omq.ipc.wire.outgoing import Outgoing

if TYPE_CHECKING:
    from omq.ipc.client.bodies import Bodies
    from omq.ipc.client.connection_parts import Wire

_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
_RULE: Final = "it is a path, or a file that is open for reading"
_KINDS: Final = {stat.S_IFDIR: "it is a directory", stat.S_IFIFO: "it is a pipe",
                 stat.S_IFSOCK: "it is a socket", stat.S_IFCHR: "it is a device",
                 stat.S_IFBLK: "it is a device"}
_LINK: Final = "it is a symbolic link: name the file itself"


class FilePut(NamedTuple):
    """What became of a file that was put."""

    message_id: str
    size: int  # bytes
    shared: bool  # its blocks are shared; False: they were copied


def put_file(put: Callable[..., str], wire: Wire, queues: str | Sequence[str], file: Any,
             outgoing: Outgoing | None, *, copy: bool) -> FilePut:
    """As Connection.put_file, which calls it. `put`: Connection.put."""
    arguments.flag(copy, "copy")
    message, listed, first = without_body(wire, queues, outgoing)
    limit = wire.facts(first).length_max
    source = Source(file)
    try:
        if source.size > limit:
            raise MessageTooLong(size=source.size, queue=first, limit=limit)
        if source.size <= wire.link.threshold:
            body = b"".join(source.pieces())
            return FilePut(put(listed, outgoing=replace(message, body=body)), len(body),
                           shared=False)
        taken = _Taken(wire.bodies, first, source, copy=copy)
        try:
            answer = wire.with_bodies((message,), listed, lambda new: wire.put_one(new[0], first),
                                      taken.contain)
        finally:
            taken.close()
        return FilePut(wire.id_text(answer.qpool, message), source.size, taken.shared)
    finally:
        source.close()


class Source:
    """The file, open. `size`: when it was opened."""

    def __init__(self, file: str | os.PathLike[str] | BinaryIO | int) -> None:
        self.path = str(file)
        self.fd = _descriptor(file)
        try:
            found = os.fstat(self.fd)
            if not stat.S_ISREG(found.st_mode):
                raise FileNotPut(path=escape(self.path), reason=_KINDS.get(
                    stat.S_IFMT(found.st_mode), "it is not a file"))
            self._read(0, 0)
        except BaseException:
            self.close()
            raise
        self.size = found.st_size
        self._seen = _marks(found)

    def pieces(self) -> Iterator[bytes]:
        """All of it, as long as it is what was opened. FileChanged, FileNotPut."""
        at = 0
        while piece := self._read(at):
            at += len(piece)
            if at > self.size:
                break
            yield piece
        if at != self.size:
            raise FileChanged(path=escape(self.path), reason=f"it has not its {self.size} bytes")
        self.check()

    def check(self) -> None:
        """It is what was opened. FileChanged."""
        if (seen := _marks(os.fstat(self.fd))) != self._seen:
            reason = f"from {self.size} to {seen[0]} bytes" if seen[0] != self.size else (
                "its times say so")
            raise FileChanged(path=escape(self.path), reason=reason)

    def _read(self, at: int, length: int = PIECE_BYTES) -> bytes:
        try:
            return os.pread(self.fd, length, at)
        except OSError as error:
            reason = "it is not open for reading" if error.errno == errno.EBADF else (
                error.strerror or str(error))
            raise FileNotPut(path=escape(self.path), reason=reason) from error

    def close(self) -> None:
        os.close(self.fd)


def _marks(found: os.stat_result) -> tuple[int, ...]:
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _descriptor(file: Any) -> int:
    """A descriptor of our own. BadArgument, FileNotPut, AccessDenied."""
    if isinstance(file, str | os.PathLike):
        return _opened(os.fspath(file))
    if isinstance(file, bool) or not (isinstance(file, int) or hasattr(file, "fileno")):
        raise arguments.wrong("file", file, _RULE)
    try:
        return os.dup(file if isinstance(file, int) else file.fileno())
    except (OSError, ValueError, OverflowError) as error:  # closed, or of memory
        raise arguments.wrong("file", file, _RULE) from error


def _opened(path: Any) -> int:
    try:
        return os.open(path, _FLAGS)
    except PermissionError as error:
        raise access.denied(path, error) from error
    except (OSError, ValueError) as error:
        reason = str(getattr(error, "strerror", None) or error)
        if isinstance(error, OSError) and error.errno == errno.ELOOP:
            reason = _LINK
        raise FileNotPut(path=escape(str(path)), reason=reason) from error


class _Taken:
    """Makes the container of one put; `shared`: its blocks are the file's."""

    def __init__(self, bodies: Bodies, queue: str, source: Source, *, copy: bool) -> None:
        self._bodies, self._source, self._copy = bodies, source, copy
        self._poured = Poured(bodies, queue, source.pieces())
        self.shared = False

    def contain(self, body: bytes) -> tuple[str, int, int]:
        """As outgoing.Contain; again when the manager is another one."""
        if self._bodies.owns:
            made = self._bodies.clone(self._source.fd, self._source.check)
            if made is not None:
                self.shared = True
                return made
        if not self._copy:
            reason = "the file system of the spool cannot, or it is on another one" if (
                self._bodies.owns) else "only the owner of the spool can"
            raise FileNotShared(path=escape(self._source.path), reason=reason)
        if self._bodies.owns:
            return self._bodies.pour(self._source.pieces())
        return self._poured.contain(body)

    def close(self) -> None:
        self._poured.close()
