"""Sizes as people write them, one syntax everywhere: configuration files and command lines.

    67108864   64M   64 M   64MiB   64 MiB   65_536 K

K, M, G, T are powers of 1024, with or without iB, in any case; B or nothing is bytes. KB and MB are
refused, because half of the readers take them for powers of 1000.
"""

from __future__ import annotations

import re
from typing import Final

RULE: Final = "bytes, or a number with K, M, G or T (64M, 64 MiB, 67108864)"
_SIZE: Final = re.compile(r"(-?[0-9][0-9_]*)\s*(B|[KMGT](?:iB)?)?", re.IGNORECASE)
_SHOWN: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_POWER: Final = {"": 0, "B": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_size(text: str) -> int | None:
    """Bytes; None when it is not a size."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    unit: int = 1 << 10 * _POWER[(match[2] or "")[:1].upper()]
    return int(match[1]) * unit


def shown(size: int) -> str:
    """For people: `340.0 MiB`, `512 bytes`."""
    for unit, name in _SHOWN:
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"
