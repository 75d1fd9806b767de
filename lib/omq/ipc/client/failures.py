"""Why a message is on a dead-letter queue, as its reader learns it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from omq.base.clock import local_moment

if TYPE_CHECKING:
    from omq.ipc.client.connection_parts import Wire


@dataclass(frozen=True, slots=True)
class Failure:
    """How a message came to the dead-letter queue (or POISON) that it is on.

    `queue`: where it failed. `cause`: of its last failure: "failed" (its reader said so), "died"
    (its reader did), "lease" (it was over), "backed_out" (its unit of work was), "unseen" (the
    manager died handing it out); "" when nothing but the queue is known any more. `reason`: the
    text that its reader gave to `fail`, at most 215 bytes of it. `attempts`: how many failed; 0:
    not known. `first`, `last`: when the first and the last of them failed; None: not known."""

    queue: str
    cause: str
    reason: str
    attempts: int
    first: datetime | None
    last: datetime | None


def failure_of(wire: Wire, queue: str, qpool: int) -> Failure | None:
    """As the manager knows it; None: the message did not fail its way to this queue, or is not
    there any more."""
    told = wire.control({"op": "failure", "queue": queue, "qpool": qpool})["failure"]
    return None if told is None else failure_told(told)


def failure_told(told: dict[str, Any]) -> Failure:
    """What an answer says."""
    return Failure(str(told["queue"]), str(told["cause"]), str(told["reason"]),
                   int(told["attempts"]), local_moment(int(told["first_ns"])),
                   local_moment(int(told["last_ns"])))
