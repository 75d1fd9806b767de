"""A large body on its way to the manager: a sealed memory file, passed as a descriptor.

The submitter writes the body into a memfd and seals it: nobody can change, shorten or lengthen it
any more. So the manager may copy it at its own pace, and nobody ever holds a descriptor that could
write into the spool (ADR 0021).

Errors: BadRequest (check), OSError.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from typing import Final

from omq.base.errors import BadRequest
from omq.storage import containers

_SEALS: Final = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def seal_pieces(pieces: Iterable[bytes]) -> int:
    """A descriptor of a sealed memory file with this body; the caller closes it."""
    descriptor = os.memfd_create("omq-body", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        for piece in pieces:
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS | fcntl.F_SEAL_SEAL)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check(descriptor: int, size: int) -> None:
    """A foreign descriptor is what `seal` makes: BadRequest. A file, a pipe or a file system of the
    sender's own could block its reader or change under it; a sealed memory file cannot."""
    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
        found = os.fstat(descriptor).st_size
    except OSError as error:
        raise BadRequest(reason="a large body comes as a sealed memory file (memfd_create)"
                         ) from error
    if seals & _SEALS != _SEALS or found != size:
        raise BadRequest(reason=f"a large body of {size} bytes: the memory file has {found} bytes "
                         f"and seals {seals:#x}")


def chunks(descriptor: int, size: int) -> Iterator[bytes]:
    """The body in pieces."""
    at = 0
    while at < size:
        piece = os.pread(descriptor, min(containers.CHUNK_BYTES, size - at), at)
        if not piece:
            raise BadRequest(reason="the memory file ends early")
        yield piece
        at += len(piece)
