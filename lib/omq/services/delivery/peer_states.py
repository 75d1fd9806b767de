"""Which peers cannot be reached, and when each is tried again: one knowledge of all processes.

run/SERVICE.peers.json holds the peers that are down, no others: failures in a row, since when, the
time of the next try, the reason. Each process looks at the file's time before it uses a peer, which
costs one system call, and changes it under a lock (run/SERVICE.peers.lock). It outlives restarts of
the service; after a reboot, which may empty run/, every peer is tried anew.

Rules (the second seed's, for peers): the n-th failure in a row puts a peer off for n times
`step_s`, at most `max_s`. When the time is over ONE process tries it, and until it has told what
came of it, `probe_s` at most, the others still leave it alone. The first success forgets it all.

Times are wall clock, ns. A clock that was set back cannot freeze a peer: a time farther off than
the longest pause is over.

Errors: none. A file or lock that cannot be had, or is not such a file, costs the sharing: what this
process knows by itself stays.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from omq.base import side_files
from omq.base.clock import NS_PER_S

PEERS_MAX: Final = 10_000
"""Down at once; beyond it the one that is tried next is forgotten."""
_REASON_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True)
class Down:
    """A peer that cannot be reached."""

    failures: int
    since_ns: int
    retry_ns: int
    reason: str


class PeerStates:
    """One process's view; `path` is the shared file."""

    def __init__(self, path: Path, step_s: float, max_s: float, probe_s: float) -> None:
        self._path = path
        self._lock = path.with_suffix(".lock")
        self._step_s, self._max_s, self._probe_s = step_s, max_s, probe_s
        self._down: dict[str, Down] = {}
        self._seen: tuple[int, int] | None = None  # inode and time of the file that was read

    @property
    def longest_s(self) -> float:
        """The longest time that a peer is left alone."""
        return max(self._max_s, self._probe_s)

    @property
    def down(self) -> dict[str, Down]:
        """The peers that are down, as far as is known now."""
        self._read()
        return dict(self._down)

    def waits(self, peer: str, now_ns: int) -> str:
        """Why this peer is to be left alone now; empty: try it, and tell what came of it."""
        self._read()
        if peer not in self._down:
            return ""
        with self._changing():
            state = self._down.get(peer)
            if state is None:
                return ""
            left_ns = state.retry_ns - now_ns
            if 0 < left_ns <= max(self._max_s, self._probe_s) * NS_PER_S:
                return state.reason
            probe_ns = now_ns + int(self._probe_s * NS_PER_S)
            self._down[peer] = replace(state, retry_ns=probe_ns)
            return ""

    def reached(self, peer: str) -> None:
        """It works."""
        self._read()
        if peer in self._down:
            with self._changing():
                self._down.pop(peer, None)

    def failed(self, peer: str, now_ns: int, reason: str) -> float:
        """It could not be reached; seconds until the next try."""
        with self._changing():
            before = self._down.get(peer)
            failures = before.failures + 1 if before else 1
            pause_s = min(self._max_s, self._step_s * failures)
            self._down[peer] = Down(failures, before.since_ns if before else now_ns,
                                    now_ns + int(pause_s * NS_PER_S), reason[:_REASON_CHARACTERS])
            while len(self._down) > PEERS_MAX:
                del self._down[min(self._down, key=lambda each: self._down[each].retry_ns)]
        return pause_s

    def forget(self, names: Iterable[str] | None = None) -> None:
        """These peers, or all, are to be tried now."""
        with self._changing():
            for name in list(self._down) if names is None else names:
                self._down.pop(name, None)

    def _read(self) -> None:
        found = side_files.seen(self._path)
        if found is None:
            if self._seen is not None:
                self._seen, self._down = None, {}
            return
        seen = found.st_ino, found.st_mtime_ns
        if seen != self._seen:
            self._seen = seen
            self._down = _decoded(self._path)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Read, change, write, with no other process in between."""
        try:
            lock = side_files.calls.open(str(self._lock), os.O_RDWR | os.O_CREAT)
        except OSError:
            yield
            return
        try:
            with suppress(OSError):  # a disk that has no locks: the last one to write wins
                fcntl.flock(lock, fcntl.LOCK_EX)
            self._read()
            before = dict(self._down)
            yield
            if self._down != before:
                self._write()
        finally:
            os.close(lock)

    def _write(self) -> None:
        rows = {peer: asdict(state) for peer, state in self._down.items()}
        if side_files.replace(self._path, (json.dumps(rows) + "\n").encode("ascii")):
            found = side_files.seen(self._path)
            self._seen = None if found is None else (found.st_ino, found.st_mtime_ns)


def _decoded(path: Path) -> dict[str, Down]:
    """What the file says; nothing where it is not such a file."""
    try:
        rows = json.loads(side_files.read(path) or b"{}")
        return {str(peer): Down(int(row["failures"]), int(row["since_ns"]), int(row["retry_ns"]),
                                str(row["reason"])) for peer, row in rows.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}
