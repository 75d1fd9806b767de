"""Named crash points: places where tests make a process die, stop or see a disk error.

`fault.point("journal.before_sync")` costs one call and one comparison unless OMQ_FAULT was set when
the process started: `name:action:n`, several separated by ';'. It acts on the n-th time that the
process comes to the point:

    kill   SIGKILL to itself          exit   os._exit without any clean-up
    eio    OSError(EIO)               stop   SIGSTOP to itself

OMQ_FAULT_LOG names a file that gets one line for each entry that acts, `name:action:n pid`, written
before it acts. With it every entry acts once over ALL processes of a test, so that a daemon
restarted with the same environment does not die again; without it, once in each process.

Invariant (tests/tidy): every point in the code is in POINTS, so that the crash tests know them all.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from dataclasses import dataclass
from typing import Final

from omq.base.errors import ConfigError

POINTS: Final = frozenset(
    {
        "journal.before_write",
        "journal.after_write",
        "journal.before_sync",
        "journal.after_sync",
        "journal.before_rotate",
        "journal.after_rotate",
        "journal.prepare_next",
        "journal.retire",
        "archive.before_rename",
        "pool.before_write",
        "pool.after_write",
        "pool.before_sync",
        "pool.after_sync",
        "pool.before_truncate",
        "poolctrl.before_write",
        "poolctrl.after_write",
        "poolctrl.before_sync",
        "poolctrl.after_sync",
        "store.before_write",
        "store.after_sync",
        "store.compact",
        "store.before_unlink",
        "container.before_sync",
        "container.after_sync",
        "container.before_unlink",
        "durable.before_rename",
        "durable.after_rename",
        "engine.before_append",
        "engine.after_append",
        "engine.before_hand_out",
        "engine.before_reply",
        "engine.after_reply",
        "recovery.before_pool",
        "recovery.after_pool",
        "recovery.before_redo",
        "recovery.in_redo",
        "recovery.after_redo",
        "recovery.before_serve",
        "recover.before_step",
        "recover.before_control",
        "recover.before_swap",
        "client.before_request",
        "client.after_request",
        "client.after_reply",
        "reader.after_next",
        "reader.before_done",
        "reader.after_done",
        "idel.before_delete",
        "idel.after_delete",
        "drop.after_file",
        "drop.after_put",
        "local.before_rename",
        "local.after_rename",
        "router.before_move",
        "channel.before_send",
        "channel.after_send",
        "channel.split",
        "channel.after_take",
        "channel.after_prepare",
        "channel.in_batch",
        "channel.half_batch",
        "channel.after_batch",
        "channel.before_put",
        "channel.after_put",
        "channel.before_accept",
        "channel.after_accept",
        "channel.before_commit",
        "channel.after_commit",
        "channel.before_resync",
        "unix.before_send",
        "unix.after_send",
        "smtp.before_put",
        "smtp.after_put",
        "errmgr.before_move",
        "standby.before_send",
        "standby.after_send",
        "standby.after_ack",
        "standby.before_ack",
        "standby.before_redo",
        "standby.before_checkpoint",
        "standby.before_retire",
        "promote.after_mark",
        "promote.after_redo",
        "promote.after_note",
        "promote.after_instance",
        "put_again.after_put",
    }
)

ACTIONS: Final = ("kill", "exit", "eio", "stop")
EXIT_STATUS: Final = 70
"""What `exit` leaves with: the status of a bug of ours, which units restart on."""


@dataclass(slots=True)
class _Armed:
    """One entry of OMQ_FAULT; `left` counts down to the hit that acts."""

    text: str
    action: str
    left: int


_armed: dict[str, list[_Armed]] = {}


def point(name: str) -> None:
    """Do what OMQ_FAULT says about `name`; normally nothing."""
    if _armed:
        _hit(name)


def armed() -> bool:
    """Whether any point may act: whoever leaves them out asks first."""
    return bool(_armed)


def arm(specification: str) -> None:
    """Replace what is armed by `specification` (the form of OMQ_FAULT); '' disarms. ConfigError."""
    armed: dict[str, list[_Armed]] = {}
    for text in filter(None, (part.strip() for part in specification.split(";"))):
        name, _, rest = text.partition(":")
        action, _, count = rest.partition(":")
        if name not in POINTS or action not in ACTIONS or not count.isdecimal() or int(count) < 1:
            allowed = f"name:action:n; actions {' '.join(ACTIONS)}; names in omq.base.fault"
            raise ConfigError(
                file="environment", line=0, key="OMQ_FAULT", reason=f"{text!r}", allowed=allowed
            )
        armed.setdefault(name, []).append(_Armed(text, action, int(count)))
    _armed.clear()
    _armed.update(armed)


def _hit(name: str) -> None:
    assert name in POINTS, f"crash point {name} is not registered in omq.base.fault"
    for entry in _armed.get(name, ()):
        entry.left -= 1
        if entry.left == 0 and _claim(entry.text):
            _act(entry.action, name)


def _claim(text: str) -> bool:
    """Whether this process is the one in which the entry acts; records that it does."""
    log = os.environ.get("OMQ_FAULT_LOG")
    if not log:
        return True
    descriptor = os.open(log, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # freed by close, and by the death that may follow
        fired = os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode().splitlines()
        if any(line.split(" ")[0] == text for line in fired):
            return False
        os.write(descriptor, f"{text} {os.getpid()}\n".encode())
        return True
    finally:
        os.close(descriptor)


def _act(action: str, name: str) -> None:
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif action == "exit":
        os._exit(EXIT_STATUS)
    else:
        raise OSError(errno.EIO, f"injected at {name}")


arm(os.environ.get("OMQ_FAULT", ""))
