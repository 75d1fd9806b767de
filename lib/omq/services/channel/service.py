"""channel.sender: runs the channels that are defined and started; one process, two threads each.

It looks at the definitions every `channel_look_ms`: one that is new, started, stopped, changed or
gone is followed. run/channels.json tells of those that run, for `omq channel`, and which daemon
says so, by the lock of its pid file: what a dead one said is nothing.

SIGHUP reads the configuration again; each channel is made anew with it. SIGTERM drains: batches
under way are settled, for at most `drain_timeout_s`; what is in doubt then stays in doubt, and the
next start asks.

Errors: ConfigError, ManagerUnavailable at the start.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, replace
from typing import Final

import omq
from omq.base import events, modes, side_files
from omq.base.config import load_settings
from omq.base.errors import BadChannel, ConfigError, OmqError
from omq.base.event_log import ERROR, REPORT, WARNING
from omq.base.rated_log import NEVER, RatedLog
from omq.ipc.client.connection import Client
from omq.services.channel.definition import IDLE, STARTED, Channel, altered, channel_of, write
from omq.services.channel.run import ChannelRun
from omq.services.channel.shared import Place
from omq.services.daemon.daemon import DaemonContext
from omq.storage.spool import open_spool

FILE: Final = "channels.json"
_CLOSE_S: Final = 5.0
_LOOK_TIMEOUT_S: Final = 5.0


class ChannelSender:
    """Construct, then `run` once."""

    def __init__(self, context: DaemonContext) -> None:
        self._context, settings = context, context.settings
        rated = RatedLog(context.log, settings.event_burst, settings.event_period_s)
        self._place = Place(
            settings, context.conf_dir,
            open_spool(context.paths.root, writer=False).uuid.hex(), rated, self._connect,
            self._idle)
        self._runs: dict[str, ChannelRun] = {}
        self._wrong: dict[str, str] = {}
        self._written = b""
        self._me = {"service": context.service, "pid": os.getpid()}

    def _connect(self) -> Client:
        return omq.connect(spool=self._context.paths.root, name=self._context.program)

    def _looker(self) -> Client:
        """Of the main thread, which has to give signs of life meanwhile."""
        return omq.connect(spool=self._context.paths.root, name=self._context.program,
                           timeout_s=_LOOK_TIMEOUT_S)

    def run(self) -> int:
        """Until a signal to stop."""
        context, signals = self._context, self._context.signals
        native = self._looker()
        try:
            self._look(native)
            context.log.event(events.CHANNELS_STARTED, REPORT, channels=len(self._runs))
            context.notifier.ready(self._status())
            while not signals.stopping:
                if signals.take_reload():
                    self._reload()
                context.notifier.watchdog()
                side_files.retry()
                try:
                    self._look(native)
                except OmqError as error:
                    self._place.rated.event(events.FAILED, WARNING, "look", reason=str(error))
                    native.abandon()
                    native = self._connected_again(native)
                self._publish()
                context.notifier.status(self._status())
                signals.wait(self._place.settings.channel_look_ms / 1000)
            self._drain()
        finally:
            native.close()
        self._place.rated.flush(NEVER)
        context.log.event(events.CHANNELS_STOPPED, REPORT)
        return 0

    def _connected_again(self, native: Client) -> Client:
        try:
            return self._looker()
        except OmqError as error:
            self._place.rated.event(events.FAILED, WARNING, "look", reason=str(error))
            return native

    # definitions

    def _look(self, native: Client) -> None:
        wanted = self._defined(native)
        for name, run in list(self._runs.items()):
            if name not in wanted or wanted[name] != run.channel:
                run.stop()
            if not run.is_alive():
                run.close()
                del self._runs[name]
        for name, channel in wanted.items():
            if name not in self._runs and len(self._runs) < self._place.settings.channels_max:
                self._runs[name] = ChannelRun(self._place, channel)
                self._runs[name].start()
        self._place.rated.flush(time.monotonic_ns())

    def _defined(self, native: Client) -> dict[str, Channel]:
        """Those that are to run."""
        found: dict[str, Channel] = {}
        for info in native.queues.list():
            try:
                channel = channel_of(info)
            except BadChannel as error:
                if self._wrong.get(info.name) != str(error):
                    self._wrong[info.name] = str(error)
                    self._context.log.event(events.CHANNEL_WRONG, ERROR, reason=str(error))
                continue
            self._wrong.pop(info.name, None)
            if channel is not None and channel.text("state") == STARTED:
                found[info.name] = channel
        return found

    def _idle(self, channel: Channel) -> None:
        """It had nothing to do: it waits until it is started."""
        try:
            with self._connect() as native:
                now = channel_of(native.queues.show(channel.name))
                if now == channel:
                    write(native, altered(channel, state=IDLE), "it had nothing to do")
        except OmqError as error:  # it is started again, and tries again
            self._place.rated.event(events.FAILED, WARNING, channel.name, reason=str(error))

    # the end, and a new configuration

    def _drain(self) -> None:
        context, wait_s = self._context, float(self._place.settings.drain_timeout_s)
        context.notifier.stopping("batches under way are settled")
        context.notifier.extend(wait_s + _CLOSE_S)
        context.log.event(events.SERVICE_DRAINING, REPORT, channels=len(self._runs))
        for run in self._runs.values():
            run.stop()
        ends = time.monotonic() + wait_s + _CLOSE_S
        for run in self._runs.values():
            run.join(max(0.0, ends - time.monotonic()))
        self._publish()

    def _reload(self) -> None:
        context = self._context
        context.notifier.reloading()
        try:
            settings = load_settings(context.conf_dir)
        except ConfigError as error:
            context.log.event(events.RELOAD_REFUSED, ERROR, reason=str(error))
        else:
            self._place = replace(self._place, settings=settings)
            for run in self._runs.values():
                run.stop()
            context.log.event(events.SERVICE_RELOADED, REPORT)
        context.notifier.ready(self._status())

    # what is published

    def _status(self) -> str:
        running = sum(run.facts.state == "running" for run in self._runs.values())
        return f"{len(self._runs)} channels, {running} connected"

    def _publish(self) -> None:
        told = json.dumps([asdict(run.facts) | self._me
                           for run in self._runs.values()]).encode()
        if told != self._written:
            self._written = told
            side_files.replace(self._context.paths.run / FILE, told, modes.PUBLIC)


def serve(context: DaemonContext) -> int:
    """The daemon's body."""
    return ChannelSender(context).run()
