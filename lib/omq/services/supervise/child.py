"""One daemon under the embedded supervisor: its process, its notifications, its time-outs.

    STOPPED -> STARTING -> STARTED -> STOPPING -> STOPPED
                  |           |          ^ stop(), start time-out
                  +-----------+--> dead: WAITING (back-off) or FAILED (exit code 78)

Invariants: 1. the child leads its own process group, and the group is empty before the next start:
two generations of a service never run side by side; 2. signals go to a process or group that this
object has not reaped yet (or that still has adopted members), so never to a stranger; 3. if the
supervisor dies, the kernel sends SIGTERM to the child (PR_SET_PDEATHSIG); 4. every wait has an end.

Time is the monotonic clock (not boot time: a suspended machine must not miss watchdog pings).

The receiving side of the notification protocol, for the embedded supervisor.

One datagram socket per child in the abstract namespace: no file to leave behind and no limit on the
length of the spool's path. The kernel attaches the sender's pid and uid to each datagram
(SO_PASSCRED), so only the child itself is believed (systemd's NotifyAccess=main).

Invariant: whatever arrives, `receive` returns parsed fields or nothing; it never raises on bytes.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from omq.base import event_log, events
from omq.base.amounts import duration
from omq.base.errors import Exit
from omq.base.event_log import Level
from omq.base.events import Event
from omq.base.services_conf import ServiceConf, ServiceKind
from omq.services.daemon.exit_text import exit_text
from omq.services.daemon.process import identify
from omq.services.daemon.restart_backoff import Backoff
from omq.services.daemon.run_state import LIVE, ProcessState, State
from omq.services.supervise.daemon_plan import Limits, is_core, stop_stage
from omq.services.supervise.process_group import Launch, group_empty, launch

_DATAGRAM_BYTES_MAX = 4096  # a STATUS line; longer ones are cut by the kernel
_CREDENTIALS_BYTES = 12  # struct ucred: pid, uid, gid
_NAME_RANDOM_BYTES = 8


@dataclass(frozen=True, slots=True)
class Notice:
    """One datagram: its fields, the last value of each key."""

    fields: dict[str, str]

    def flag(self, name: str) -> bool:
        return self.fields.get(name) == "1"

    def seconds(self, name: str) -> float | None:
        """A *_USEC field in seconds."""
        text = self.fields.get(name, "")
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            return None
        return int(text) / 1_000_000


class NotifySocket:
    """The socket of one child, for as long as the supervisor knows that child."""

    def __init__(self, service: str) -> None:
        random = secrets.token_hex(_NAME_RANDOM_BYTES)
        self._name = f"omq/{os.getpid()}/{service}/{random}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind("\0" + self._name)

    @property
    def address(self) -> str:
        """The value for NOTIFY_SOCKET."""
        return "@" + self._name

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self, pid: int) -> list[Notice]:
        """All that waits and was sent by process `pid` itself."""
        found: list[Notice] = []
        while True:
            try:
                data, control, _flags, _address = self._socket.recvmsg(
                    _DATAGRAM_BYTES_MAX, socket.CMSG_SPACE(_CREDENTIALS_BYTES)
                )
            except BlockingIOError:
                return found
            if pid != 0 and _sender(control) == pid:
                found.append(Notice(_parse(data)))

    def close(self) -> None:
        self._socket.close()


def _sender(control: list[tuple[int, int, bytes]]) -> int:
    for level, kind, data in control:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            return int(memoryview(data[:_CREDENTIALS_BYTES]).cast("i")[0])
    return 0


def _parse(data: bytes) -> dict[str, str]:
    text = data.decode("utf-8", "replace")
    pairs = (line.partition("=") for line in text.split("\n"))
    return {key: value for key, equals, value in pairs if equals}


# A start with the same configuration and options cannot go better.
_HOPELESS = (Exit.CONFIG, Exit.USAGE)

Changed = Callable[["Child", Event, Level, str], None]


class Child:
    """Knows how; the supervisor decides when."""

    def __init__(self, conf: ServiceConf, limits: Limits, changed: Changed, *,
                 wanted: bool = True) -> None:
        self.conf = conf
        self.limits = limits
        self.core = is_core(conf)
        self.stage = stop_stage(conf)
        self.listed = True  # in services.conf
        self.wanted = wanted
        self.passed = False  # those after it in the order need not wait any more
        self.was_ready = False
        self.exit_code = 0  # of the last process; negative: the signal that ended it
        self.state = State.STOPPED
        self.since = time.time()
        self.restarts = 0
        self.text = ""
        self.pid = 0
        self.notify = NotifySocket(conf.name)
        self._start_ticks = 0
        self._group = 0  # process group that may still have members
        self._started_at = 0.0
        self._deadline: float | None = None
        self._watchdog: float | None = None
        self._backoff = Backoff(limits.backoff_min_s, limits.backoff_max_s)
        self._changed = changed

    @property
    def live(self) -> bool:
        return self.state in LIVE

    def record(self) -> ProcessState:
        """For run/supervisor.json and the control socket."""
        return ProcessState(
            name=self.conf.name, state=self.state, since=self.since, pid=self.pid,
            start_ticks=self._start_ticks, restarts=self.restarts, text=self.text,
            wanted=self.wanted,
        )  # fmt: skip

    def next_wakeup(self) -> float | None:
        """When `on_time` has something to do."""
        times = [each for each in (self._deadline, self._watchdog) if each is not None]
        return min(times, default=None)

    def start(self, argv: list[str], environ: dict[str, str], now: float,
              launch: Launch = launch) -> None:
        """Launch the process; it is STARTED when it says READY=1."""
        assert not self.live and self._group == 0
        self.notify.receive(0)  # words of an earlier life
        self.text = ""
        self._started_at = now
        self._watchdog = None
        try:
            self.pid = launch(argv, self._environment(environ))
        except OSError as error:
            self._dead(Exit.OS, f"cannot be started: {error}", now)
            return
        self._group = self.pid
        self._start_ticks = identify(self.pid).start_ticks
        self._deadline = now + self.limits.start_s
        self._enter(State.STARTING, events.DAEMON_STARTED, event_log.REPORT, "")

    def stop(self, now: float) -> None:
        """Ask the process to end (SIGTERM; SIGCONT so that a stopped one hears it)."""
        self._watchdog = None
        if self.state is State.WAITING:
            self._enter(State.STOPPED, events.DAEMON_STOPPED, event_log.REPORT, "")
            self._deadline = None
        elif self.live and self.pid and self.state is not State.STOPPING:
            os.kill(self.pid, signal.SIGTERM)
            os.kill(self.pid, signal.SIGCONT)
            self._deadline = now + self.limits.stop_s
            self._enter(State.STOPPING, events.SERVICE_DRAINING, event_log.TRACE, "")

    def stop_for_good(self, now: float) -> None:
        """Nobody wants it any more; those after it in the order need not wait for it."""
        self.wanted = False
        self.passed = True
        self.stop(now)

    def reload(self) -> None:
        """Pass on SIGHUP; not while the process is dead and its readers still end: number 0 would
        be all processes of our own group, and of who started us."""
        if self.state is State.STARTED and self.pid:
            os.kill(self.pid, signal.SIGHUP)

    def want(self) -> None:
        """The operator turns it on: failures so far are forgotten."""
        self.wanted = True
        self._backoff.reset()
        if self.state in (State.WAITING, State.FAILED):
            self.state = State.STOPPED
            self._deadline = None

    def put_back(self) -> None:
        """It is in services.conf again: if it had been taken out, it is wanted."""
        if not self.listed:
            self.listed = True
            self.want()

    def due(self, now: float) -> bool:
        """Whether it should be started now."""
        if not self.wanted or self._group:
            return False
        if self.state is State.WAITING:
            return self._deadline is None or now >= self._deadline
        return self.state is State.STOPPED

    def on_notify(self, now: float) -> None:
        """Read what the process says."""
        for notice in self.notify.receive(self.pid):
            self._notice(notice, now)

    def _notice(self, notice: Notice, now: float) -> None:
        self.text = notice.fields.get("STATUS", self.text)
        extension = notice.seconds("EXTEND_TIMEOUT_USEC")
        waits = self.state in (State.STARTING, State.STOPPING)
        if extension is not None and waits and self._deadline is not None:
            self._deadline = max(self._deadline, now + extension)
        if notice.flag("READY") and self.state is State.STARTING:
            self.passed = self.was_ready = True
            self._deadline = None
            took_ms = int((now - self._started_at) * 1000)
            self._enter(State.STARTED, events.DAEMON_READY, event_log.REPORT, f"in {took_ms} ms")
        if notice.flag("WATCHDOG") and self.limits.watchdog_s and self.state is not State.STOPPING:
            self._watchdog = now + self.limits.watchdog_s

    def on_time(self, now: float) -> None:
        """Act on the time-outs that are over."""
        if self._watchdog is not None and self.pid and now >= self._watchdog:
            self._watchdog = None
            os.kill(self.pid, signal.SIGABRT)
            self._deadline = now + self.limits.stop_s
            self._tell(events.DAEMON_HUNG, event_log.ERROR,
                       f"for {duration(self.limits.watchdog_s)}")
        if self._deadline is None or now < self._deadline:
            return
        if self.state is State.STARTING:
            self._tell(events.DAEMON_NOT_READY, event_log.ERROR,
                       f"in {duration(self.limits.start_s)}")
            self.stop(now)
        elif self._group:
            self._deadline = None
            os.killpg(self._group, signal.SIGKILL)
            self._tell(events.DAEMON_KILLED, event_log.ERROR,
                       f"after {duration(self.limits.stop_s)}")

    def on_exit(self, exit_code: int, now: float) -> None:
        """The process itself is dead and reaped; readers that it forked may still end."""
        self.exit_code = exit_code
        self.pid = 0
        self._watchdog = None
        self.passed = self.passed or not self.core
        if self.state is not State.STOPPING or self._deadline is None:
            self._deadline = now + self.limits.stop_s

    def settle(self, now: float) -> None:
        """After reaping: once the group is empty, decide what comes next."""
        if self.pid or not self._group or not group_empty(self._group):
            return
        self._group = 0
        self._deadline = None
        if not self.wanted:
            self._enter(State.STOPPED, events.DAEMON_STOPPED, event_log.REPORT, "")
        elif self.exit_code in _HOPELESS or self._refuses_the_spool:
            self.passed = True
            why = events.DAEMON_REFUSES if self._refuses_the_spool else events.DAEMON_GIVEN_UP
            self._enter(State.FAILED, why, event_log.ERROR, self.text)
        else:
            self._dead(self.exit_code, exit_text(self.exit_code), now)

    @property
    def _refuses_the_spool(self) -> bool:
        """Is it a manager that must not start before somebody has repaired the spool?"""
        return self.conf.kind is ServiceKind.MANAGER and self.exit_code == Exit.DATA

    def _dead(self, exit_code: int, reason: str, now: float) -> None:
        self.exit_code = exit_code
        self.passed = self.passed or not self.core
        self.pid = self._start_ticks = 0
        wait_s = self._backoff.next_wait_s(now - self._started_at)
        self.restarts += 1
        self._deadline = now + wait_s
        text = f"{reason}; start {self.restarts + 1} in {duration(wait_s)}"
        self._enter(State.WAITING, events.DAEMON_DIED, event_log.ERROR, text)

    def _environment(self, environ: dict[str, str]) -> dict[str, str]:
        found = environ | {"NOTIFY_SOCKET": self.notify.address}
        if self.limits.watchdog_s:
            found["WATCHDOG_USEC"] = str(int(self.limits.watchdog_s * 1_000_000))
        return found

    def _enter(self, state: State, event: Event, level: Level, text: str) -> None:
        self.state = state
        self.since = time.time()
        if state not in LIVE:
            self._start_ticks = 0
        self._tell(event, level, text)

    def _tell(self, event: Event, level: Level, text: str) -> None:
        self._changed(self, event, level, text)
