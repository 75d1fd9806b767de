"""How the services are, from the run files alone: what omstat shows.

The words are the original's: Started, Stopped, Disabled (not enabled; for auxiliaries: none
configured), partially aborted, aborted (seed: "How To Monitor Multiple Reader Processes"); Starting
and Stopping are added, as are "stopped by signal" (proc(5): T; SIGCONT lets it go on) and "hung" (a
queue manager that runs and does not move, by its heartbeat). No daemon is asked. A pid counts only
if its start time fits, so files that a crash or a reboot left are seen through. A daemon that runs
is never called dead because its files could not be written (cli.look.running_children).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from omq.base import clock
from omq.base.services_conf import START_ORDER, ServiceConf, ServiceKind, load_services
from omq.cli.look import running_children
from omq.services.daemon.options import Location
from omq.services.daemon.run_state import (
    LIVE,
    SUPERVISOR_FILE,
    ProcessState,
    ServiceState,
    State,
    read_service,
    read_supervisor,
)
from omq.services.supervise import systemctl
from omq.services.supervise.daemon_plan import is_core


class Word(StrEnum):
    """The state column."""

    STARTED = "Started"
    STARTING = "Starting"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    DISABLED = "Disabled"
    PARTIALLY_ABORTED = "partially aborted"
    ABORTED = "aborted"
    SUSPENDED = "stopped by signal"
    HUNG = "hung"


_RUNS = (Word.STARTED, Word.STARTING, Word.STOPPING, Word.PARTIALLY_ABORTED)
_WORDS = {
    State.STARTED: Word.STARTED,
    State.STARTING: Word.STARTING,
    State.STOPPING: Word.STOPPING,
    State.STOPPED: Word.STOPPED,
    State.WAITING: Word.ABORTED,
    State.FAILED: Word.ABORTED,
}


@dataclass(frozen=True, slots=True)
class Status:
    """One service. `since` is wall time in seconds, None = never ran here."""

    conf: ServiceConf
    state: Word  # of the service
    auxiliary_state: Word
    since: float | None
    pid: int
    auxiliaries: int  # configured
    auxiliaries_running: int
    restarts: int
    text: str
    reader_pids: frozenset[int] = frozenset()  # of those that run
    reader_deaths: int = 0  # readers that were started again, since the parent runs
    given_up: bool = False  # ended for a reason that no restart mends; `text` says which
    stopped_pids: tuple[int, ...] = ()  # of its processes: stopped by a signal, or a debugger
    turned_off: bool = False  # its supervisor lives, and nobody wants it to run


def all_status(location: Location, services: Iterable[ServiceConf] | None = None) -> list[Status]:
    """Every service (of services.conf) in starting order. ConfigError."""
    run = location.paths.run
    confs = sorted(
        load_services(location.conf_dir).values() if services is None else services,
        key=lambda each: (START_ORDER.index(each.kind), each.number),
    )
    children, supervised = _children(location, [conf.name for conf in confs])
    return [
        _status(
            conf, read_service(run / f"{conf.name}.json"), children.get(conf.name),
            supervised=supervised,
        )
        for conf in confs
    ]  # fmt: skip


def _children(
    location: Location, services: list[str]
) -> tuple[dict[str, ProcessState], bool]:
    """The daemons as their supervisor sees them, systemd or our own, and whether that one lives."""
    managed = systemctl.managed(location.paths)
    if managed is not None:
        found = systemctl.states([managed.unit(name) for name in services])
        pairs = zip(services, found, strict=True)
        return {name: unit.process(name) for name, unit in pairs if unit.loaded}, True
    supervisor = read_supervisor(location.paths.run / SUPERVISOR_FILE)
    if supervisor is None:
        return {}, False
    children = running_children.seen(supervisor.identity, supervisor.children)
    return {each.name: each for each in children}, supervisor.identity.alive()


def _status(
    conf: ServiceConf, own: ServiceState | None, child: ProcessState | None, *, supervised: bool
) -> Status:
    silent = _silent(own, child)
    if silent:
        own = None
    process = own.process if own else child
    state = _service_word(conf, own, child, supervised=supervised)
    if state in _RUNS and _suspended(process, own.main if own else None):
        state = Word.SUSPENDED
    auxiliaries = own.auxiliaries if own and own.process.identity.alive() else conf.auxiliaries
    aside = own.auxiliary if own else ()
    running = _running(aside)
    auxiliary_state = _auxiliary_word(state, auxiliaries, auxiliaries if silent else running)
    if auxiliaries and state in (*_RUNS, Word.SUSPENDED) and _suspended(*aside):
        auxiliary_state = Word.SUSPENDED
    readers = [each for each in (own.main, *aside) if each is not None] if own else []
    return Status(
        conf=conf,
        state=state,
        auxiliary_state=auxiliary_state,
        since=process.since or None if process else None,  # systemd: 0 has never run
        pid=process.pid if process and process.identity.alive() else 0,
        auxiliaries=auxiliaries,
        auxiliaries_running=running,
        restarts=child.restarts if child else 0,
        text=process.text if process else "",
        reader_pids=frozenset(each.pid for each in readers if _running((each,))),
        reader_deaths=sum(each.restarts for each in readers),
        given_up=child is not None and child.state is State.FAILED and own is None,
        stopped_pids=tuple(each.pid for each in (process, *readers)
                           if each is not None and _suspended(each)),
        turned_off=(supervised and child is not None and child.state is State.STOPPED
                    and not child.wanted),
    )


def _silent(own: ServiceState | None, child: ProcessState | None) -> bool:
    """It runs, and its own file is another's, or not there: nothing can be written. What its
    readers do is not known then."""
    runs = child is not None and child.state is State.STARTED and child.identity.alive()
    return runs and (own is None or not own.process.identity.alive())


def _service_word(
    conf: ServiceConf, own: ServiceState | None, child: ProcessState | None, *, supervised: bool
) -> Word:
    if supervised and child is not None and child.state not in LIVE:
        if child.state is State.STOPPED and child.wanted:
            return Word.STARTING  # those before it are not ready yet
        if child.state is State.STOPPED and not conf.enabled:
            return Word.DISABLED  # systemd knows its unit all the same
        return _WORDS[child.state]  # the supervisor knows it is down, whatever its last file says
    process = own.process if own else child
    if process is None or process.state is State.STOPPED:
        return Word.STOPPED if conf.enabled else Word.DISABLED
    if process.state in LIVE and not process.identity.alive():
        return Word.ABORTED
    if own is not None and process.state is State.STARTED:
        return _reader_word(own)
    return _WORDS[process.state]


def _suspended(*processes: ProcessState | None) -> bool:
    return any(each is not None and each.identity.alive()
               and clock.process_state(each.pid) in clock.STOPPED for each in processes)


def _reader_word(own: ServiceState) -> Word:
    """The parent lives: the main reader decides."""
    if own.main is not None and own.main.state in LIVE and own.main.identity.alive():
        return Word.STARTED
    return Word.PARTIALLY_ABORTED if _running(own.auxiliary) else Word.ABORTED


def _auxiliary_word(service: Word, auxiliaries: int, running: int) -> Word:
    if auxiliaries == 0:
        return Word.DISABLED
    if service in (Word.STARTING, Word.STOPPING, Word.STOPPED, Word.DISABLED):
        return Word.STOPPED if service is Word.DISABLED else service
    if running >= auxiliaries:
        return Word.STARTED
    return Word.PARTIALLY_ABORTED if running else Word.ABORTED


def _running(processes: Iterable[ProcessState]) -> int:
    """Those that run; one that a signal has stopped does not."""
    return sum(each.state is State.STARTED and each.identity.alive() and not _suspended(each)
               for each in processes)


def should_run(status: Status) -> bool:
    """A NON-STOP daemon always; another one if it is enabled and nobody turned it off."""
    if status.conf.nonstop or is_core(status.conf):
        return True
    return status.state not in (Word.STOPPED, Word.STOPPING, Word.DISABLED)


def is_service(status: Status) -> bool:
    """A service in the original's sense (option -s): it reads a queue and can have auxiliaries."""
    return status.conf.kind is ServiceKind.READER
