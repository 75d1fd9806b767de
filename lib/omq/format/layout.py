"""One definition of a fixed layout, usable by `struct` for one record and by numpy for many.

A Layout is made from (field, code) pairs, packed little-endian without padding, so the table in the
module docstring, the struct string and the numpy dtype cannot disagree. Codes are those of `struct`
(`B H I Q q` and `Ns` for N raw bytes).

Errors: none raised on foreign bytes; callers bound lengths before they unpack.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

_NUMPY = {"B": "u1", "H": "<u2", "I": "<u4", "Q": "<u8", "q": "<i8", "d": "<f8"}


class Layout:
    """A fixed record: `size` bytes, `names` in order, `dtype` for numpy, pack and unpack for
    one."""

    __slots__ = ("_offsets", "dtype", "iter_unpack", "names", "pack", "pack_into", "size", "text",
                 "unpack", "unpack_from")

    def __init__(self, fields: str, size: int) -> None:
        pairs = [item.split(":") for item in fields.split()]
        self.names = tuple(name for name, _ in pairs)
        self.text = "<" + "".join(code for _, code in pairs)
        compiled = struct.Struct(self.text)
        self.size = compiled.size
        assert self.size == size, f"layout of {self.size} bytes, {size} declared"
        self.iter_unpack = compiled.iter_unpack
        self.pack = compiled.pack
        self.pack_into = compiled.pack_into
        self.unpack = compiled.unpack
        self.unpack_from = compiled.unpack_from
        self.dtype = np.dtype([(name, self._numpy(code)) for name, code in pairs])
        assert self.dtype.itemsize == size
        self._offsets = {name: int(self.dtype.fields[name][1]) for name in self.names
                         } if self.dtype.fields else {}

    @staticmethod
    def _numpy(code: str) -> str:
        raw = re.fullmatch(r"(\d+)s", code)
        return f"V{raw[1]}" if raw else _NUMPY[code]

    def offset(self, name: str) -> int:
        """Byte offset of a field inside the record."""
        return self._offsets[name]

    def as_dict(self, data: bytes | bytearray | memoryview, offset: int = 0) -> dict[str, Any]:
        """All fields by name; for tools and tests, not for hot paths."""
        return dict(zip(self.names, self.unpack_from(data, offset), strict=True))

    def array(self, data: bytes | bytearray | memoryview, count: int, offset: int = 0
              ) -> np.ndarray[Any, np.dtype[Any]]:
        """`count` records as a numpy structured array over the same memory (shape: (count,))."""
        return np.frombuffer(data, dtype=self.dtype, count=count, offset=offset)

    def joined(self, arrays: Sequence[np.ndarray[Any, np.dtype[Any]]]
               ) -> np.ndarray[Any, np.dtype[Any]]:
        """Arrays of these records as one. As raw bytes: numpy would copy field by field, which
        takes twenty times as long (165 against 8 ns for a frame header)."""
        if not arrays:
            return np.zeros(0, self.dtype)
        raw = f"V{self.size}"
        return np.concatenate([array.view(raw) for array in arrays]).view(self.dtype)
