"""Telling the supervisor how a daemon is: the notification protocol of systemd.

One datagram of KEY=value lines to the socket named by NOTIFY_SOCKET (sd_notify(3)). The embedded
supervisor (omq.services.supervise.supervisor) listens on the same protocol, so a daemon knows one
way only.

Invariants: 1. without NOTIFY_SOCKET every call is silent and cheap; 2. a supervisor that is gone
never stops a daemon (sdnotify swallows send errors on purpose: there is nobody to tell);
3. after `forget_environment` no process started from here can speak in this daemon's name.
"""

from __future__ import annotations

import os
import time
from collections.abc import MutableMapping

import sdnotify

_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class Notifier:
    """The sending side; one per daemon, owned by its main process."""

    def __init__(self, environ: MutableMapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        self.active = bool(environ.get("NOTIFY_SOCKET"))
        self._sender = sdnotify.SystemdNotifier() if self.active else None
        self.watchdog_s = _watchdog_s(environ)
        self._status = ""

    @property
    def watchdog_interval_s(self) -> float | None:
        """How often to ping: half the time that the supervisor allows; None = no watchdog."""
        return None if self.watchdog_s is None else self.watchdog_s / 2

    def ready(self, status: str = "") -> None:
        """READY=1: start-up or reload is finished, the next unit may start."""
        self._send("READY=1", *self._status_line(status))

    def status(self, text: str) -> None:
        """STATUS=: one line for `systemctl status`; a repeated text is not sent again."""
        if text != self._status:
            self._send(*self._status_line(text))

    def watchdog(self) -> None:
        """WATCHDOG=1: the main loop is alive. Call it from that loop only, so that a hang shows."""
        if self.watchdog_s is not None:
            self._send("WATCHDOG=1")

    def stopping(self, status: str = "") -> None:
        """STOPPING=1: the daemon begins to end."""
        self._send("STOPPING=1", *self._status_line(status))

    def reloading(self) -> None:
        """RELOADING=1: followed by ready() when done; the time lets systemd order the two."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def extend(self, seconds: float) -> None:
        """EXTEND_TIMEOUT_USEC=: start or stop needs at least this long from now on."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1_000_000)}")

    def close(self) -> None:
        """Say no more."""
        if self._sender is not None and self._sender.socket is not None:
            self._sender.socket.close()
        self._sender = None

    def _status_line(self, text: str) -> tuple[str, ...]:
        if not text:
            return ()
        self._status = text
        return ("STATUS=" + text.replace("\n", " "),)

    def _send(self, *lines: str) -> None:
        if self._sender is not None:
            # sdnotify encodes latin-1 and drops what it cannot: keep the line ASCII.
            text = "\n".join(lines).encode("ascii", "replace").decode("ascii")
            self._sender.notify(text)


def forget_environment(environ: MutableMapping[str, str]) -> None:
    """Remove the notification variables: forked readers and their commands are not the unit."""
    for name in _VARIABLES:
        environ.pop(name, None)


def _watchdog_s(environ: MutableMapping[str, str]) -> float | None:
    """The time-out that the supervisor set for this process (sd_watchdog_enabled(3))."""
    wanted_pid = environ.get("WATCHDOG_PID")
    if wanted_pid and wanted_pid != str(os.getpid()):
        return None
    text = environ.get("WATCHDOG_USEC", "")
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        return None
    return int(text) / 1_000_000
