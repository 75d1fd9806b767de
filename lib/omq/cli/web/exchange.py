"""What the REST interface puts, takes and asks by: native connections, desks, memory.

Names are asked for again after NAMES_S: until then a name is taken for what it stood for. What is
put goes to those queues, not to the name, so nobody puts to a queue for which he was not asked.
For the event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

from aiohttp import web

from omq.aio.jobs import Call
from omq.aio.lines import Job, Lines
from omq.aio.waiter import Waiter
from omq.base.errors import NoAuthority, NoMessage
from omq.base.settings import Settings
from omq.cli.web import actions
from omq.cli.web.budget import Budget
from omq.cli.web.caller import Caller
from omq.cli.web.deliveries import Deliveries
from omq.cli.web.putting import Puts
from omq.cli.web.replies import Replies
from omq.ipc.client.connection import Client
from omq.ipc.wire.outgoing import Outgoing
from omq.services.channel.names import RECORDS

T = TypeVar("T")
SAID_S: Final = 1.0
"""A page waits so long for what readers say of their work: the queue manager may be away."""
NAMES_S: Final = 1.0
_NAMES_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Name:
    """What a name stands for: `rights` are asked for on these, `goal` is put to."""

    rights: tuple[str, ...]
    goal: str | tuple[str, ...]
    until: float


class Exchange:
    """See the module."""

    def __init__(self, settings: Settings, connect: Callable[[], Client], budget: Budget) -> None:
        self.deliveries = Deliveries(settings, connect, budget)
        self.replies = Replies(self.deliveries)
        self._puts = Lines(connect, settings.web_workers, "web puts")
        self._asks = Lines(connect, 1, "web questions")
        self._names: dict[str, _Name] = {}

    async def allowed(self, caller: Caller, action: str, name: str) -> str | tuple[str, ...]:
        """What a name stands for, for one who may do this there. RoleMissing, NoAuthority,
        UnknownQueue."""
        found = self._names.get(name)
        if found is None or found.until <= time.monotonic():
            rights, goal = await self._ask(lambda native: actions.stands_for(native, name))
            if len(self._names) >= _NAMES_MAX:
                self._names.clear()
            found = self._names[name] = _Name(rights, goal, time.monotonic() + NAMES_S)
        if action == "put" and RECORDS in found.rights:  # the right to be a channel, no more
            raise NoAuthority(uid=caller.uid, action="put", queue=RECORDS)
        caller.need_on(action, *found.rights)
        return found.goal

    async def put(self, goal: str | tuple[str, ...], messages: Sequence[Outgoing]) -> list[str]:
        """All of them or none; their ids."""
        waiter = Waiter()
        found: list[str] = await self._wait(self._puts, Puts(goal, messages, waiter), waiter)
        return found

    async def said_of(self, qpool: int, queues: Sequence[str]
                      ) -> list[tuple[str, str, datetime | None]]:
        """(queue, what its reader said of the message there last, when), of these queues where it
        is. The errors of a queue manager that is away."""
        def ask(native: Client) -> list[tuple[str, str, datetime | None]]:
            found = []
            for queue in queues:
                with suppress(NoMessage):  # it has left it
                    found.append((queue, *native.said_of(qpool, queue)))
            return found

        return await self._ask(ask)

    async def _ask(self, work: Callable[[Client], T]) -> T:
        waiter = Waiter()
        found: T = await self._wait(self._asks, Call(work, waiter), waiter)
        return found

    async def _wait(self, lines: Lines, job: Job, waiter: Waiter) -> Any:
        lines.give(job)
        try:
            return await waiter.result()
        except asyncio.CancelledError:
            lines.withdraw(job)
            raise

    async def close(self) -> None:
        """What was given is carried out; what is in hand goes back."""
        await self.deliveries.close()
        await self.replies.close()
        for lines in (self._puts, self._asks):
            await asyncio.get_running_loop().run_in_executor(None, lines.close)


EXCHANGE: Final = web.AppKey("exchange", Exchange)
