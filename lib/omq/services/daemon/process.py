"""Process identity and the few Linux calls that Python has no function for.

A pid alone is not an identity: numbers are used again. `ProcessId` adds the start time (clock ticks
since boot), so a run file left by a dead process is never taken for a live one.

Errors: OSError from prctl is passed on (an old kernel or a seccomp filter: our own bug to meet).
"""

from __future__ import annotations

import ctypes
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from omq.base.clock import process_start_ticks

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_ARG_START = 48 - 3  # the field numbers of proc(5) begin with 1; the third follows the name
_NAME_BYTES_MAX = 15  # the kernel keeps 16 with the final zero

# Loaded before any fork: a child between fork and exec must not load libraries.
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process for all time (of this boot); pid 0 = none."""

    pid: int
    start_ticks: int

    def alive(self) -> bool:
        """Whether exactly this process still runs."""
        if self.pid <= 0 or self.start_ticks <= 0:
            return False
        return process_start_ticks(self.pid) == self.start_ticks


def identify(pid: int) -> ProcessId:
    """The identity of a running process; start_ticks 0 if it is gone or hidden."""
    return ProcessId(pid, process_start_ticks(pid) or 0)


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel send SIGTERM when the parent dies; end at once if it is dead already.

    Without the check a parent that died between fork and this call would leave an orphan.
    """
    _prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGTERM)


def adopt_orphans() -> None:
    """Become the parent of grandchildren whose parent dies, so that none escapes unseen."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_name(name: str) -> None:
    """The name that ps and top show, cut to 15 bytes."""
    buffer = ctypes.create_string_buffer(name.encode("ascii", "replace")[:_NAME_BYTES_MAX])
    _prctl(_PR_SET_NAME, ctypes.addressof(buffer))


def set_command_line(argv: list[str]) -> None:
    """What ps and /proc/PID/cmdline show, written over the words that this process was executed
    with; cut to their length. /proc tells where they are (proc(5): arg_start, arg_end)."""
    fields = Path("/proc/self/stat").read_text("latin-1").rpartition(")")[2].split()
    start, end = int(fields[_ARG_START]), int(fields[_ARG_START + 1])
    if not 0 < start < end:  # hidden from us: then it stays as it is
        return
    text = b"".join(os.fsencode(word) + b"\0" for word in argv)
    ctypes.memmove(start, text[: end - start - 1].ljust(end - start, b"\0"), end - start)


def _prctl(option: int, argument: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(argument), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl {option}: {os.strerror(number)}")
