"""The parent process of a service: keeps its readers alive and says how they are.

It never touches a message. It forks the readers (omq.services.readers.group), pings the watchdog
from its main loop, and publishes run/<service>.json for omstat.

Invariants: 1. one thread, one selector, no polling; 2. the service is ready when its main reader is
registered for the first time; auxiliaries start then; 3. a reload with a wrong configuration
changes nothing; a new number of auxiliaries is reached by starting or stopping only the difference;
4. after SIGTERM every reader has drain_timeout_s, then SIGKILL; when `run` returns no reader is
left.

A main reader that finds the configuration wrong (exit code 78) ends the service with that code: no
supervisor restarts it. The same in an auxiliary leaves that one off until the next reload.
"""

from __future__ import annotations

import os
import selectors
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from omq.base import event_log, events, side_files
from omq.base.config import load_settings
from omq.base.errors import ConfigError, Exit, OmqError, ServiceUnknown
from omq.base.services_conf import ServiceConf, load_services
from omq.services.daemon import last_words
from omq.services.daemon.daemon import DaemonContext, last_trace, run_daemon
from omq.services.daemon.process import identify
from omq.services.daemon.restart_backoff import Backoff
from omq.services.daemon.run_state import ProcessState, ServiceState, State, write_state
from omq.services.daemon.signals import Signals
from omq.services.readers.group import ReaderGroup
from omq.services.readers.process import Ready
from omq.services.readers.runner import Connect, ReaderRunner, connect_manager
from omq.services.readers.service import Service, ServiceContext


class Running(Protocol):
    """What has the life of a reader process."""

    def run(self, ready: Ready) -> None: ...


Runner = Callable[[Service, Signals, Connect], Running]

_COLLECT_S = 5.0  # after the drain: to kill and collect what is left


