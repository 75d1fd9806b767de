"""What the scheduler shows of itself: run/SERVICE.peers.now.json, at most once a second.

    {"time": wall seconds, "in_hand": messages,
     "channels": [{"name", "processes", "busy", "peers", "mlists", "held", "put_off"}],
     "peers": [{"channel", "peer", "mlists", "active", "state", "mean_s",
                "put_off": {cause: {"messages", "reason", "next_ns": wall}}}]}

`mlists` are in the scheduler's hands, `put_off` is on the queue, deferred (aside.Aside; causes:
mlist.Cause). The peers with most to do come first, PEERS_SHOWN at most; those that are down and
have nothing to do are in run/SERVICE.peers.json alone.
"""

from __future__ import annotations

import heapq
import json
import math
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from omq.base import modes, side_files
from omq.services.delivery.mlist import Peer

if TYPE_CHECKING:
    from omq.services.delivery.deferred import Aside, Group, Where
    from omq.services.delivery.holds import Holds
    from omq.services.delivery.scheduler import Scheduler

PERIOD_S: Final = 1.0
PEERS_SHOWN: Final = 200
_CHANNEL: Final = {"name", "processes", "busy", "peers", "mlists", "held", "put_off"}
_PEER: Final = {"channel", "peer", "mlists", "active", "state", "mean_s", "put_off"}


class Publisher:
    """Writes the file when something is to tell and a second has passed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._due = 0.0
        self._last: Any = None
        self._stale = False

    def due_s(self, now: float) -> float:
        """Seconds until something is to be written; infinite: nothing is."""
        return max(0.0, self._due - now) if self._stale else math.inf

    def publish(self, scheduler: Scheduler, aside: Aside, holds: Holds, in_hand: int, now: float
                ) -> None:
        """Called after each turn."""
        if now < self._due:
            self._stale = True
            return
        self._due, self._stale = now + PERIOD_S, False
        found = facts(scheduler, aside, holds)
        found["in_hand"] = in_hand
        if found != self._last:
            self._last = found
            text = json.dumps({"time": time.time()} | found) + "\n"
            side_files.replace(self._path, text.encode("ascii"), modes.PUBLIC)

    def close(self) -> None:
        """The scheduler ends: nothing is shown of it any more."""
        side_files.remove(self._path)


def facts(scheduler: Scheduler, aside: Aside, holds: Holds) -> dict[str, Any]:
    """Channels and peers, as they are now."""
    held, unknown = holds.state
    put_off: dict[Where, list[Group]] = {}
    for group in aside.groups():
        put_off.setdefault(group.where, []).append(group)
    rows = {(channel.name, peer.name): peer for channel in scheduler.channels.values()
            for peer in channel.peers.values() if peer.count or peer.active}
    rows |= {where: Peer(where[1]) for where in put_off if where not in rows}
    names = {*scheduler.channels, *(channel for channel, _ in rows)}
    shown = heapq.nlargest(PEERS_SHOWN, rows, key=lambda where: rows[where].count
                           + rows[where].active + _messages(put_off.get(where, ())))
    return {
        "channels": [_channel(name, rows, put_off, scheduler) | {
            "held": bool(unknown) or name in held}
                     for name in sorted(names)],
        "peers": [_peer(where, rows[where], put_off.get(where, ())) for where in shown]}


def _messages(groups: Iterable[Group]) -> int:
    return sum(len(each.due) for each in groups)


def _channel(name: str, rows: Mapping[Where, Peer], put_off: Mapping[Where, list[Group]],
             scheduler: Scheduler) -> dict[str, Any]:
    mine = [each for each in scheduler.processes.values() if each.channel == name]
    peers = [peer for (channel, _), peer in rows.items() if channel == name]
    return {"name": name, "processes": len(mine), "busy": sum(each.busy for each in mine),
            "peers": len(peers), "mlists": sum(each.count + each.active for each in peers),
            "put_off": sum(_messages(groups) for (channel, _), groups in put_off.items()
                           if channel == name)}


def _peer(where: Where, peer: Peer, put_off: Iterable[Group]) -> dict[str, Any]:
    return {"channel": where[0], "peer": peer.name, "mlists": peer.count + peer.active,
            "active": peer.active, "state": "probing" if peer.probing else "up",
            "mean_s": round(peer.mean_s, 3),
            "put_off": {each.cause.value: {
                "messages": len(each.due), "reason": each.reason, "next_ns": each.next_ns}
                for each in put_off}}


def read_published(path: Path) -> dict[str, Any]:
    """What was published last; nothing where there is no such file, or it is none."""
    empty: dict[str, Any] = {"in_hand": 0, "channels": [], "peers": []}
    try:
        found = json.loads(path.read_bytes())
        whole = all(set(row) >= _CHANNEL for row in found["channels"]) and all(
            set(row) >= _PEER for row in found["peers"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return empty
    return empty | found if whole else empty
