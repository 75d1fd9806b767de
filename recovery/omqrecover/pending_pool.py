"""The pool as the next start will see it: its files, with a complete double-write file over them.

A checkpoint that was cut leaves `checkpoint.dw`; the start writes its images before it reads
anything. Here they are laid over what is read, and nothing is written.

Errors: DiskError.
"""

from __future__ import annotations

from typing import Final

from omq.base.paths import SpoolPaths
from omq.format.double_write import DoubleWrite, decode, standing
from omq.format.pool import RECORD_BYTES
from omq.storage.files import File, read_file
from omq.storage.pool import DOUBLE_WRITE, PoolFiles

_BYTES_MAX: Final = 64 << 20  # more than a double-write file can have
Images = dict[int, bytes]  # record -> 512 bytes


class PatchedFile(File):
    """A pool file with images laid over it."""

    __slots__ = ("_images", "_size")

    def __init__(self, file: File, images: Images) -> None:
        super().__init__(file.fd, file.path)
        self._images = images
        self._size = max([file.size(), *((n + 2) * RECORD_BYTES for n in images)])

    def size(self) -> int:
        return self._size

    def read(self, length: int, offset: int) -> bytes:
        end = min(offset + length, self._size)
        data = bytearray(super().read(max(0, end - offset), offset).ljust(end - offset, b"\0"))
        for record, image in self._images.items():
            at = (record + 1) * RECORD_BYTES - offset
            if -RECORD_BYTES < at < len(data):
                begin = max(0, at)
                part = image[begin - at :][: len(data) - begin]
                data[begin : begin + len(part)] = part
        return bytes(data)


class PendingPool(PoolFiles):
    """Read-only; `pending` is how many images the next start will write."""

    def __init__(self, paths: SpoolPaths, uuid: bytes) -> None:
        super().__init__(paths, uuid, write=False)
        data = self._load(paths)
        self.double_write = decode(data, uuid)
        self.stands = standing(data, uuid)  # what the files may hold, with the images over them
        self._images: dict[int, Images] = {}
        if isinstance(self.double_write, DoubleWrite):
            for file, record, image in self.double_write.images:
                self._images.setdefault(file, {})[record] = image

    @staticmethod
    def _load(paths: SpoolPaths) -> bytes:
        try:
            return read_file(paths.msgpool / DOUBLE_WRITE, _BYTES_MAX)
        except FileNotFoundError:
            return b""

    @property
    def pending(self) -> int:
        return sum(map(len, self._images.values()))

    def _open(self, file: int) -> File | None:
        opened = super()._open(file)
        if opened is not None and file in self._images and not isinstance(opened, PatchedFile):
            opened = self._files[file] = PatchedFile(opened, self._images[file])
        return opened
