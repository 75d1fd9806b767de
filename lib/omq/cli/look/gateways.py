"""The mail gateways as omstat and omtop show them: their channels, and what of their peers is down
or held. `omq peers` has each peer.

Only files are read (services.delivery.scheduler_status, peer_states, holds); one that is missing or
may not be read counts as empty; where holds are not known, the line has it. While omq.conf is
wrong there is nothing here: what an operator needs then is the state of the daemons. Errors:
ConfigError (services.conf).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from omq.base import clock
from omq.base.amounts import duration
from omq.base.config import load_settings
from omq.base.errors import ConfigError
from omq.base.names import escape
from omq.base.services_conf import ServiceConf, load_services
from omq.services.daemon.options import Location
from omq.services.delivery.holds import Holds
from omq.services.delivery.peer_states import PeerStates
from omq.services.delivery.scheduler_status import read_published

GATEWAY: Final = "unix.out"
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Gateway:
    """One of them. `channels`: as published; `next_try_s`: of the peer that is tried first."""

    conf: ServiceConf
    processes_max: int
    channels: tuple[dict[str, Any], ...]
    down: tuple[str, ...]
    next_try_s: float | None
    held: tuple[str, ...]
    holds_unknown: str = ""
    """Why nobody knows whom an operator holds, else empty."""
    holds_denied: str = ""
    """Why this user cannot see whom, else empty."""

    def text(self) -> str:
        """In one line."""
        told = [f"{each['name']} {each['processes']} of {self.processes_max} processes, "
                f"{each['peers']} peers, {each['mlists']} Mlists"
                + (f", {each['put_off']} put off" if each["put_off"] else "")
                for each in self.channels]
        if self.down:
            told.append(f"down {_named(self.down)}, next try in {duration(self.next_try_s or 0.0)}")
        if self.held:
            told.append(f"held {_named(self.held)}")
        if self.holds_unknown:
            told.append(f"all held: whom an operator holds is not known ({self.holds_unknown})")
        if self.holds_denied:
            told.append(f"whom an operator holds cannot be seen ({self.holds_denied})")
        return f"{self.conf.title}: {'; '.join(told)}" if told else ""


def gateways(location: Location) -> Iterator[Gateway]:
    """All that are configured."""
    try:
        most = load_settings(location.conf_dir).qmgr_maxchans
    except ConfigError:
        return
    for conf in load_services(location.conf_dir).values():
        if conf.program == GATEWAY and conf.queue:
            down = {name: each.retry_ns for name, each in states_of(location, conf).down.items()}
            first_ns = min(down.values(), default=0) - clock.wall_ns()
            holds = Holds(location.paths.held(conf.name))
            held, unknown = holds.state
            now = read_published(location.paths.run / f"{conf.name}.peers.now.json")
            yield Gateway(
                conf, most, tuple(now["channels"]),
                tuple(sorted(down, key=down.__getitem__)),
                max(0, first_ns) / clock.NS_PER_S if down else None,
                tuple(sorted(held)), unknown, holds.denied)


def states_of(location: Location, conf: ServiceConf) -> PeerStates:
    """Which peers of a gateway could not be reached, as its processes know it."""
    settings = load_settings(location.conf_dir)
    return PeerStates(location.paths.run / f"{conf.name}.peers.json", settings.unix_retry_step_s,
                      settings.unix_retry_max_s, settings.unix_connect_timeout_s)


def gateway_lines(location: Location) -> list[str]:
    """A line for each that has something to tell."""
    return [line for line in map(Gateway.text, gateways(location)) if line]


def _named(names: tuple[str, ...]) -> str:
    shown = ", ".join(map(escape, names[:_NAMED]))
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"
