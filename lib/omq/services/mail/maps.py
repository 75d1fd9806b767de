"""Look-ups of addresses in the maps of routes.conf: bounded in time, in number and in memory.

A map may be slow, hang, or come from a hostile hand, so nothing waits for one itself: threads of
their own ask the sources (omq.services.mail.map_sources), at most `at_once` for a section of
routes.conf; who wants an answer waits `timeout_s` for it, its turn included. The threads hold up no
end of the process.

Rules:
1. The sources are asked in the order of the file; the first that has something counts. One that
   fails ends the look-up: a later one might name somebody else. The mail waits (a 4xx reply).
2. Answers are remembered for `ttl_s`, at most KNOWN_MAX of them; also that nothing stands for a
   key. A failure is remembered for FAILED_S: who tries again at once asks nobody.

`ask` waits, for readers; `known` does not, for smtp.server, whose one thread has other sessions to
serve: it raises MapMissing, `fetch` is awaited, and the question is put again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from omq.base.amounts import duration
from omq.services.mail.map_errors import MapFailed, MapMissing

KNOWN_MAX: Final = 10_000
FAILED_S: Final = 5.0
Values = tuple[str, ...] | None
_Asked = tuple[str, float, Future[Values]]


class Source(Protocol):
    """One line of [recipient_maps] or [sender_maps]; `look_up` is called by several threads."""

    name: str

    def look_up(self, key: str, timeout_s: float) -> tuple[str, ...] | None:
        """What stands for the key. MapFailed."""


@dataclass(frozen=True, slots=True)
class _Known:
    until: float
    values: Values
    failed: MapFailed | None = None


class Maps:
    """The maps of one section of routes.conf."""

    def __init__(self, sources: Sequence[Source] = (), timeout_s: float = 10.0,
                 ttl_s: float = 60.0, at_once: int = 20) -> None:
        self._sources, self._timeout_s, self._ttl_s = tuple(sources), timeout_s, ttl_s
        self._at_once = at_once
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._lock = threading.Lock()
        self._change = threading.Condition(self._lock)
        self._waiting: deque[_Asked] = deque()
        self._threads = self._idle = 0
        self._closed = False

    def __bool__(self) -> bool:
        return bool(self._sources)

    @property
    def names(self) -> str:
        """Of all sources, for people."""
        return ", ".join(each.name for each in self._sources)

    def known(self, key: str) -> Values:
        """What stands for the key, of what is remembered. MapMissing, MapFailed."""
        if not self._sources:
            return None
        with self._lock:
            found = self._known.get(key)
        if found is None or time.monotonic() > found.until:
            raise MapMissing(self, key)
        if found.failed is not None:
            raise MapFailed(found.failed.source, found.failed.reason)
        return found.values

    def ask(self, key: str) -> Values:
        """What stands for the key. MapFailed."""
        try:
            return self.known(key)
        except MapMissing:
            pass
        future = self._begin(key)
        try:
            return self._kept(key, future.result(self._timeout_s))
        except TimeoutError:
            raise self._late(key, future) from None
        except MapFailed as error:
            raise self._failed(key, error) from error

    async def answer(self, key: str) -> Values:
        """What stands for the key, while others go on. MapFailed."""
        try:
            return self.known(key)
        except MapMissing:
            pass
        future = self._begin(key)
        try:
            return self._kept(key, await asyncio.wait_for(asyncio.wrap_future(future),
                                                          self._timeout_s))
        except TimeoutError:
            raise self._late(key, future) from None
        except MapFailed as error:
            raise self._failed(key, error) from error

    async def fetch(self, key: str) -> None:
        """Have the answer remembered, or that there is none."""
        with suppress(MapFailed):
            await self.answer(key)

    def close(self) -> None:
        """The threads end when they have answered what was asked. Who still has these maps, as one
        that a reload overtakes, may ask on: a thread begins for it and ends with the answer."""
        with self._change:
            self._closed = True
            self._change.notify_all()

    def _begin(self, key: str) -> Future[Values]:
        """Have it asked. MapFailed."""
        future: Future[Values] = Future()
        with self._change:
            self._waiting.append((key, time.monotonic() + self._timeout_s, future))
            if self._idle >= len(self._waiting) or self._threads >= self._at_once:
                self._change.notify()
                return future
            try:
                threading.Thread(target=self._work, name="map", daemon=True).start()
            except RuntimeError as error:  # too many of this user, or no memory
                if not self._threads:
                    self._waiting.pop()
                    raise MapFailed(self.names, str(error)) from error
            else:
                self._threads += 1
        return future

    def _next(self) -> _Asked | None:
        """What a thread asks next; None: it has ended."""
        with self._change:
            self._idle += 1
            while not self._waiting and not self._closed:
                self._change.wait()
            self._idle -= 1
            if self._waiting:
                return self._waiting.popleft()
            self._threads -= 1
            return None

    def _work(self) -> None:
        while (asked := self._next()) is not None:
            key, ends, future = asked
            if future.set_running_or_notify_cancel():  # else nobody waits any more
                try:
                    future.set_result(self._looked_up(key, ends))
                except MapFailed as error:
                    future.set_exception(error)
                except Exception as error:  # of a library: the mail waits all the same
                    reason = f"{type(error).__name__}: {error}"
                    future.set_exception(MapFailed("an error of this program", reason))

    def _looked_up(self, key: str, ends: float) -> Values:
        for source in self._sources:
            left = ends - time.monotonic()
            if left <= 0:
                raise MapFailed(source.name, f"no answer in {duration(self._timeout_s)}")
            found = source.look_up(key, left)
            if found is not None:
                return found
        return None

    def _kept(self, key: str, values: Values) -> Values:
        self._remember(key, _Known(time.monotonic() + self._ttl_s, values))
        return values

    def _late(self, key: str, future: Future[Values]) -> MapFailed:
        future.cancel()
        return self._failed(key, MapFailed(self.names, f"no answer in {duration(self._timeout_s)}"))

    def _failed(self, key: str, error: MapFailed) -> MapFailed:
        bare = MapFailed(error.source, error.reason)  # without a traceback, which holds sockets
        self._remember(key, _Known(time.monotonic() + FAILED_S, None, bare))
        return error

    def _remember(self, key: str, known: _Known) -> None:
        with self._lock:
            self._known[key] = known
            self._known.move_to_end(key)
            while len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)
