"""The file of a dump or of an exported message: where it may lie, and how it appears there.

Invariants: 1. it is written under a new name and renamed when it is whole, mode 0640; what stood
there is replaced if it is a regular file, and a link is never written through; 2. inside the spool
only temp/ is written, so that no answer to a prompt can destroy a message.
Errors: FileNotWritten, BadItemRef.
"""

from __future__ import annotations

import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from omq.base.errors import DiskError, FileNotWritten, OmqError, SpoolFull
from omq.base.names import escape
from omq.base.paths import SpoolPaths
from omq.storage import containers, durable
from omq.storage.files import File, create_file

_CHUNK_CHARACTERS: Final = 1 << 19
_TEMP: Final = "~/temp/"


def default_reference() -> str:
    """A fresh item reference in the temp domain: `~/temp/00008b0`."""
    return _TEMP + containers.new_item_ref().rpartition("/")[2]


def dump_path(paths: SpoolPaths, answer: str) -> Path:
    """The path that an operator means: an item reference of the temp domain, or a file name."""
    if answer.startswith("~"):
        relative = containers.relative_path(answer)
        if not relative.startswith("temp/"):
            raise FileNotWritten(path=answer, reason="containers of messages lie there")
        return paths.root / relative
    path = Path(answer).absolute()
    try:
        folder = path.parent.resolve()
        root, temp = paths.root.resolve(), paths.temp.resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise FileNotWritten(path=escape(answer), reason=escape(str(error))) from error
    if folder.is_relative_to(root) and folder != temp:
        raise FileNotWritten(path=escape(answer), reason=f"of the spool only {temp} may be used")
    return path


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Write pieces of one or more lines; how many lines. Memory does not depend on their number."""
    counted = 0

    def chunks() -> Iterator[bytes]:
        nonlocal counted
        for chunk in _chunks(lines):
            data = "\n".join((*chunk, "")).encode()
            counted += data.count(b"\n")
            yield data

    write_bytes(path, chunks())
    return counted


def write_bytes(path: Path, chunks: Iterable[bytes]) -> int:
    """Write these bytes; how many."""
    try:
        found = durable.status(path)
        temporary = path.with_name(f".{secrets.token_hex(8)}.omqdump")
        if found is not None and not stat.S_ISREG(found.st_mode):
            raise FileNotWritten(path=escape(str(path)), reason="it is not a regular file")
        file = create_file(temporary)
    except (DiskError, SpoolFull, OSError, ValueError) as error:
        raise _failure(path, error) from error
    complete = False
    try:
        count = _write(file, path, chunks)
        _rename(temporary, path)
        complete = True
    finally:
        file.close()
        if not complete:
            durable.unlink(temporary, sync=False)
    return count


def _rename(temporary: Path, path: Path) -> None:
    # Not durable.rename: a folder of somebody else's must not latch an error of the spool.
    try:
        durable.current().rename(str(temporary), str(path))
    except OSError as error:
        raise _failure(path, error) from error


def _write(file: File, path: Path, chunks: Iterable[bytes]) -> int:
    at = 0
    for data in chunks:
        try:
            file.write([data], at, new=True)
        except (DiskError, SpoolFull) as error:
            raise _failure(path, error) from error
        at += len(data)
    return at


def _chunks(lines: Iterable[str]) -> Iterator[list[str]]:
    chunk, size = list[str](), 0
    for piece in lines:
        chunk.append(piece)
        size += len(piece)
        if size >= _CHUNK_CHARACTERS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _failure(path: Path, error: Exception) -> FileNotWritten:
    reason = str(error)
    if isinstance(error, OmqError):  # its own words are about the spool
        reason = str(error.fields.get("reason") or error.fields.get("detail"))
    return FileNotWritten(path=escape(str(path)), reason=escape(reason))
