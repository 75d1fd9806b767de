"""What somebody is about to do to messages: counted and shown first, done when he says why.

A plan has the messages that were looked at, each with the LSN of its last frame: what changed since
is refused by the queue manager, never done to something else (cli.operate.change_plan). Invariants:
1. a plan is its user's alone, and is done once; 2. it is forgotten after web_plan_s; 3. all plans
together have at most PLANS_MAX times web_plan_messages_max messages: the user's own oldest gives
way, or the oldest of all if he has none.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from omq.cli.operate.change_plan import Change, Target

PLANS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Plan:
    """One. `words`: which messages, as they were chosen."""

    user: str
    change: Change
    queue: str
    words: str
    items: tuple[Target, ...]
    made_s: float


class Plans:
    """See the module. For the event loop."""

    def __init__(self, keep_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._keep_s, self._clock = keep_s, clock
        self._plans: dict[str, Plan] = {}

    def add(self, user: str, change: Change, queue: str, words: str, items: Sequence[Target]
            ) -> str:
        """The name of a new plan, which nobody can guess."""
        now = self._clock()
        self._plans = {name: plan for name, plan in self._plans.items()
                       if now - plan.made_s <= self._keep_s}
        while len(self._plans) >= PLANS_MAX:
            mine = (name for name, plan in self._plans.items() if plan.user == user)
            del self._plans[next(mine, next(iter(self._plans)))]
        name = secrets.token_urlsafe(16)
        self._plans[name] = Plan(user, change, queue, words, tuple(items), now)
        return name

    def take(self, name: str, user: str) -> Plan | None:
        """The plan, which is no more; None: there is none of this user's."""
        plan = self._plans.get(name)
        if plan is None or plan.user != user or self._clock() - plan.made_s > self._keep_s:
            return None
        del self._plans[name]
        return plan
