"""One definition of a fixed layout, usable by `struct` for one record and by numpy for many.

A Layout is made from (field, code) pairs, packed little-endian without padding, so the table in the
module docstring, the struct string and the numpy dtype cannot disagree. Codes are those of `struct`
(`B H I Q q` and `Ns` for N raw bytes). numpy is imported when the first of its arrays is asked for:
a client that sends and reads messages needs none, and numpy is more than half of its start.

Errors: none raised on foreign bytes; callers bound lengths before they unpack.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from omq.base.arrays import Rows

_NUMPY = {"B": "u1", "H": "<u2", "I": "<u4", "Q": "<u8", "q": "<i8", "d": "<f8"}


class Layout:
    """A fixed record: `size` bytes, `names` in order, `dtype` for numpy, pack and unpack for
    one."""

    __slots__ = ("_codes", "_dtype", "_offsets", "iter_unpack", "names", "pack", "pack_into",
                 "size", "text", "unpack", "unpack_from")

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
        self._codes = [code for _, code in pairs]
        sizes = [struct.calcsize("<" + code) for code in self._codes]
        self._offsets = dict(zip(self.names, accumulate(sizes, initial=0), strict=False))
        self._dtype: np.dtype[Any] | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """The record for numpy."""
        if self._dtype is None:
            import numpy as np

            self._dtype = np.dtype([(name, self._numpy(code))
                                    for name, code in zip(self.names, self._codes, strict=True)])
            assert self._dtype.itemsize == self.size
        return self._dtype

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
              ) -> Rows:
        """`count` records as a numpy structured array over the same memory (shape: (count,))."""
        import numpy as np

        return np.frombuffer(data, dtype=self.dtype, count=count, offset=offset)

    def joined(self, arrays: Sequence[Rows]) -> Rows:
        """Arrays of these records as one. As raw bytes: numpy would copy field by field, which
        takes twenty times as long (165 against 8 ns for a frame header)."""
        import numpy as np

        if not arrays:
            return np.zeros(0, self.dtype)
        raw = f"V{self.size}"
        return np.concatenate([array.view(raw) for array in arrays]).view(self.dtype)
