"""Decimals of AMQP (IEEE 754, their number in binary) as texts, and back.

Errors: ValueError for a text that is none.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Final

_KINDS: Final = {  # bytes, bits of the exponent, of the number, its digits, what is taken off
    "decimal32": (4, 8, 23, 7, 101), "decimal64": (8, 10, 53, 16, 398),
    "decimal128": (16, 14, 113, 34, 6176)}


def decimal_text(kind: str, raw: bytes) -> str:
    """A sign, an exponent, a whole number; with 11 at the beginning the number begins with 100 and
    the exponent is two bits behind it."""
    size, exponent_bits, bits, digits, bias = _KINDS[kind]
    word = int.from_bytes(raw, "big")
    sign, rest = word >> (8 * size - 1), word & ((1 << (8 * size - 1)) - 1)
    if rest >> (8 * size - 5) == 0b1111:
        return ("-" if sign else "") + ("NaN" if rest >> (8 * size - 6) & 1 else "Infinity")
    if rest >> (8 * size - 3) == 0b11:
        exponent = rest >> (bits - 2) & ((1 << exponent_bits) - 1)
        number = 1 << bits | rest & ((1 << (bits - 2)) - 1)
    else:
        exponent, number = rest >> bits, rest & ((1 << bits) - 1)
    if number >= 10**digits:
        number = 0  # the standard takes it for that
    return str(Decimal((sign, tuple(map(int, str(number))), exponent - bias)))


def decimal_bytes(kind: str, text: str) -> bytes:
    """Of a text. ValueError."""
    size, _, bits, digits, bias = _KINDS[kind]
    try:
        sign, figures, exponent = Decimal(text).as_tuple()
    except InvalidOperation as error:
        raise ValueError(f"no {kind}: {text[:40]}") from error
    top = sign << (8 * size - 1)
    if not isinstance(exponent, int):
        word = top | (0b11111 if exponent in ("n", "N") else 0b11110) << (8 * size - 6)
    else:
        number, power = int("".join(map(str, figures))), exponent + bias
        if number >= 10**digits or not 0 <= power <= 2 * bias + digits:
            raise ValueError(f"no {kind}: {text[:40]}")
        word = top | (power << bits | number if number < 1 << bits else
                      0b11 << (8 * size - 3) | power << (bits - 2) | number & ((1 << bits - 2) - 1))
    return word.to_bytes(size, "big")
