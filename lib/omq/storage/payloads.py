"""Read the payload of a message wherever it lies: journal, archive, store or volatile file.

Invariants: 1. at most `files_max` files are open, the one unused longest is closed first; 2. the
bytes are returned as they are: their CRC, which the submitter computed, is checked by the caller;
3. a length is bounded before anything is read.

Errors: BodyUnavailable with where and why, AccessDenied for who may not read the files; never
OSError.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from operator import add
from pathlib import Path
from typing import Final

from omq.base import limits
from omq.base.errors import AccessDenied, BodyUnavailable, DiskError
from omq.base.paths import SpoolPaths
from omq.format.location import LocationKind, kind_of, number_of
from omq.storage import durable, journal, store, volatile
from omq.storage.files import File, open_file

FILES_MAX: Final = 64
"""Open files of one reader: enough for the files that its next messages lie in."""
GAP_BYTES: Final = 16 * limits.KIB
"""Between two payloads that are read at once: less than what a read of its own costs."""
RUN_BYTES_MAX: Final = 4 * limits.MIB
"""Of payloads that are read at once; a larger one is read alone."""
PAYLOAD_BYTES_MAX: Final = limits.BODY_BYTES_MAX + limits.MIB
"""A body and all that precedes it."""


def payload_paths(paths: SpoolPaths, word: int) -> list[Path]:
    """Where the file of a location may be, likeliest first; empty for an unknown kind."""
    kind, number = kind_of(word), number_of(word)
    if kind == LocationKind.JOURNAL:
        name = journal.file_name(number)
        return [paths.journal / name, paths.archive / name]  # retired while we looked
    if kind == LocationKind.STORE:
        return [paths.store / store.file_name(number)]
    if kind == LocationKind.VOLATILE:
        return [paths.volatile / volatile.file_name(number)]
    return []


class PayloadReader:
    """Reads payloads, keeping files open. Not for several threads at once."""

    def __init__(self, paths: SpoolPaths, files_max: int = FILES_MAX) -> None:
        self.paths = paths
        self._files_max = files_max
        self._files: OrderedDict[int, File] = OrderedDict()

    def read(self, word: int, offset: int, length: int, qpool: int = 0) -> bytes:
        """`length` payload bytes at `offset` of the file that the location word names."""
        if length > PAYLOAD_BYTES_MAX:
            raise self._unavailable(qpool, word, f"{length} bytes is not the length of a payload")
        file = self._open(word, qpool)
        try:
            data = file.read(length, offset)
        except DiskError as error:
            raise self._unavailable(qpool, word, str(error)) from error
        if len(data) != length:
            raise self._unavailable(qpool, word, f"the file ends in it ({len(data)} of {length} B)")
        return data

    def read_now(self, word: int, offset: int, length: int) -> bytes | None:
        """The same if its file is open and nothing has to be waited for; None: ask `read`, which
        says what is wrong, too."""
        file = self._files.get(word)
        if file is None or length > PAYLOAD_BYTES_MAX:
            return None
        try:
            return durable.current().pread_now(file.fd, length, offset)
        except OSError:
            return None

    def read_runs(self, word: int, offsets: Sequence[int], lengths: Sequence[int]
                  ) -> Iterator[tuple[int, int, bytes]]:
        """Many payloads of one file, by ascending offsets, neighbours read together: (how many,
        offset of the first, the bytes from there on). The bytes may be too few, or none at all:
        `read` says why."""
        for begin, end in _runs(offsets, lengths):
            stop = max(map(add, offsets[begin:end], lengths[begin:end]))
            data = b""
            if stop - offsets[begin] <= PAYLOAD_BYTES_MAX:
                with suppress(BodyUnavailable, DiskError):
                    data = self._open(word, 0).read(stop - offsets[begin], offsets[begin])
            yield end - begin, offsets[begin], data

    def _open(self, word: int, qpool: int) -> File:
        file = self._files.get(word)
        if file is not None:
            self._files.move_to_end(word)
            return file
        for path in payload_paths(self.paths, word):
            try:
                file = open_file(path)
            except FileNotFoundError:
                continue
            except AccessDenied:
                raise  # not the body's fault
            except DiskError as error:
                raise self._unavailable(qpool, word, str(error)) from error
            if len(self._files) >= self._files_max:
                self._files.popitem(last=False)[1].close()
            self._files[word] = file
            return file
        raise self._unavailable(qpool, word, "there is no such file")

    def _unavailable(self, qpool: int, word: int, reason: str) -> BodyUnavailable:
        known = payload_paths(self.paths, word)
        where = known[0] if known else f"location {word:#010x}"
        return BodyUnavailable(qpool_id=qpool, where=where, reason=reason)

    def close(self) -> None:
        """Close all files; reading opens them again."""
        while self._files:
            self._files.popitem()[1].close()


def _runs(offsets: Sequence[int], lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """What to read at once, as [begin, end)."""
    begin = 0
    for i in range(1, len(offsets)):
        if (offsets[i] - offsets[i - 1] - lengths[i - 1] > GAP_BYTES
                or offsets[i] + lengths[i] - offsets[begin] > RUN_BYTES_MAX):
            yield begin, i
            begin = i
    if offsets:
        yield begin, len(offsets)


def read_payload(paths: SpoolPaths, word: int, offset: int, length: int, qpool: int = 0) -> bytes:
    """One payload, for tools; PayloadReader is for many."""
    reader = PayloadReader(paths, files_max=1)
    try:
        return reader.read(word, offset, length, qpool)
    finally:
        reader.close()
