"""The parent process of a service: one main and 0 to 20 auxiliary readers, kept alive.

It never touches a message. It forks the readers, restarts dead ones with exponential back-off, pings
the watchdog from its main loop, and publishes run/<service>.json for omstat.

Invariants: 1. one thread, one selector, no polling; 2. the service is ready when its main reader is
registered for the first time; auxiliaries start then; 3. a reload with a wrong configuration changes
nothing; a new number of auxiliaries is reached by starting or stopping only the difference; 4. after
SIGTERM every reader has drain_timeout_s, then SIGKILL; when `run` returns no reader is left.

A main reader that finds the configuration wrong (exit code 78) ends the service with that code: no
supervisor restarts it. The same in an auxiliary leaves that one off.
"""

from __future__ import annotations

import selectors
import signal
import time
from dataclasses import replace
from functools import partial

from omq.base import event_log, events
from omq.base.config import ServiceConf, load_services, load_settings
from omq.base.errors import ConfigError, Exit, OmqError, ServiceUnknown
from omq.services.backoff import Backoff
from omq.services.child import describe
from omq.services.daemon import DaemonContext, last_trace, run_daemon
from omq.services.process import identify
from omq.services.reader_process import ReaderProcess, Ready
from omq.services.reader_runner import Connect, ReaderRunner, connect_manager
from omq.services.run_state import ProcessState, ServiceState, State, write_state
from omq.services.service import Service, ServiceContext
from omq.services.signals import Signals


