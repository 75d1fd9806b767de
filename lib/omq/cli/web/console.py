"""What all requests to omq-web share: instance, policy, sessions, the pulse, plans, threads, log.

Invariants: 1. everything here but `run`'s work is for the event loop; 2. what strangers can cause
is logged at a bounded rate; 3. at most web_workers requests look or act at the same time, and one
reads journal and archive; of one user web_user_workers (user_turns.py).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Final, ParamSpec, TypeVar

from aiohttp import web

from omq.base import events
from omq.base.errors import OmqError
from omq.base.event_log import REPORT, WARNING, EventLog
from omq.base.rated_log import RatedLog
from omq.base.settings import Settings
from omq.cli.web.ages import Ages
from omq.cli.web.budget import Budget
from omq.cli.web.caller import Caller, Callers
from omq.cli.web.login_failures import LoginFailures
from omq.cli.web.metrics_text import MetricsText
from omq.cli.web.policy import Policy
from omq.cli.web.rendering import Pages
from omq.cli.web.sessions import Session, Sessions
from omq.cli.web.snapshots import Moment, Snapshots
from omq.cli.web.user_turns import USER, UserTurns
from omq.services.daemon.options import Location

T = TypeVar("T")
P = ParamSpec("P")


class Console:
    """See the module."""

    def __init__(self, location: Location, settings: Settings, policy: Policy, log: EventLog
                 ) -> None:
        self.location, self.settings, self.policy = location, settings, policy
        self.log = RatedLog(log, settings.event_burst, settings.event_period_s)
        self.sessions = Sessions(settings)
        self.budget = Budget(settings.web_memory_bytes_max, settings.web_user_memory_bytes_max)
        self.callers = Callers()
        self.login_failures = LoginFailures(settings.web_logins_max, settings.web_logins_period_s)
        self.metrics = MetricsText(location, settings)
        self.pages = Pages(location, settings.web_path)
        self.stopping = asyncio.Event()
        self._pool = ThreadPoolExecutor(settings.web_workers, thread_name_prefix="web")
        self._checks = ThreadPoolExecutor(settings.submission_workers,
                                          thread_name_prefix="password")
        self._history = asyncio.Lock()
        self.followed = Counter[str]()  # pages that follow, of each user
        self._turns = UserTurns(settings.web_user_workers, settings.web_user_waiting_max)
        self._readers = UserTurns(1, settings.web_user_waiting_max)
        self.ages = Ages(location, settings.web_ring_period_s)
        self.snapshots = Snapshots(location, settings, self._beat)
        self._loop = asyncio.get_running_loop()
        self._beats: set[asyncio.Queue[Moment]] = set()

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """This in a worker thread, when it is its user's turn. ConsoleBusy."""
        async with self._turns.turn(USER.get()):
            return await self._loop.run_in_executor(self._pool, lambda: work(*args, **kwargs))

    @asynccontextmanager
    async def history(self, request: web.Request) -> AsyncIterator[None]:
        """To read journal and archive for a request: one of all at a time, and of each user one
        waits for it; the rest of his wait after that. ConsoleBusy, HTTPRequestTimeout."""
        async with self._readers.turn(USER.get()), self._history:
            if request.transport is None or request.transport.is_closing():
                raise web.HTTPRequestTimeout(reason="the client is gone")
            yield

    async def check(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A password: these never take the threads of the others."""
        return await self._loop.run_in_executor(self._checks, lambda: work(*args, **kwargs))

    async def moment(self) -> Moment:
        """The instance, now."""
        return await self.run(self.snapshots.now)

    def close(self) -> None:
        """In another thread, at the end."""
        self.snapshots.stop()
        self._pool.shutdown()
        self._checks.shutdown(wait=False, cancel_futures=True)

    # those who follow

    def follow(self) -> asyncio.Queue[Moment]:
        """Each moment from now on; one that does not keep up misses some."""
        queue: asyncio.Queue[Moment] = asyncio.Queue(1)
        self._beats.add(queue)
        self.snapshots.followers = len(self._beats)
        self.snapshots.wake()
        return queue

    def unfollow(self, queue: asyncio.Queue[Moment]) -> None:
        self._beats.discard(queue)
        self.snapshots.followers = len(self._beats)

    def end_followers(self) -> None:
        """The server stops: followers learn it with their next update, which is sent now."""
        self.stopping.set()
        for queue in self._beats:
            if queue.empty():
                queue.put_nowait(Moment(0.0, None))

    def _beat(self, moment: Moment) -> None:
        """In the pulse's thread."""
        if self._beats:
            self._loop.call_soon_threadsafe(self._spread, moment)

    def _spread(self, moment: Moment) -> None:
        for queue in self._beats:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(moment)

    # what is logged

    def refused(self, peer: str, reason: str) -> None:
        """A request or connection of a stranger."""
        self.log.event(events.WEB_REFUSED, WARNING, peer, peer=peer, reason=reason[:200])

    def acted(self, caller: Caller, what: str, reason: str, count: int) -> None:
        """Somebody did something."""
        self.snapshots.spoil()
        self.log.event(events.WEB_ACTION, REPORT, caller.name, user=caller.name, peer=caller.peer,
                       token=caller.token, action=what[:400], reason=reason[:400], count=count)

    def failed(self, caller: Caller, what: str, reason: str, problem: str) -> None:
        """Somebody could not."""
        self.log.event(events.WEB_FAILED, WARNING, caller.name, user=caller.name, peer=caller.peer,
                       token=caller.token, action=what[:400], reason=reason[:400],
                       problem=problem[:400])

    async def carry_out(self, caller: Caller, what: str, reason: str,
                        work: Callable[[], object]) -> None:
        """Do one thing in a thread, and log what came of it. OmqError: why not."""
        try:
            await self.run(work)
        except OmqError as error:
            self.failed(caller, what, reason, str(error))
            raise
        self.acted(caller, what, reason, 1)


CONSOLE: Final = web.AppKey("console", Console)
CALLER: Final = web.RequestKey("caller", Caller)
SESSION: Final = web.RequestKey("session", Session)
PEER: Final = web.RequestKey("peer", str)
PROXIED: Final = web.RequestKey("proxied", bool)
NEW_KEY: Final = web.RequestKey("new_key", str)
"""What the gate knows of a request: who asks, his session (none: a token), the address as our proxy
says it, whether our proxy sent it, the key of a session that began with it."""


def console_of(request: web.Request) -> Console:
    """The console that a request is for."""
    return request.app[CONSOLE]


def caller_of(request: web.Request) -> Caller:
    """Who asks; after the gate there is always somebody."""
    return request[CALLER]


def peer_of(request: web.Request) -> str:
    """The address that a request comes from, as its proxy says it if that is ours."""
    return request[PEER]
