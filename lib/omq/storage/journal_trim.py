"""The rest of a journal file that nobody appends to any more: zeros, whose room goes back to the
disk.

A start opens a new file (storage.journal, invariant 1), and what the one before had left over is
never written. Without this a manager that is killed again and again takes the size of a whole file
each time, until pool.writer retires them.

Invariant: only bytes that are zeros are given back, and they read as zeros, so the file is the same
before, in the middle of and after this, for every reader: the size stays, too. Torn or damaged
bytes after the last block are not zeros and stay as they are.

In the middle of a crash: the room was given back or not. What is read here was settled by recovery,
so it is what the disk has. A file system that cannot do it (or refuses) keeps the room taken: it
costs nothing but that.
"""

from __future__ import annotations

from typing import Final

from omq.base.paths import SpoolPaths
from omq.storage import durable
from omq.storage.files import open_file
from omq.storage.journal import file_name

_STEP: Final = 1 << 20
_PAGE: Final = 4096
_ZEROS: Final = bytes(_STEP)


def give_back(paths: SpoolPaths, number: int) -> int:
    """Bytes at the end of file `number` whose room was given back. DiskError."""
    try:
        file = open_file(paths.journal / file_name(number), write=True)
    except FileNotFoundError:
        return 0  # it was retired, or there is none
    try:
        size = file.size()
        begin = size
        while begin and file.read(min(_STEP, begin), max(0, begin - _STEP)) == _ZEROS[:begin]:
            begin = max(0, begin - _STEP)
        piece = file.read(min(_STEP, begin), max(0, begin - _STEP)).rstrip(b"\0")
        begin = max(0, begin - _STEP) + len(piece)
        begin += -begin % _PAGE
        if begin >= size:
            return 0
        try:
            durable.current().punch(file.fd, begin, size - begin)
        except OSError:
            return 0
        return size - begin
    finally:
        file.close()
