"""Which daemons run, in which order they start and stop, and how each is called.

The orders are those of omq.base.services_conf: START_ORDER and STOP_ORDER. Readers start before
submitters, so what is accepted can be worked on at once; at a stop first nothing new comes in, then
what is in hand is finished, and pool.writer goes last because it still sees the last block of the
manager.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omq.base.services_conf import START_ORDER, STOP_ORDER, ServiceConf, ServiceKind
from omq.base.settings import Settings

_CORE = frozenset({ServiceKind.MANAGER, ServiceKind.POOL, ServiceKind.DELETER})

# A name, not an import: it is above us. -P: a file in the current directory must not shadow a
# module of ours.
LAUNCH: Final = [sys.executable, "-P", "-m", "omq.cli.launch"]
"""What every daemon's command begins with; its own name follows."""

Command = Callable[[ServiceConf], list[str]]


@dataclass(frozen=True, slots=True)
class Limits:
    """The time-outs of supervision, in seconds."""

    start_s: float
    stop_s: float
    watchdog_s: float  # 0 = none
    backoff_min_s: float
    backoff_max_s: float

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        return cls(
            start_s=settings.start_timeout_s,
            stop_s=settings.stop_timeout_s,
            watchdog_s=settings.watchdog_s,
            backoff_min_s=settings.restart_backoff_min_s,
            backoff_max_s=settings.restart_backoff_max_s,
        )


def is_core(conf: ServiceConf) -> bool:
    """The daemons without which no message moves; they run as long as the supervisor."""
    return conf.kind in _CORE


def start_order(services: Iterable[ServiceConf], *, nonstop_only: bool) -> list[ServiceConf]:
    """The enabled services in starting order."""
    wanted = [each for each in services if each.enabled or is_core(each)]
    if nonstop_only:
        wanted = [each for each in wanted if each.nonstop or is_core(each)]
    return sorted(wanted, key=lambda each: (START_ORDER.index(each.kind), each.number))


def stop_stage(conf: ServiceConf) -> int:
    """When this service stops; equal stages stop together."""
    return STOP_ORDER.index(conf.kind)


def command(options: list[str]) -> Command:
    """How to call a daemon: the module of its name with this very interpreter.

    Not the launcher in bin/: the same interpreter and package as the supervisor's are certain so.
    """

    def call(conf: ServiceConf) -> list[str]:
        return [*LAUNCH, conf.program, "--service", conf.name, *options]

    return call


def environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of every daemon: this package importable, output unbuffered."""
    found = dict(inherited)
    package = str(Path(__file__).resolve().parents[2])
    if package != sysconfig.get_path("purelib"):
        known = found.get("PYTHONPATH", "").split(":")
        found["PYTHONPATH"] = ":".join([package, *(each for each in known if each != package)])
    found["PYTHONUNBUFFERED"] = "1"
    found["PYTHONFAULTHANDLER"] = "1"  # a watchdog's SIGABRT then prints where it hangs
    return {name: value for name, value in found.items() if value}
