"""Waiting for what nobody tells: a condition is asked for again and again.

Between two looks the processor is left to what is waited for: a loop without a pause takes half of
a machine with two, and each look may be a connection. The bound says that something is wrong, not
how long it may take.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

WAIT_S: Final = 120.0
PAUSE_S: Final = 0.01


def pause() -> None:
    """Leave the processor to others."""
    select.select([], [], [], PAUSE_S)


def until(holds: Callable[[], object], told: str | Callable[[], str] = "") -> None:
    """Until `holds()` is true; AssertionError with what is told when that does not come."""
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, told if isinstance(told, str) else told()
        pause()


def listens(place: Path) -> bool:
    """Does a program take connections at this Unix socket? Its file is there a moment before."""
    with socket.socket(socket.AF_UNIX) as line:
        return line.connect_ex(str(place)) == 0
