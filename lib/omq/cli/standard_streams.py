"""Standard streams that the caller has closed (`omstat >&-`, a daemon of an old init script).

The next file that a process opens gets the lowest number that is free. Without this it would be 0,
1 or 2: a traceback of the interpreter, or a line for standard error, would be written into whatever
file of the spool that is.

Invariant: after `fill` 0, 1 and 2 are open, and nothing of omq is one of them. What was closed is
open the wrong way round, as in glibc's programs with privileges: a read of standard input and a
write of standard output fail (EBADF), so a command with nothing to read does not take that for an
empty message, and one that cannot say what it was asked for does not end with 0. Standard error
takes everything.
"""

from __future__ import annotations

import fcntl
import os
import sys
from typing import Final

STDIN, STDOUT, STDERR = range(3)
_FLAGS: Final = {STDIN: os.O_WRONLY, STDOUT: os.O_RDONLY, STDERR: os.O_WRONLY}


def fill() -> set[int]:
    """Open those that are closed, before anything else is opened; which they were."""
    closed = {number for number in _FLAGS if not _is_open(number)}
    for number in sorted(closed):
        _open_null(number, _FLAGS[number])
    if sys.stdin is None:
        sys.stdin = open(STDIN, closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(STDOUT, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(STDERR, "w", buffering=1, closefd=False)  # noqa: SIM115
    return closed


def _is_open(number: int) -> bool:
    try:
        fcntl.fcntl(number, fcntl.F_GETFD)
    except OSError:
        return False
    return True


def _open_null(number: int, flags: int) -> None:
    null = os.open(os.devnull, flags)
    if null != number:
        os.dup2(null, number)
        os.close(null)
    os.set_inheritable(number, True)  # noqa: FBT003
