"""Values of AMQP 1.0 out of bytes (ISO 19464 part 1, 1.6), as format.amqp_types has them.

    value       a code, then its bytes; 0x00: a descriptor and the value, both values
    code        its upper half: how many bytes follow, or how many bytes hold their number

Invariants: 1. nothing outside `at` to `end` is read; 2. no value costs more than a small multiple
of its bytes: a count never exceeds the bytes that are there, and the arrays in what `over` was
given have at most _NO_BYTES_MAX elements without bytes together; 3. nesting deeper than DEPTH_MAX
is refused.

Errors: Malformed, whatever the bytes are.
"""

from __future__ import annotations

from typing import Any

from omq.base import shim as cython
from omq.format import amqp_types
from omq.format.amqp_types import WIDEST, Array, Described, Malformed, Symbol

_DEPTH_MAX = amqp_types.DEPTH_MAX
_NO_BYTES_MAX = 64
_SYMBOLS_MAX = 1024
_CACHED_BYTES_MAX = 64
_symbols: dict[bytes, Any] = {}
_CONSTANTS, _WHOLE, _OTHER = amqp_types.CONSTANTS, amqp_types.WHOLE, amqp_types.OTHER


class Decoder:
    """Reads values one after the other from `at` on, up to `end`."""

    def __init__(self) -> None:
        self.data = b""
        self.at = self.end = 0
        self._no_bytes = 0  # elements without bytes that there may yet be

    def over(self, data: bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> None:
        """These bytes are to be read."""
        if at < 0 or end > len(data) or at > end:
            raise Malformed("bytes beyond the end")
        self.data, self.at, self.end, self._no_bytes = data, at, end, _NO_BYTES_MAX

    def value(self, depth: cython.Py_ssize_t = 0) -> Any:
        """The value there."""
        code: cython.uint = self.byte()
        if code == 0:
            return self._described(depth)
        return self.of(code, depth)

    def byte(self) -> cython.uint:
        at: cython.Py_ssize_t = self.at
        if at >= self.end:
            raise Malformed("a value is cut")
        self.at = at + 1
        return self.data[at]

    def number(self, size: cython.Py_ssize_t) -> cython.ulonglong:
        """`size` bytes, big endian, without a sign."""
        at: cython.Py_ssize_t = self.at
        ends: cython.Py_ssize_t = at + size
        if ends > self.end:
            raise Malformed("a number is cut")
        found: cython.ulonglong = 0
        data = self.data
        while at < ends:
            found = (found << 8) | data[at]
            at += 1
        self.at = at
        return found

    def raw(self, size: cython.ulonglong) -> bytes:
        """So many bytes."""
        at: cython.Py_ssize_t = self.at
        left: cython.Py_ssize_t = self.end - at
        if size > cython.cast(cython.ulonglong, left):
            raise Malformed("bytes are cut")
        self.at = at + cython.cast(cython.Py_ssize_t, size)
        return self.data[at : self.at]

    def descriptor(self) -> cython.longlong:
        """The number of a described value, which follows; -1: it has a name (`named` has it), or is
        none that is known."""
        self.named = None
        if self.byte() != 0:
            raise Malformed("a described value was to come")
        code: cython.uint = self.byte()
        if code == 0x53:
            return self.byte()
        if code == 0x80:
            wide: cython.ulonglong = self.number(8)
            return cython.cast(cython.longlong, wide) if wide < 0x7FFFFFFFFFFFFFFF else -1
        if code != 0xA3 and code != 0xB3:
            raise Malformed("a descriptor is a number or a symbol")
        self.named = self.of(code, 0)
        return -1

    def fields(self) -> cython.Py_ssize_t:
        """A list begins: how many fields it has; `stop` is where it ends."""
        code: cython.uint = self.byte()
        if code == 0x45:
            self.stop = self.at
            return 0
        if code != 0xC0 and code != 0xD0:
            raise Malformed("a list was to come")
        width: cython.Py_ssize_t = 1 if code == 0xC0 else 4
        self.stop = self._opened(width)
        return cython.cast(cython.Py_ssize_t, self._counted(width, self.stop))

    def _opened(self, width: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """A size of `width` bytes; where what it says ends."""
        size: cython.ulonglong = self.number(width)
        left: cython.Py_ssize_t = self.end - self.at
        if size > cython.cast(cython.ulonglong, left):
            raise Malformed("a value is longer than what there is")
        return self.at + cython.cast(cython.Py_ssize_t, size)

    def _counted(self, width: cython.Py_ssize_t, ends: cython.Py_ssize_t) -> cython.ulonglong:
        """How many there are up to `ends`, each of a byte at least."""
        count: cython.ulonglong = self.number(width)
        if self.at > ends or count > cython.cast(cython.ulonglong, ends - self.at):
            raise Malformed("it has fewer values than it says")
        return count

    def _described(self, depth: cython.Py_ssize_t) -> Any:
        if depth >= _DEPTH_MAX:
            raise Malformed("values nest too deep")
        descriptor = self.value(depth + 1)
        return Described(descriptor, self.value(depth + 1))

    def of(self, code: cython.uint, depth: cython.Py_ssize_t) -> Any:
        """A value whose code was read."""
        kind: cython.uint = code >> 4
        if kind < 0xA:
            return self._fixed(code)
        if kind < 0xC:
            return self._variable(code)
        if kind < 0xE:
            return self._compound(code, depth)
        return self._array(code, depth)

    def _fixed(self, code: cython.uint) -> Any:
        known = _WHOLE.get(code)
        if known is not None:
            size, signed, made = known
            found = int.from_bytes(self.raw(size), "big", signed=signed)
            return found if made is int else made(found)
        if code in _CONSTANTS:
            return _CONSTANTS[code]
        if code == 0x45:
            return []
        if code == 0x56:
            truth: cython.uint = self.byte()
            if truth > 1:
                raise Malformed("a boolean is 0 or 1")
            return truth == 1
        other = _OTHER.get(code)
        if other is None:
            raise Malformed(f"no value begins with {int(code):#04x}")
        size, made = other
        return made(self.raw(size))

    def _variable(self, code: cython.uint) -> Any:
        raw: bytes = self.raw(self.number(1) if code < 0xB0 else self.number(4))
        kind: cython.uint = code & 15
        if kind == 0:
            return raw
        if kind == 3:
            return _symbol(raw)
        if kind != 1:
            raise Malformed(f"no value begins with {int(code):#04x}")
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise Malformed("a string is not UTF-8") from None

    def _compound(self, code: cython.uint, depth: cython.Py_ssize_t) -> Any:
        width: cython.Py_ssize_t = 1 if code < 0xD0 else 4
        ends: cython.Py_ssize_t = self._opened(width)
        count: cython.ulonglong = self._counted(width, ends)
        kind: cython.uint = code & 15
        if kind > 1 or (kind == 1 and count & 1):
            raise Malformed("neither a list nor a map")
        if depth >= _DEPTH_MAX:
            raise Malformed("values nest too deep")
        before: cython.Py_ssize_t = self.end
        self.end = ends
        found = self._list(count, depth + 1) if kind == 0 else self._map(count, depth + 1)
        if self.at != ends:
            raise Malformed("it is longer than its values")
        self.end = before
        return found

    def _list(self, count: cython.ulonglong, depth: cython.Py_ssize_t) -> list[Any]:
        found: list[Any] = []
        while count > 0:
            found.append(self.value(depth))
            count -= 1
        return found

    def _map(self, count: cython.ulonglong, depth: cython.Py_ssize_t) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        while count > 0:
            key = self.value(depth)
            if type(key) in (list, dict, Described, Array):
                raise Malformed("a key of a map is none")
            found[key] = self.value(depth)
            count -= 2
        return found

    def _array(self, code: cython.uint, depth: cython.Py_ssize_t) -> Any:
        if code != 0xE0 and code != 0xF0:
            raise Malformed(f"no value begins with {int(code):#04x}")
        if depth >= _DEPTH_MAX:
            raise Malformed("values nest too deep")
        width: cython.Py_ssize_t = 1 if code == 0xE0 else 4
        ends: cython.Py_ssize_t = self._opened(width)
        before: cython.Py_ssize_t = self.end
        self.end = ends
        count: cython.ulonglong = self.number(width)
        descriptor = None
        element: cython.uint = self.byte()
        if element == 0:
            descriptor = self.value(depth + 1)
            element = self.byte()
        most: cython.Py_ssize_t = self._no_bytes if element >> 4 == 4 else ends - self.at
        if element == 0 or count > cython.cast(cython.ulonglong, most):
            raise Malformed("an array has fewer values than it says")
        if element >> 4 == 4:
            self._no_bytes -= cython.cast(cython.Py_ssize_t, count)
        found: list[Any] = []
        while count > 0:
            found.append(self.of(element, depth + 1))
            count -= 1
        if self.at != ends:
            raise Malformed("an array is longer than its values")
        self.end = before
        return Array(WIDEST.get(element, int(element)), found, descriptor)

    def cut_out(self) -> bytes:
        """The bytes of the value there, of which nothing but its size is looked at."""
        begins: cython.Py_ssize_t = self.at
        self._pass_over(0)
        return self.data[begins : self.at]

    def _pass_over(self, depth: cython.Py_ssize_t) -> None:
        code: cython.uint = self.byte()
        if code == 0:
            if depth >= _DEPTH_MAX:
                raise Malformed("values nest too deep")
            self._pass_over(depth + 1)
            self._pass_over(depth + 1)
            return
        kind: cython.uint = code >> 4
        if kind < 4:
            raise Malformed(f"no value begins with {int(code):#04x}")
        if kind >= 0xA:
            self.raw(self.number(4 if kind & 1 else 1))
        elif kind > 4:
            self.raw(1 << (kind - 5))

    def skip(self, depth: cython.Py_ssize_t = 0) -> None:
        """Pass over the value there, as strict as `value`; of lists and maps nothing is made."""
        code: cython.uint = self.byte()
        if depth >= _DEPTH_MAX:
            raise Malformed("values nest too deep")
        if code == 0:
            self.skip(depth + 1)
            self.skip(depth + 1)
            return
        kind: cython.uint = code >> 4
        if kind != 0xC and kind != 0xD:
            self.of(code, depth)
            return
        width: cython.Py_ssize_t = 1 if code < 0xD0 else 4
        ends: cython.Py_ssize_t = self._opened(width)
        count: cython.ulonglong = self._counted(width, ends)
        if code & 15 > 1 or (code & 15 == 1 and count & 1):
            raise Malformed("neither a list nor a map")
        before: cython.Py_ssize_t = self.end
        self.end = ends
        while count > 0:
            self.skip(depth + 1)
            count -= 1
        if self.at != ends:
            raise Malformed("it is longer than its values")
        self.end = before


def _symbol(raw: bytes) -> Any:
    """The same few of them recur."""
    found = _symbols.get(raw)
    if found is None:
        try:
            found = Symbol(raw.decode("ascii"))
        except UnicodeDecodeError:
            raise Malformed("a symbol is not ASCII") from None
        if len(raw) <= _CACHED_BYTES_MAX:
            if len(_symbols) >= _SYMBOLS_MAX:
                _symbols.clear()
            _symbols[raw] = found
    return found
