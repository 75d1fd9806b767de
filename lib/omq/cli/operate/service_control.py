"""Turning services on and off, whoever runs the instance: systemd or omrc --embedded.

One Protocol, two ways: units by systemctl, or requests to the embedded supervisor. The same words
and states come out of both, so the commands do not care.

Errors: ManagerUnavailable when nobody runs the instance; SystemctlFailed, NoPermission, TimedOut,
ServiceUnknown, ServiceQueueMissing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol

from omq.base.config import client_settings, load_queues
from omq.base.errors import (
    AccessDenied,
    BadRequest,
    ConfigError,
    ManagerUnavailable,
    ServiceQueueMissing,
    ServiceUnknown,
    TimedOut,
)
from omq.base.names import IDEL_NAME, POISON_NAME
from omq.base.paths import existing_spool
from omq.base.services_conf import START_ORDER, ServiceConf, load_services
from omq.base.settings import Settings
from omq.cli.common import Location
from omq.cli.look.service_status import Status, Word, all_status
from omq.services.daemon.run_state import LIVE, State
from omq.services.supervise import systemctl
from omq.services.supervise.control_client import ControlConnection
from omq.services.supervise.daemon_plan import is_core, stop_stage

ALL = "all"


class Control(Protocol):
    """Who runs the instance."""

    def on(self, conf: ServiceConf) -> None:
        """Start it, forgetting failures, and wait until it is ready or has failed."""

    def off(self, conf: ServiceConf) -> None:
        """Stop it and wait until it is down."""

    def reload(self, conf: ServiceConf) -> None:
        """Have it read its configuration again."""


class SystemdControl:
    """By units."""

    def __init__(self, managed: systemctl.Managed) -> None:
        self._managed = managed

    def on(self, conf: ServiceConf) -> None:
        unit = self._managed.unit(conf.name)
        systemctl.reset_failed([unit])
        systemctl.call(["start", unit])
        systemctl.call(["enable", unit])

    def off(self, conf: ServiceConf) -> None:
        unit = self._managed.unit(conf.name)
        systemctl.call(["stop", unit])
        systemctl.call(["disable", unit])  # it stays off when the target starts anew

    def reload(self, conf: ServiceConf) -> None:
        systemctl.call(["reload", self._managed.unit(conf.name)])


class EmbeddedControl:
    """By the supervisor's socket."""

    def __init__(self, location: Location, settings: Settings) -> None:
        self._run = location.paths.run
        self._settings = settings

    def on(self, conf: ServiceConf) -> None:
        wanted = (State.STARTED, State.FAILED, State.WAITING)
        self._ask("on", conf, wanted, self._settings.start_timeout_s)

    def off(self, conf: ServiceConf) -> None:
        gone = tuple(state for state in State if state not in (*LIVE, State.WAITING))
        self._ask("off", conf, gone, self._settings.stop_timeout_s)

    def reload(self, conf: ServiceConf) -> None:
        with ControlConnection(self._run, self._settings.connect_timeout_s) as connection:
            connection.ask({"command": "reload"})

    def _ask(
        self, command: str, conf: ServiceConf, wanted: tuple[State, ...], timeout_s: float
    ) -> None:
        """Say it, and follow what happens to the service until it is as wanted."""
        deadline = time.monotonic() + timeout_s
        state = None
        with ControlConnection(self._run, self._settings.connect_timeout_s) as connection:
            reply = connection.ask({"command": command, "service": conf.name, "follow": True})
            state = State(reply["service"]["state"])
            begun = command == "off" or state is State.STARTED
            while not begun or state not in wanted:
                try:
                    event = connection.next_line(max(0.0, deadline - time.monotonic()))
                except TimedOut as error:
                    raise TimedOut(seconds=timeout_s, what=(
                        f"service {conf.name}, which is {state.value} (omshowlog -s {conf.program} "
                        "tells why)")) from error
                if event is None:
                    raise TimedOut(seconds=timeout_s, what=f"{conf.name}: the supervisor ended")
                if event["name"] == conf.name:
                    begun, state = True, State(event["state"])


def control(location: Location) -> Control:
    """Whoever runs the instance. SpoolMissing, AccessDenied."""
    managed = systemctl.managed(location.paths)
    if managed is not None:
        return SystemdControl(managed)
    existing_spool(location.paths.root)
    return EmbeddedControl(location, client_settings(location.conf_dir))


def chosen(location: Location, words: Iterable[str]) -> list[ServiceConf]:
    """The services that are named (by name, number, title, or the initials of the title, as the
    original's `sr` for the Service Router); `all`: those it may stop and start.

    ServiceUnknown, BadRequest.
    """
    services = load_services(location.conf_dir)
    found: dict[str, ServiceConf] = {}
    for word in words:
        if word == ALL:
            found |= {each.name: each for each in services.values()
                      if each.enabled and not each.nonstop}
            continue
        fitting = named(services.values(), word)
        if not fitting:
            raise ServiceUnknown(service=word, known=", ".join((*services, ALL)))
        found[fitting[0].name] = fitting[0]
    return list(found.values())


def named(services: Iterable[ServiceConf], word: str) -> list[ServiceConf]:
    """Those that a word names. Initials only name a service that they fit alone."""
    listed, wanted = list(services), word.lower()
    fitting = [each for each in listed
               if wanted in (each.name, str(each.number), each.title.lower())]
    short = [each for each in listed if wanted == initials(each.title)]
    return fitting or (short if len(short) == 1 else [])


def initials(title: str) -> str:
    """`sr` of `Service Router`."""
    return "".join(each[0] for each in title.lower().split())


def starting(services: Iterable[ServiceConf]) -> list[ServiceConf]:
    """In the order of starting."""
    return sorted(services, key=lambda each: (START_ORDER.index(each.kind), each.number))


def stopping(services: Iterable[ServiceConf]) -> list[ServiceConf]:
    """In the order of stopping; a service that stops only with the instance is refused."""
    ordered = sorted(services, key=stop_stage)
    for conf in ordered:
        if is_core(conf) or conf.nonstop:
            reason = f"{conf.name} is NON-STOP; omshut stops the whole instance"
            raise BadRequest(reason=reason)
    return ordered


def check_queue(location: Location, conf: ServiceConf) -> None:
    """A service whose queue is not defined never comes up: that is an error before somebody waits
    for it. ServiceQueueMissing; unknown where neither index nor queues.conf can be read."""
    known = _queues(location)
    if conf.queue and known and conf.queue not in known:
        raise ServiceQueueMissing(service=conf.name, queue=conf.queue)


def _queues(location: Location) -> set[str]:
    """The queues that there are, those that were defined at run time too."""
    from omq.core.look.look import Origin, Source, look  # numpy: not for who only starts it

    with suppress(ManagerUnavailable, AccessDenied), look(location.paths, Source.SEGMENT) as seen:
        if seen.origin in (Origin.LIVING, Origin.HUNG):
            return {row.name for row in seen.view.queues()}
    with suppress(ConfigError):
        return {*load_queues(location.conf_dir), IDEL_NAME, POISON_NAME}
    return set()


def state_of(location: Location, conf: ServiceConf) -> Status:
    """How the service is now, in the words of omstat."""
    (found,) = [each for each in all_status(location) if each.conf.name == conf.name]
    return found


def is_up(status: Status) -> bool:
    return status.state in (Word.STARTED, Word.PARTIALLY_ABORTED)
