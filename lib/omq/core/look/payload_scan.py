"""Which of many messages have certain bytes in their payloads: a first sieve for --where.

The payload files are read in windows, as they lie, and searched for the bytes as a whole; nothing
is decoded. So a million messages cost reading them. Who passes the sieve is looked at properly by
the caller: a hit may be anywhere in the payload. What cannot be read passes, so that the caller
meets the error.

Invariants: 1. nobody whose payload holds one of the needles is left out; 2. a window is at most
WINDOW_BYTES and one payload; 3. large amounts are shared with forked processes, which only read,
and whose part is done here if one of them fails.
Errors: AccessDenied.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from omq.base import limits
from omq.base.arrays import Vector
from omq.base.paths import SpoolPaths
from omq.storage.payloads import PayloadReader

WINDOW_BYTES: Final = 4 * limits.MIB
ALONE_BYTES_MAX: Final = 128 * limits.MIB
"""Up to here a second process costs more than it brings."""
PROCESSES_MAX: Final = 4
Window = tuple[int, Vector]  # location word; rows, by ascending offset


def holding(paths: SpoolPaths, words: Vector, offsets: Vector, lengths: Vector,
            needles: Sequence[bytes]) -> Vector:
    """Mask of the messages whose payloads (at these places) may hold one of the needles."""
    out = np.zeros(len(words), dtype=bool)
    places = (words, offsets.astype(np.int64), lengths.astype(np.int64))
    windows = list(_windows(*places))
    count = min(PROCESSES_MAX, len(os.sched_getaffinity(0)), len(windows))
    if count < 2 or int(places[2].sum()) <= ALONE_BYTES_MAX:
        _search(paths, windows, places, needles, out)
        return out
    parts = [windows[part::count] for part in range(count)]
    children = [_fork(paths, part, places, needles) for part in parts[1:]]
    _search(paths, parts[0], places, needles, out)
    for part, (pid, stream) in zip(parts[1:], children, strict=True):
        with os.fdopen(stream, "rb") as file:
            found = file.read()
        _, status = os.waitpid(pid, 0)
        if status == 0 and len(found) == len(out):
            out |= np.frombuffer(found, dtype=bool)
        else:
            _search(paths, part, places, needles, out)
    return out


def _fork(paths: SpoolPaths, windows: list[Window], places: tuple[Vector, Vector, Vector],
          needles: Sequence[bytes]) -> tuple[int, int]:
    """(pid, where its mask comes) of a process that searches these."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    code = 1
    try:
        out = np.zeros(len(places[0]), dtype=bool)
        _search(paths, windows, places, needles, out)
        with os.fdopen(writing, "wb") as file:
            file.write(out.tobytes())
        code = 0
    finally:
        os._exit(code)


def _windows(words: Vector, offsets: Vector, lengths: Vector) -> Iterator[Window]:
    order = np.lexsort((offsets, words))
    sorted_words, steps = words[order], offsets[order] // WINDOW_BYTES
    if not len(order):
        return
    new = np.flatnonzero((np.diff(sorted_words.astype(np.int64)) != 0) | (np.diff(steps) != 0)) + 1
    for rows in np.split(order, new):
        yield int(words[rows[0]]), rows


def _search(paths: SpoolPaths, windows: Sequence[Window], places: tuple[Vector, Vector, Vector],
            needles: Sequence[bytes], out: Vector) -> None:
    _, offsets, lengths = places
    reader = PayloadReader(paths, files_max=4)
    try:
        for word, rows in windows:
            begins = offsets[rows]
            ends = begins + lengths[rows]
            first, span = int(begins[0]), int(ends.max() - begins[0])
            ((_, _, data),) = reader.read_runs(word, [first], [span])
            if len(data) < span:
                out[rows] = True
                continue
            for needle in needles:
                for hit in _hits(data, needle, (begins - first).tolist(), (ends - first).tolist()):
                    out[rows[hit]] = True
    finally:
        reader.close()


def _hits(data: bytes, needle: bytes, begins: list[int], ends: list[int]) -> Iterator[int]:
    """The payloads, by number, that hold the needle."""
    at, number, count = data.find(needle, begins[0]), 0, len(begins)
    while at >= 0:
        while number < count and ends[number] < at + len(needle):
            number += 1
        if number == count:
            return
        if begins[number] <= at:
            yield number
            number += 1
            if number == count:
                return
            at = data.find(needle, begins[number])
        else:
            at = data.find(needle, begins[number])
