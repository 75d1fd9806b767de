"""The files of storage objects that a test itself made and left: closed when it ends.

Many tests go on with a new object where a process would have died, and the kernel closes a dead
process's files. Only what a test opened through the storage layer directly is the test's: what the
layers above opened they have to close, and tests.descriptors looks after them. In a test marked
`dies` a process of the product dies in the middle, so those are closed too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from types import FrameType

import pytest

from omq.storage.files import File
from tests.tidy.tree import PRODUCT_FOLDERS, ROOT

_OURS = tuple(f"{ROOT}/{folder}/" for folder in PRODUCT_FOLDERS)
_STORAGE = f"{ROOT}/lib/omq/storage/"
_TESTS = f"{ROOT}/tests/"
_NONE = (0, 0)


@pytest.fixture(autouse=True)
def files_of_the_test(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
                       ) -> Iterator[None]:
    dies = request.node.get_closest_marker("dies") is not None
    opened: dict[int, tuple[File, tuple[int, int]]] = {}
    init, close = File.__init__, File.close

    def made(self: File, *arguments: object) -> None:
        init(self, *arguments)  # type: ignore[arg-type]
        if dies or _is_the_tests(sys._getframe(1)):
            opened[id(self)] = self, _identity(self.fd)

    def closed(self: File) -> None:
        opened.pop(id(self), None)
        close(self)

    monkeypatch.setattr(File, "__init__", made)
    monkeypatch.setattr(File, "close", closed)
    yield
    for file, identity in opened.values():
        # A test's own disk may have closed it past us, and may use numbers that are none.
        if _NONE != identity == _identity(file.fd):
            os.close(file.fd)


def _is_the_tests(frame: FrameType | None) -> bool:
    """Whether the first of our frames above the storage layer is one of a test."""
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_TESTS):
            return True
        if name.startswith(_OURS) and not name.startswith(_STORAGE):
            return False
        frame = frame.f_back
    return False


def _identity(fd: int) -> tuple[int, int]:
    try:
        found = os.fstat(fd)
    except OSError:
        return _NONE
    return found.st_dev, found.st_ino
