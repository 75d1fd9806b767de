"""The embedded supervisor: starts the daemons in order, keeps them alive, stops them in order.

What systemd does with the units, in one plain foreground process for machines without it. It speaks
the same notification protocol, so daemons cannot tell the two apart. It owns run/supervisor.json
and the control socket; it never touches messages.

Invariants: 1. one thread, one selector; it sleeps until a signal, a notification, a request or the
next time-out; 2. a daemon is started only when those before it are ready (a service that fails at
its first start lets the others pass, the three core daemons do not); 3. whatever happens to one
service, the others and the manager go on; 4. a stop is ordered by stages and bounded: each daemon
has its stop time-out, then its process group is killed; 5. orphans of a daemon are adopted
(PR_SET_CHILD_SUBREAPER), so the end of the supervisor is the end of everything it started.

Errors: SpoolLocked when another supervisor holds this spool. What it publishes are side files
(base.side_files): a run directory that cannot be written stops nothing.
"""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from omq.base import event_log, events, side_files
from omq.base.errors import BadRequest, ConfigError, Exit, OmqError, ServiceUnknown
from omq.base.event_log import EventLog, Level
from omq.base.events import Event
from omq.base.paths import SpoolPaths
from omq.base.services_conf import ServiceConf, ServiceKind
from omq.services.daemon.lock import LOCK_FILE
from omq.services.daemon.process import adopt_orphans, identify
from omq.services.daemon.run_state import SUPERVISOR_FILE, State, SupervisorState, write_state
from omq.services.daemon.signals import Signals
from omq.services.supervise.child import Child
from omq.services.supervise.chore import Chore
from omq.services.supervise.control_socket import SOCKET_FILE, ControlServer, Reply, Request
from omq.services.supervise.daemon_plan import Command, Limits
from omq.services.supervise.process_group import Launch, launch
from omq.storage.spool import lock


@dataclass(frozen=True, slots=True)
class Setup:
    """What one run of the supervisor works with."""

    paths: SpoolPaths
    limits: Limits
    services: tuple[ServiceConf, ...]  # in starting order, also those that are left off
    reread: Callable[[], Iterable[ServiceConf]]  # services.conf again; ConfigError = keep the old
    command: Command
    environ: dict[str, str]
    launch: Launch = launch  # how a process is started
    starts: Callable[[ServiceConf], bool] = lambda conf: True  # False: off until somebody says omon
    chores: tuple[Chore, ...] = ()


