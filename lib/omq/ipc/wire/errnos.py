"""What each errno of the wire's system calls means to us: one table, and the tests go through it.

The calls are those of the request queue (msgrcv, msgsnd), the semaphore (semop), the segments
(shmget, shmat), making a queue or a semaphore (msgget, semget), and the control socket (accept,
recv, send, pidfd_open). sysv_ipc has classes of its own for some errnos and leaves others as
OSError or ValueError; `errno_of` brings them back to one number.

    AGAIN   nothing was done: try again at once (a signal)
    LATER   nothing was done, and cannot be now (queue full, no memory): later, or without
    GONE    somebody removed the object, or took the right to it: it does not come back
    ENDED   the other end of a connection is gone
    GARBAGE what lies there is nothing of ours: take it off, count it
    SCARCE  the process or the system has no descriptor, memory or place left: refuse, go on
    BUG     our own mistake, or a kernel that does what its manual does not say: the process ends

An errno that a call's row lacks is a BUG. Source: msgop(2), semop(2), shmop(2), shmget(2),
msgget(2), semget(2), accept(2), recv(2), send(2), pidfd_open(2).
"""

from __future__ import annotations

import errno
from enum import Enum
from typing import Final

import sysv_ipc


class Outcome(Enum):
    """See the module."""

    AGAIN = "again"
    LATER = "later"
    GONE = "gone"
    ENDED = "ended"
    GARBAGE = "garbage"
    SCARCE = "scarce"
    BUG = "bug"


_A, _L, _G, _E, _S = (Outcome.AGAIN, Outcome.LATER, Outcome.GONE, Outcome.ENDED, Outcome.SCARCE)

TABLE: Final[dict[str, dict[int, Outcome]]] = {
    "msgrcv": {errno.EINTR: _A, errno.EAGAIN: _L, errno.ENOMSG: _L, errno.EIDRM: _G,
               errno.EINVAL: _G, errno.EACCES: _G, errno.E2BIG: Outcome.GARBAGE},
    "msgsnd": {errno.EINTR: _A, errno.EAGAIN: _L, errno.ENOMEM: _L, errno.EIDRM: _G,
               errno.EINVAL: _G, errno.EACCES: _G},
    "semop": {errno.EINTR: _A, errno.EAGAIN: _L, errno.ENOMEM: _L, errno.ERANGE: _L,
              errno.EIDRM: _G, errno.EINVAL: _G, errno.EACCES: _G},
    "shmget": {errno.EINVAL: _S, errno.ENOMEM: _S, errno.ENOSPC: _S, errno.ENFILE: _S,
               errno.EPERM: _S, errno.EACCES: _S},
    "shmat": {errno.EACCES: _G, errno.EIDRM: _G, errno.EINVAL: _G, errno.ENOMEM: _S},
    "msgget": {errno.ENOMEM: _S, errno.ENOSPC: _S, errno.EACCES: _G, errno.ENOENT: _G},
    "semget": {errno.ENOMEM: _S, errno.ENOSPC: _S, errno.EINVAL: _S, errno.EACCES: _G,
               errno.ENOENT: _G},
    "accept": {errno.EINTR: _A, errno.EAGAIN: _L, errno.ECONNABORTED: _E, errno.EPERM: _E,
               errno.EPROTO: _E, errno.EMFILE: _S, errno.ENFILE: _S, errno.ENOBUFS: _S,
               errno.ENOMEM: _S},
    "recv": {errno.EINTR: _A, errno.EAGAIN: _L, errno.ENOMEM: _L, errno.ENOBUFS: _L,
             errno.ECONNRESET: _E, errno.EPIPE: _E, errno.ENOTCONN: _E, errno.EBADF: _E},
    "send": {errno.EINTR: _A, errno.EAGAIN: _L, errno.ENOMEM: _L, errno.ENOBUFS: _L,
             errno.ECONNRESET: _E, errno.EPIPE: _E, errno.ENOTCONN: _E, errno.EBADF: _E},
    "pidfd_open": {errno.ESRCH: _E, errno.EINVAL: _S, errno.EMFILE: _S, errno.ENFILE: _S,
                   errno.ENOMEM: _S, errno.ENODEV: _S},
}  # fmt: skip

_CLASSES: Final = (
    (sysv_ipc.ExistentialError, errno.EIDRM),
    (sysv_ipc.PermissionsError, errno.EACCES),
    (sysv_ipc.BusyError, errno.EAGAIN),
    (sysv_ipc.Error, errno.EINTR),  # "Signaled while waiting": the only one left of its kind
    (MemoryError, errno.ENOMEM),
    (ValueError, errno.ERANGE),  # of a semaphore: at its limit; of a segment's id: not ours
)


def errno_of(error: BaseException) -> int:
    """The errno behind an error of sysv_ipc, socket or os; 0: none."""
    if isinstance(error, OSError):
        return error.errno or 0
    return next((number for kind, number in _CLASSES if isinstance(error, kind)), 0)


def outcome(call: str, error: BaseException) -> Outcome:
    """The row of `call` for this error."""
    return TABLE[call].get(errno_of(error), Outcome.BUG)
