"""The rules of the scheduler as settings, and what a priority may use of processes and of a peer.

Source: the second seed, "Queue Manager Scheduling Decisions".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

from omq.base.limits import PRIORITY_NORMAL, PRIORITY_URGENT

if TYPE_CHECKING:
    from omq.base.settings import Settings

_MS = 1000.0


@dataclass(frozen=True, slots=True)
class PeerLimit:
    """What one peer may have: processes at once, all of them for any mail (0: as others), and
    seconds from one message to the next (0: none)."""

    processes: int = 0
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Rules:
    """Times in seconds; conf/omq.conf, section [qmgr], explains each."""

    maxchans: int = 20
    reserve_urgent: int = 2
    reserve_normal: int = 2
    chan_time1_s: float = 1.0
    chan_time2_s: float = 0.05
    chan_time3_s: float = 0.5
    chan_idle_s: float = 60.0
    peer_concurrency: int = 5
    peer_reserve_urgent: int = 1
    affinity_s: float = 2.0
    run_s: float = 0.2
    run_messages: int = 10
    window: int = 2000

    @classmethod
    def of(cls, settings: Settings) -> Rules:
        """As omq.conf has them."""
        return cls().changed({key: getattr(settings, key) for key in KEYS})

    def changed(self, keys: Mapping[str, int]) -> Rules:
        """With these keys of omq.conf instead; each one of KEYS."""
        rules: dict[str, Any] = {KEYS[key]: value / _MS if key.endswith("_ms") else value
                                 for key, value in keys.items()}
        return replace(self, **rules)

    def processes(self, priority: int) -> int:
        """How many processes of all channels together may be busy when one more of this priority
        begins: the reserves are for what is more urgent. At least one."""
        allowed = self.maxchans
        if priority < PRIORITY_URGENT:
            allowed -= self.reserve_urgent
        if priority < PRIORITY_NORMAL:
            allowed -= self.reserve_normal
        return max(1, allowed)

    def at_peer(self, priority: int, own: PeerLimit | None = None) -> int:
        """The same for the processes at one peer, which may have a limit of its own."""
        if own is not None and own.processes:
            return own.processes
        reserve = self.peer_reserve_urgent if priority < PRIORITY_URGENT else 0
        return max(1, self.peer_concurrency - reserve)


KEYS: Final[dict[str, str]] = {
    f"qmgr_{each.name.removesuffix('_s')}{'_ms' * each.name.endswith('_s')}": each.name
    for each in fields(Rules)}
"""Key of omq.conf: rule. Times are milliseconds there."""