class ServiceParent:
    """Construct in the daemon's main process, then `run` once."""

    def __init__(
        self,
        context: DaemonContext,
        service_class: type[Service],
        connect: Connect = connect_manager,
        runner: Runner = ReaderRunner,
    ) -> None:
        self._context = context
        self._service_class = service_class
        self._connect = connect
        self._runner = runner
        self._settings = context.settings
        self._conf = self._load_conf()
        self._selector = selectors.DefaultSelector()
        self._group = ReaderGroup(
            self._conf.name, self._selector, context.log, target=self._read, backoff=self._backoff,
            died_of_signal=lambda: last_words.listen(
                context.paths, context.service, context.log),
        )  # fmt: skip
        self._was_ready = False
        self._state = State.STARTING
        self._since = time.time()
        self._deadline: float | None = None  # of the stop
        self._exit = Exit.OK
        self._me = identify(os.getpid())
        self._published: ServiceState | None = None

    def run(self) -> int:
        """Until SIGTERM and all readers are gone; the exit code."""
        signals = self._context.signals
        self._selector.register(signals, selectors.EVENT_READ, signals.drain)
        self._context.log.event(events.SERVICE_STARTED)
        try:
            while self._deadline is None or self._group.live:
                self._turn()
        finally:
            self._group.kill()
            self._selector.close()
        self._enter(State.FAILED if self._exit == Exit.CONFIG else State.STOPPED)
        self._publish()
        self._context.log.event(events.SERVICE_STOPPED)
        return self._exit

    def _turn(self) -> None:
        """One round: decide, tell, wait, react."""
        now = time.monotonic()
        self._decide(now)
        self._context.notifier.watchdog()
        side_files.retry()
        self._publish()  # before its status: whoever hears of it may read the file
        self._context.notifier.status(self._status())
        if self._deadline is not None and not self._group.live:
            return
        for key, _mask in self._selector.select(self._timeout_s(now)):
            key.data()

    def _decide(self, now: float) -> None:
        if self._deadline is not None:
            if now >= self._deadline:
                self._group.kill()
            return
        if self._context.signals.stopping:
            self._stop(now)
        elif self._group.main.state is State.FAILED:
            self._exit = Exit.CONFIG
            self._stop(now)
        else:
            if self._context.signals.take_reload():
                self._reload()
            if self._group.main.state is State.STARTED and not self._was_ready:
                self._ready()
            self._group.start_due(now)

    def _timeout_s(self, now: float) -> float | None:
        until = self._group.next_due() if self._deadline is None else self._deadline
        waits = [] if until is None else [max(0.0, until - now)]
        if (interval_s := self._context.notifier.watchdog_interval_s) is not None:
            waits.append(interval_s)
        if (owed_s := side_files.wait_s()) is not None:
            waits.append(owed_s)
        return min(waits, default=None)

    def _ready(self) -> None:
        self._was_ready = True
        self._group.resize(self._conf.auxiliaries)
        self._enter(State.STARTED)
        self._publish()
        self._context.notifier.ready(self._status())

    def _stop(self, now: float) -> None:
        """Pass on the stop; what does not end in time is killed."""
        drain_s = float(self._settings.drain_timeout_s)
        self._group.stop()
        self._context.notifier.stopping(self._status())
        # The supervisor must not be faster than our own bound.
        self._context.notifier.extend(drain_s + _COLLECT_S)
        self._context.log.event(events.SERVICE_DRAINING, event_log.TRACE)
        self._deadline = now + drain_s
        self._enter(State.STOPPING)

    def _read(self, is_main: bool, ready: Ready) -> int:  # noqa: FBT001 (the type Target)
        """The life of a reader; runs in the child, where signals are blocked until installed."""
        signals = Signals()
        signals.install()
        log = self._context.log
        try:
            context = ServiceContext(
                settings=self._settings, paths=self._context.paths, conf=self._conf,
                conf_dir=self._context.conf_dir, log=log, is_main=is_main,
            )  # fmt: skip
            self._runner(self._service_class(context), signals, self._connect).run(ready)
        except OmqError as error:
            event = events.CONFIG_WRONG if error.exit_code == Exit.CONFIG else events.FAILED
            log.event(event, event_log.ERROR, reason=str(error))
            return error.exit_code
        except Exception:
            log.event(events.BUG, event_log.ERROR, traceback=last_trace())
            return Exit.SOFTWARE
        return Exit.OK

    def _backoff(self) -> Backoff:
        settings = self._settings
        return Backoff(settings.restart_backoff_min_s, settings.restart_backoff_max_s)

    def _load_conf(self) -> ServiceConf:
        services = load_services(self._context.conf_dir)
        conf = services.get(self._context.service)
        if conf is None:
            raise ServiceUnknown(service=self._context.service, known=", ".join(services))
        return conf if self._runner is ReaderRunner else replace(conf, auxiliaries=0)

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
            if self._was_ready:
                self._group.resize(conf.auxiliaries)
            self._group.reload()
            log.event(events.SERVICE_RELOADED, auxiliaries=conf.auxiliaries)
        if self._was_ready:
            notifier.ready(self._status())

    def _status(self) -> str:
        main = int(self._group.main.state is State.STARTED)
        auxiliaries = self._conf.auxiliaries
        text = f"main {main}/1, auxiliary {self._group.running()}/{auxiliaries}"
        for word, count in (("restarts", self._group.restarts), ("failed", self._group.failed)):
            text += f", {word} {count}" if count else ""
        return text

    def _enter(self, state: State) -> None:
        self._state = state
        self._since = time.time()

    def _publish(self) -> None:
        """Write run/<service>.json when something changed."""
        process = ProcessState(
            name=self._conf.name, state=self._state, since=self._since, pid=self._me.pid,
            start_ticks=self._me.start_ticks, text=self._status(),
        )  # fmt: skip
        auxiliary = tuple(each.record() for each in self._group.auxiliary)
        main = self._group.main.record()
        state = ServiceState(process, self._conf.auxiliaries, main, auxiliary,
                             str(self._context.conf_dir))
        if state != self._published:
            self._published = state
            write_state(self._context.paths.run / f"{self._conf.name}.json", state)


def run_service(
    service_name: str, service_class: type[Service], argv: list[str] | None = None,
    runner: Runner = ReaderRunner,
) -> int:
    """`main` of a reader service; its exit code. `--service NAME` chooses another section. With
    another `runner` it has one reader, whatever `auxiliaries` says: the runner has processes of its
    own."""
    # The launcher puts the program's name there: several programs may share one class.
    program = Path(sys.argv[0]).name

    def body(context: DaemonContext) -> int:
        return ServiceParent(context, service_class, runner=runner).run()

    return run_daemon(program, argv, body, service=service_name)
