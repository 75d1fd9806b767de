"""What the configuration says of a queue, as the engine uses it (made by core.engine.queue_rules).

Invariant: messages on the queues that always exist (IDEL, POISON) have no time. One that came to
IDEL because its time is over would else leave for IDEL again, a frame each group, without an end.
"""

from __future__ import annotations

from dataclasses import dataclass

from omq.base.config import NONE
from omq.base.names import IDEL_NAME, POISON_NAME
from omq.core.engine.limit_rules import LimitRules

IDEL, POISON = 1, 2
SPECIAL_QUEUES = {IDEL: IDEL_NAME, POISON: POISON_NAME}
FIRST_QUEUE = 3


@dataclass(slots=True)
class QueueRules:
    """What the configuration says of one queue, in the units that the engine uses."""

    queue: int
    name: str
    max_depth: int
    max_length: int
    put_allowed: bool = True
    get_allowed: bool = True
    attempts_max: int = 3
    death_delay_ns: int = 30_000_000_000
    lease_ns: int = 0
    priority: int = 4  # of a message that does not say it; asked by clients
    persistent: bool = True  # the same
    expiry_ns: int = 0  # that a message put here may wait at most; 0 = for ever
    expired_to: int = 0  # where those go that did; 0 = nowhere
    expires: bool = True  # its messages do, when their time is over
    retry_delay_ns: int = -1  # after fail(); -1: as after a death
    backoff: str = NONE  # how the pauses grow: base.config.BACKOFFS
    retry_max_ns: int = 0  # to at most this
    jitter: int = 0  # per cent by which a pause may be shorter
    dead_letter: int = POISON  # where those go that have failed too often
    rights: str = ""  # that authority.conf is asked about: its own name, or its model's
    owner: int = 0  # token of the client whose temporary queue it is
    born: int = 0  # messages with lower QPoolIds knew another queue under this number
    drains: bool = False  # it goes when it is empty
    dedupe_ns: int = 0  # so long it remembers the ids of what was put here; 0 = not
    absorbs: bool = True  # a duplicate is acknowledged and not put; else refused
    dedupe_keys_max: int = 0  # ids that it remembers at once
    trigger: str = NONE  # when a trigger message is made: base.config.TRIGGERS
    trigger_depth: int = 1
    program: str = ""  # that it asks for
    limits: LimitRules | None = None  # of work; None: it has none

    def __post_init__(self) -> None:
        self.expires = self.expires and self.queue not in SPECIAL_QUEUES