class ServiceParent:
    """Construct in the daemon's main process, then `run` once."""

    def __init__(
        self,
        context: DaemonContext,
        service_class: type[Service],
        connect: Connect = connect_manager,
    ) -> None:
        self._context = context
        self._service_class = service_class
        self._connect = connect
        self._settings = context.settings
        self._conf = self._load_conf()
        self._selector = selectors.DefaultSelector()
        self._readers: list[ReaderProcess] = []  # the main reader first
        self._was_ready = False
        self._state = State.STARTING
        self._since = time.time()
        self._deadline: float | None = None  # of the stop
        self._exit = Exit.OK
        self._published: ServiceState | None = None

    def run(self) -> int:
        """Until SIGTERM and all readers are gone; the exit code."""
        signals = self._context.signals
        self._selector.register(signals, selectors.EVENT_READ, signals.drain)
        self._context.log.event(events.SERVICE_STARTED)
        self._add_reader()
        self._start_due(time.monotonic())
        try:
            while self._deadline is None or any(reader.live for reader in self._readers):
                self._turn()
        finally:
            self._kill_all()
            self._selector.close()
        self._enter(State.FAILED if self._exit == Exit.CONFIG else State.STOPPED)
        self._publish()
        self._context.log.event(events.SERVICE_STOPPED)
        return self._exit

    def _turn(self) -> None:
        self._context.notifier.watchdog()
        self._context.notifier.status(self._status())
        self._publish()
        for key, _mask in self._selector.select(self._timeout_s(time.monotonic())):
            key.data()
        now = time.monotonic()
        if self._context.signals.stopping and self._deadline is None:
            self._stop(now)
        if self._deadline is None:
            if self._context.signals.take_reload():
                self._reload()
            self._start_due(now)
        elif now >= self._deadline:
            self._kill_all()

    def _timeout_s(self, now: float) -> float | None:
        times = [reader.due for reader in self._readers if reader.state is State.WAITING]
        if self._deadline is not None:
            times = [self._deadline]
        waits = [max(0.0, each - now) for each in times]
        if (interval_s := self._context.notifier.watchdog_interval_s) is not None:
            waits.append(interval_s)
        return min(waits, default=None)

    def _add_reader(self) -> None:
        number = len(self._readers)
        reader = ReaderProcess(
            f"{self._conf.name}.{number}" if number else self._conf.name,
            is_main=number == 0,
            target=self._read,
            backoff=Backoff(
                self._settings.restart_backoff_min_s, self._settings.restart_backoff_max_s
            ),
        )
        self._readers.append(reader)

    def _read(self, is_main: bool, ready: Ready) -> int:
        """The life of a reader; runs in the child, with signals blocked until they are installed."""
        signals = Signals()
        signals.install()
        log = self._context.log
        try:
            context = ServiceContext(
                self._settings, self._context.paths, self._conf, self._context.conf_dir, log, is_main
            )
            ReaderRunner(self._service_class(context), signals, self._connect).run(ready)
        except OmqError as error:
            event = events.CONFIG_WRONG if error.exit_code == Exit.CONFIG else events.FAILED
            log.event(event, event_log.ERROR, reason=str(error))
            return error.exit_code
        except Exception:
            log.event(events.BUG, event_log.ERROR, traceback=last_trace())
            return Exit.SOFTWARE
        return Exit.OK

    def _start_due(self, now: float) -> None:
        for reader in self._readers:
            waits = reader.state is State.WAITING and reader.due > now
            if reader.wanted and not waits and reader.state in (State.WAITING, State.STOPPED):
                self._start(reader, now)

    def _start(self, reader: ReaderProcess, now: float) -> None:
        try:
            reader.start(now)
        except OSError as error:
            reader.postpone(now)
            self._context.log.event(
                events.READER_DIED, event_log.ERROR, reader=reader.name, reason=str(error)
            )
            return
        died = partial(self._on_death, reader, reader.ready_fd)
        self._selector.register(reader.pidfd, selectors.EVENT_READ, died)
        self._selector.register(
            reader.ready_fd, selectors.EVENT_READ, partial(self._on_ready, reader)
        )
        self._context.log.event(events.READER_STARTED, reader=reader.name, pid_of=reader.pid)

    def _on_ready(self, reader: ReaderProcess) -> None:
        if reader.ready_fd < 0:
            return  # its death was seen in the same round
        fd = reader.ready_fd
        ready = reader.is_ready()
        if reader.ready_fd < 0:
            self._selector.unregister(fd)
        if ready and reader.is_main and not self._was_ready:
            self._was_ready = True
            for _ in range(self._conf.auxiliaries):
                self._add_reader()
            self._enter(State.STARTED)
            self._context.notifier.ready(self._status())

    def _on_death(self, reader: ReaderProcess, ready_fd: int) -> None:
        self._selector.unregister(reader.pidfd)
        if reader.ready_fd >= 0:
            self._selector.unregister(ready_fd)
        pid = reader.pid
        reader.collect(time.monotonic())
        log, code = self._context.log, reader.exit_code
        assert code is not None
        if reader.state is State.STOPPED and code == 0:
            log.event(events.READER_STOPPED, reader=reader.name, pid_of=pid)
        else:
            log.event(
                events.READER_DIED, event_log.ERROR, reader=reader.name, pid_of=pid,
                cause=describe(code), restarts=reader.restarts,
            )  # fmt: skip
        if reader.state is State.FAILED and reader.is_main:
            self._exit = Exit.CONFIG
            self._stop(time.monotonic())

    def _stop(self, now: float) -> None:
        """Pass on the stop; what does not end in time is killed."""
        drain_s = self._settings.drain_timeout_s
        self._context.notifier.stopping(self._status())
        # Our own bound and a little to collect the dead: the supervisor must not be faster.
        self._context.notifier.extend(drain_s + 5)
        self._context.log.event(events.SERVICE_DRAINING, event_log.TRACE)
        self._deadline = now + drain_s
        self._enter(State.STOPPING)
        for reader in self._readers:
            reader.stop()

    def _kill_all(self) -> None:
        for reader in self._readers:
            if reader.live:
                reader.wanted = False
                reader.signal(signal.SIGKILL)
                self._context.log.event(
                    events.READER_KILLED, event_log.ERROR, reader=reader.name, pid_of=reader.pid
                )
                self._on_death(reader, reader.ready_fd)  # waits for a process that is being killed

    def _load_conf(self) -> ServiceConf:
        services = load_services(self._context.conf_dir)
        conf = services.get(self._context.service)
        if conf is None:
            raise ServiceUnknown(service=self._context.service, known=", ".join(services))
        return conf

    def _reload(self) -> None:
        """Read the configuration again; wrong = refused whole."""
        notifier, log = self._context.notifier, self._context.log
        notifier.reloading()
        try:
            settings = load_settings(self._context.conf_dir)
            conf = self._load_conf()
        except (ConfigError, ServiceUnknown) as error:
            log.event(events.RELOAD_REFUSED, event_log.ERROR, reason=str(error))
        else:
            self._settings = settings
            self._conf = replace(conf, queue=self._conf.queue)  # another queue needs a restart
            self._adjust()
            log.event(events.SERVICE_RELOADED, auxiliaries=conf.auxiliaries)
        notifier.ready(self._status())

    def _adjust(self) -> None:
        """Reach the configured number of auxiliaries; the readers that stay reload."""
        self._readers = [each for each in self._readers if each.wanted or each.live]
        staying = [each for each in self._readers if each.wanted]
        wanted = 1 + self._conf.auxiliaries
        for reader in staying[wanted:]:
            reader.stop()
        for reader in staying[:wanted]:
            if reader.state is State.STARTED:
                reader.signal(signal.SIGHUP)
        if self._was_ready:
            for _ in range(wanted - len(staying)):
                self._add_reader()

    def _status(self) -> str:
        auxiliary = [each for each in self._readers if not each.is_main]
        running = sum(each.state is State.STARTED for each in auxiliary)
        main = int(self._readers[0].state is State.STARTED)
        text = f"main {main}/1, auxiliary {running}/{self._conf.auxiliaries}"
        restarts = sum(each.restarts for each in self._readers)
        return f"{text}, restarts {restarts}" if restarts else text

    def _enter(self, state: State) -> None:
        self._state = state
        self._since = time.time()

    def _publish(self) -> None:
        """Write run/<service>.json when something changed."""
        me = identify(self._pid())
        process = ProcessState(
            name=self._conf.name, state=self._state, since=self._since, pid=me.pid,
            start_ticks=me.start_ticks, text=self._status(),
        )  # fmt: skip
        main, *auxiliary = (each.record() for each in self._readers)
        state = ServiceState(process, self._conf.auxiliaries, main, tuple(auxiliary))
        if state != self._published:
            self._published = state
            write_state(self._context.paths.run / f"{self._conf.name}.json", state)
