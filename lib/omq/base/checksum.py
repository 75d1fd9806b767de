"""CRC-32C (Castagnoli), the one checksum of omq: blocks, payloads, pool records and bodies.

Three implementations give the same value (tests/unit/base/test_checksum.py); the first that can be
imported is used:

1. the `crc32c` package, which uses the processor's CRC instruction;
2. the C extension of `crcmod` (distributed as wheels by crcmod-plus, see ADR 0001);
3. the pure Python fallback of `crcmod`, about fifty times slower: a RuntimeWarning says so, once.

A checksum is continued by passing the last value: crc32c(b, crc32c(a)) == crc32c(a + b).
"""

from __future__ import annotations

import importlib
import itertools
import struct
import warnings
from collections.abc import Callable, Iterable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class CrcFunction(Protocol):
    """Of bytes, continued from a value."""

    def __call__(self, data: Buffer, crc: int = 0, /) -> int: ...



HARDWARE = "crc32c package"
EXTENSION = "crcmod C extension"
PURE_PYTHON = "crcmod pure Python"


def _from_crc32c() -> tuple[str, CrcFunction]:
    """The extension alone where it can be found: the package looks up its own version when it is
    imported, which takes as long as half of a small command's other imports."""
    package = find_spec("crc32c")
    places = package.submodule_search_locations if package is not None else None
    extension = PathFinder.find_spec("crc32c._crc32c", places) if places else None
    if extension is not None and extension.loader is not None:
        module = module_from_spec(extension)
        extension.loader.exec_module(module)
    else:
        module = importlib.import_module("crc32c")
    function: CrcFunction = module.crc32c
    return HARDWARE, function


def _from_crcmod() -> tuple[str, CrcFunction]:
    make: Callable[[str], CrcFunction] = importlib.import_module(
        "crcmod.predefined"
    ).mkPredefinedCrcFun
    compiled = bool(importlib.import_module("crcmod.crcmod")._usingExtension)
    return (EXTENSION if compiled else PURE_PYTHON), make("crc-32c")


def _choose() -> tuple[str, CrcFunction]:
    try:
        return _from_crc32c()
    except ImportError:
        name, function = _from_crcmod()  # without either there is no omq: the ImportError says it
    if name == PURE_PYTHON:
        warnings.warn(
            "crcmod runs without its C extension: checksums are about fifty times slower; "
            "install crcmod-plus or crc32c",
            RuntimeWarning,
            stacklevel=2,
        )
    return name, function


_NAME, crc32c = _choose()
"""crc32c(data, crc=0): the CRC-32C of `data`, continued from `crc`: 0 to 2**32 - 1. The library's
function itself: blocks and payloads are many and short."""


def crc32c_each(data: memoryview, begins: Iterable[int], ends: Iterable[int]) -> list[int]:
    """The CRC-32C of each stretch of `data`: half of the cost of as many calls of `crc32c`."""
    function = crc32c
    return [function(data[begin:end]) for begin, end in zip(begins, ends, strict=True)]


def crc32c_rows(data: Buffer, size: int, begin: int, end: int) -> list[int]:
    """The CRC-32C of bytes `begin` to `end` of each row of `size` bytes; no byte is left over. A
    third of the cost of as many calls of `crc32c`: no row is touched by the interpreter."""
    rows = struct.iter_unpack(f"{begin}x{end - begin}s{size - end}x", data)
    return list(itertools.starmap(crc32c, rows))


def implementation() -> str:
    """Which implementation is in use: HARDWARE, EXTENSION or PURE_PYTHON."""
    return _NAME
