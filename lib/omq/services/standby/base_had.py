"""A copy that was cut goes on: the unfinished directory says with BASE what it has, and the primary
sends what differs.

    BASE payload   {"member": ..., "has": {"chunk": 1048576, "files": {NAME: [size, digests]}}}

NAME is that of a COPY (msgpool/..., store/...) or the reference of a container; `digests` has 32
hexadecimal digits (BLAKE2b, 16 bytes) for each chunk of the file, in order. An earlier omq does not
look at it and sends everything.

Invariants: 1. nothing is believed but what was read from the disk and hashed, by both sides, now:
which run wrote it, or in the middle of what it ended, is of no importance; 2. what is here and not
in the new copy goes (base_receiving); 3. only a directory that says of itself that it is an
unfinished copy (`copying`) is changed.

Crash argument: `copying` is made before anything else and removed behind instance.json. With it and
without instance.json the directory may have anything; with both the copy is whole.

Errors of `survey`: DiskError. Hostile words of a peer count as having nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from omq.base.paths import SpoolPaths
from omq.storage import durable
from omq.storage.files import File, open_file

CHUNK_BYTES: Final = 1 << 20
DIGEST_BYTES: Final = 16
TOLD_BYTES_MAX: Final = 64 << 20  # what is behind is copied again
MARKER: Final = "copying"


def marker(paths: SpoolPaths) -> Path:
    """What says that this is an unfinished copy."""
    return paths.root / MARKER


def digest(data: bytes) -> bytes:
    """Of a chunk."""
    return blake2b(data, digest_size=DIGEST_BYTES).digest()


def survey(paths: SpoolPaths) -> dict[str, Any]:
    """What is here, as BASE has it."""
    files, told = dict[str, list[Any]](), 0
    for name, path in _files(paths):
        file = open_file(path, write=True)
        try:
            file.settle()  # what is hashed is what the disk has
            size = file.size()
            found = b"".join(digest(file.read(CHUNK_BYTES, at))
                             for at in range(0, max(1, size), CHUNK_BYTES))
        finally:
            file.close()
        told += len(name) + 2 * len(found) + 32
        if told > TOLD_BYTES_MAX:
            break
        files[name] = [size, found.hex()]
    return {"chunk": CHUNK_BYTES, "files": files}


def _files(paths: SpoolPaths) -> Iterator[tuple[str, Path]]:
    for folder in (paths.msgpool, paths.store):
        for name in durable.list_directory(folder):
            yield f"{folder.name}/{name}", folder / name
    for directory in durable.list_directory(paths.data):
        for item in durable.list_directory(paths.data / directory):
            yield f"~/data/{directory}/{item}", paths.data / directory / item


def forget_others(paths: SpoolPaths, names: set[str]) -> None:
    """Remove what an earlier run has copied and this one has not. DiskError."""
    for name, path in [*_files(paths)]:
        if name not in names:
            durable.unlink(path)


class Had:
    """What the other side says that it has. `told`: the value of `has`, whatever it is."""

    def __init__(self, told: object = None) -> None:
        self._files = dict[str, tuple[int, bytes]]()
        if not isinstance(told, dict) or told.get("chunk") != CHUNK_BYTES or (
                not isinstance(told.get("files"), dict)):
            return
        for name, value in told["files"].items():
            if isinstance(value, list) and len(value) == 2 and isinstance(value[0], int) and (
                    isinstance(value[1], str)):
                try:
                    self._files[name] = value[0], bytes.fromhex(value[1])
                except ValueError:
                    continue

    def chunk(self, name: str, at: int, data: bytes) -> bool:
        """Has it these bytes there? `at`: a multiple of CHUNK_BYTES."""
        _, digests = self._files.get(name, (0, b""))
        first = at // CHUNK_BYTES * DIGEST_BYTES
        return bool(data) and digests[first : first + DIGEST_BYTES] == digest(data)

    def whole(self, name: str, file: File) -> bool:
        """Has it all of this file?"""
        size, _ = self._files.get(name, (-1, b""))
        return size == file.size() > 0 and all(
            self.chunk(name, at, file.read(CHUNK_BYTES, at)) for at in range(0, size, CHUNK_BYTES))