class Supervisor:
    """Construct, then `run` once."""

    def __init__(
        self, setup: Setup, signals: Signals, log: EventLog, say: Callable[[str], None]
    ) -> None:
        self._setup = setup
        self._signals = signals
        self._log = log
        self._say = say
        self._lock = lock(setup.paths.run / LOCK_FILE, "the supervisor")
        self._selector = selectors.DefaultSelector()
        self._children: dict[str, Child] = {}
        self._control: ControlServer | None = None
        self._stopping = False
        self._exit = Exit.OK
        self._published: SupervisorState | None = None
        self._since = time.time()
        self._me = identify(os.getpid())

    def run(self) -> int:
        """Until SIGTERM, SIGINT or a request to stop, and everything is down."""
        adopt_orphans()
        self._signals.install(children=True)
        self._selector.register(self._signals, selectors.EVENT_READ, self._signals.drain)
        socket_path = self._setup.paths.run / SOCKET_FILE
        side_files.attempt(socket_path, lambda: self._listen(socket_path))
        for conf in self._setup.services:
            self._add(conf)
        self._log.event(events.SUPERVISOR_STARTED, event_log.REPORT, spool=self._setup.paths.root)
        try:
            while not self._finished():
                self._turn()
        finally:
            self._close()
        return self._exit

    def _listen(self, path: Path) -> None:
        """A name for the socket needs room; until there is some, signals alone reach us."""
        self._control = ControlServer(path, self._selector, ControlAnswers(self).answer)

    def _turn(self) -> None:
        """One round: decide, publish, wait, react."""
        now = time.monotonic()
        self._decide(now)
        for chore in self._setup.chores:
            if self._stopping:
                chore.stop()
            else:
                chore.turn(now, self._setup.environ, self._log)
        side_files.retry()
        self._publish()
        if self._finished():
            return
        wakeups = [each for each in (*map(Child.next_wakeup, self._all()),
                                     *map(Chore.next_wakeup, self._setup.chores))
                   if each is not None]
        waits = [max(0.0, min(wakeups) - now)] if wakeups else []
        if (owed_s := side_files.wait_s()) is not None:
            waits.append(owed_s)
        timeout_s = min(waits, default=None)
        for key, _mask in self._selector.select(timeout_s):
            key.data()
        # Notifications were read above: time-outs are judged by what the daemons said.
        now = time.monotonic()
        self._reap(now)
        for child in self._all():
            child.on_time(now)
        if self._signals.take_reload():
            self.reload()

    def _all(self) -> list[Child]:
        return list(self._children.values())

    def _finished(self) -> bool:
        return self._stopping and not any(
            child.live or child.state is State.WAITING for child in self._all()
        ) and not any(chore.pid for chore in self._setup.chores)

    def _add(self, conf: ServiceConf) -> None:
        child = Child(conf, self._setup.limits, self._changed,
                      wanted=self._setup.starts(conf))
        self._children[conf.name] = child
        self._selector.register(
            child.notify, selectors.EVENT_READ, lambda: child.on_notify(time.monotonic())
        )

    def _decide(self, now: float) -> None:
        self._stopping = self._stopping or self._signals.stopping
        if self._stopping:
            self._stop_next_stage(now)
            return
        for child in self._all():
            if child.due(now):
                child.start(self._setup.command(child.conf), self._setup.environ, now,
                            self._setup.launch)
            if child.wanted and not child.passed:
                return

    def _stop_next_stage(self, now: float) -> None:
        active = [each for each in self._all() if each.live or each.state is State.WAITING]
        stage = min((each.stage for each in active), default=None)
        for child in active:
            if child.stage == stage or child.state is State.WAITING:
                child.stop_for_good(now)

    def _reap(self, now: float) -> None:
        """Collect all dead processes; a daemon's last words are read before it is reaped."""
        by_pid = {child.pid: child for child in self._all() if child.pid}
        while True:
            try:
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                break
            if dead is None:
                break
            child = by_pid.get(dead.si_pid)
            if child is not None:
                child.on_notify(now)
            os.waitid(os.P_PID, dead.si_pid, os.WEXITED)
            code = dead.si_status if dead.si_code == os.CLD_EXITED else -dead.si_status
            if child is not None:
                child.on_exit(code, now)
            for chore in self._setup.chores:
                if chore.pid == dead.si_pid:
                    chore.on_exit(code, self._log, stopping=self._stopping)
        for child in self._all():
            child.settle(now)

    def _changed(self, child: Child, event: Event, level: Level, text: str) -> None:
        """A child tells what happened to it: to people, the log, followers, and our own rules."""
        self._publish()  # first: whoever reads on may look into the file
        pid = child.pid or None
        self._log.event(event, level, daemon=child.conf.name, pid_of=pid, detail=text or None)
        if level <= event_log.REPORT:
            words = f"{child.conf.program}: {event.text.removeprefix('Daemon ')}"
            self._say(" ".join(filter(None, (words, text, f"(pid {pid})" if pid else ""))))
        if self._control is not None:
            self._control.publish({"event": event.number, "detail": text, **asdict(child.record())})
        failed_manager = child.conf.kind is ServiceKind.MANAGER and child.state is State.FAILED
        if failed_manager and not child.was_ready:
            # Nothing can run without it: say so and end.
            self._exit = Exit.DATA if child.exit_code == Exit.DATA else Exit.CONFIG
            self._stopping = True

    def _publish(self) -> None:
        """Write run/supervisor.json when something changed."""
        state = self.state()
        if state != self._published:
            self._published = state
            write_state(self._setup.paths.run / SUPERVISOR_FILE, state)

    def child(self, name: object) -> Child | None:
        """The child of this name."""
        return self._children.get(name) if isinstance(name, str) else None

    def request_stop(self) -> None:
        """As SIGTERM does."""
        self._stopping = True

    def state(self) -> SupervisorState:
        """What run/supervisor.json holds."""
        return SupervisorState(
            pid=self._me.pid, start_ticks=self._me.start_ticks, since=self._since,
            children=tuple(child.record() for child in self._all()),
        )  # fmt: skip

    def reload(self) -> ConfigError | None:
        """Read services.conf again; new services start, removed ones stop, the others reload."""
        try:
            services = {conf.name: conf for conf in self._setup.reread()}
        except ConfigError as error:
            self._log.event(events.RELOAD_REFUSED, event_log.ERROR, reason=str(error))
            self._say(f"reload refused, the old configuration stays: {error}")
            return error
        for name, conf in services.items():
            if name not in self._children:
                self._add(conf)
        for name, child in self._children.items():
            if name in services:
                child.conf = services[name]
                child.put_back()
                child.reload()
            elif not child.core:
                child.listed = False
                child.stop_for_good(time.monotonic())
        self._log.event(events.SERVICE_RELOADED)
        return None

    def _close(self) -> None:
        """Everything is down (or we die of an error: then the kernel tells the children)."""
        self._publish()
        self._log.event(events.SUPERVISOR_STOPPED)
        if self._control is not None:
            self._control.close()
        for child in self._all():
            child.notify.close()
        self._selector.close()
        self._signals.restore()
        self._lock.close()


class ControlAnswers:
    """What is answered on the control socket (omq.services.supervise.control_socket): one method a
    command."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def answer(self, request: Request) -> Reply:
        """The reply to one request; a refusal is a reply too."""
        commands: dict[str, Callable[[Request], Reply]] = {
            "status": self._on_status, "stop": self._on_stop, "reload": self._on_reload,
            "on": self._on_switch, "off": self._on_switch,
        }  # fmt: skip
        command = commands.get(str(request.get("command")))
        try:
            if command is None:
                raise BadRequest(reason=f"known commands: {', '.join(commands)}")
            return {"ok": True, **command(request)}
        except OmqError as error:
            fields = {name: str(value) for name, value in error.fields.items()}
            return {"ok": False, "status": error.status, "fields": fields}

    def _on_status(self, _request: Request) -> Reply:
        return asdict(self._supervisor.state())

    def _on_stop(self, request: Request) -> Reply:
        self._supervisor.request_stop()
        return self._on_status(request)

    def _on_reload(self, _request: Request) -> Reply:
        if (problem := self._supervisor.reload()) is not None:
            raise problem
        return {}

    def _on_switch(self, request: Request) -> Reply:
        name = request.get("service")
        child = self._supervisor.child(name)
        if child is None:
            known = ", ".join(each.name for each in self._supervisor.state().children)
            raise ServiceUnknown(service=name, known=known)
        if request["command"] == "on":
            child.want()
        elif child.core:
            reason = f"{child.conf.name} is NON-STOP; omshut stops the whole instance"
            raise BadRequest(reason=reason)
        else:
            child.stop_for_good(time.monotonic())
        return {"service": asdict(child.record())}
