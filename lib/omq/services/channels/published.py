"""What the scheduler shows of itself: run/SERVICE.peers.now.json, at most once a second.

    {"time": wall seconds, "in_hand": messages,
     "channels": [{"name", "processes", "busy", "peers", "mlists", "held"}],
     "peers": [{"channel", "peer", "mlists", "active", "state", "mean_s"}]}

The peers with most to do come first, PEERS_SHOWN at most; those that are down and have nothing in
hand are in run/SERVICE.peers.json alone.
"""

from __future__ import annotations

import heapq
import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from omq.base import modes, side_files

if TYPE_CHECKING:
    from omq.services.channels.holds import Holds
    from omq.services.channels.peer_book import PeerBook
    from omq.services.channels.scheduler import Scheduler

PERIOD_S: Final = 1.0
PEERS_SHOWN: Final = 200
_CHANNEL: Final = {"name", "processes", "busy", "peers", "mlists", "held"}
_PEER: Final = {"channel", "peer", "mlists", "active", "state", "mean_s"}


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

    def publish(self, scheduler: Scheduler, book: PeerBook, holds: Holds, in_hand: int,
                now: float) -> None:
        """Called after each turn."""
        if now < self._due:
            self._stale = True
            return
        self._due, self._stale = now + PERIOD_S, False
        found = facts(scheduler, holds)
        found["in_hand"] = in_hand
        if found != self._last:
            self._last = found
            text = json.dumps({"time": time.time()} | found) + "\n"
            side_files.replace(self._path, text.encode("ascii"), modes.PUBLIC)

    def close(self) -> None:
        """The scheduler ends: nothing is shown of it any more."""
        side_files.remove(self._path)


def facts(scheduler: Scheduler, holds: Holds) -> dict[str, Any]:
    """Channels and peers, as they are now."""
    held = holds.names
    channels = []
    for channel in scheduler.channels.values():
        mine = [each for each in scheduler.processes.values() if each.channel == channel.name]
        peers = [each for each in channel.peers.values() if each.count or each.active]
        channels.append({
            "name": channel.name, "processes": len(mine), "busy": sum(each.busy for each in mine),
            "peers": len(peers), "mlists": sum(each.count + each.active for each in peers),
            "held": channel.name in held})
    rows = [(channel.name, peer) for channel in scheduler.channels.values()
            for peer in channel.peers.values() if peer.count or peer.active]
    shown = heapq.nlargest(PEERS_SHOWN, rows, key=lambda row: row[1].count + row[1].active)
    peers_shown = [{
        "channel": channel, "peer": peer.name, "mlists": peer.count + peer.active,
        "active": peer.active, "state": "probing" if peer.probing else "up",
        "mean_s": round(peer.mean_s, 3)} for channel, peer in shown]
    return {"channels": channels, "peers": peers_shown}


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
