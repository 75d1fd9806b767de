"""What our own tools and daemons ask of a connection besides its public calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from omq.base.clock import NS_PER_S
from omq.base.paths import SpoolPaths
from omq.format.wire import Operation
from omq.ipc.client.bodies import Bodies
from omq.ipc.client.connection_parts import Wire
from omq.ipc.client.ending_together import New, end_together
from omq.ipc.client.message import Message
from omq.ipc.client.parking_link import ParkingLink
from omq.ipc.client.reader import Reader
from omq.ipc.wire.outgoing import Encoded, Outgoing


class ToolCalls:
    """Calls of omq.ipc.client.connection.Client."""

    _wire: Wire
    _link: ParkingLink

    @property
    def paths(self) -> SpoolPaths:
        return self._wire.paths

    @property
    def bodies(self) -> Bodies:
        return self._wire.bodies

    @property
    def room(self) -> int:
        """Bytes of the data of one request."""
        return self._link.room

    @property
    def threshold(self) -> int:
        """Bytes of a body above which it goes into a container, which is persistent."""
        return self._link.threshold

    def abandon(self) -> None:
        """Leave a manager that is away, without waiting for it once more."""
        self._wire.close()

    def encode(self, message: Outgoing, queues: Sequence[str] = ()) -> Encoded:
        """See Wire.encode."""
        return self._wire.encode(message, queues)

    def queue_number(self, queue: str) -> int:
        """UnknownQueue."""
        return self._wire.queue_number(queue)

    def length_max(self, queue: str) -> int:
        """Bytes of the longest body that the queue takes; UnknownQueue."""
        return self._wire.facts(queue).length_max

    def resolved(self, queue: str) -> tuple[str, ...]:
        """The queues that hold what is put on this name; UnknownQueue."""
        facts = self._wire.facts(queue)
        return facts.queues or (queue,)

    def forget(self, after_s: float = 0.0) -> None:
        """Names may stand for other queues now: they are asked for again. `after_s`: not before
        that time has passed since the first of them was asked for."""
        self._wire.forget(after_s)

    def is_remote(self, queue: str) -> bool:
        """It stands for a queue of another queue manager; UnknownQueue."""
        return self._wire.facts(queue).remote is not None

    def end_together(self, reader: Reader | None, messages: Sequence[Message],
                     new: Sequence[New], name: str = "") -> str:
        """Finish what this reader holds and put what is new, all or nothing; see the module."""
        return end_together(self._wire, reader, messages, new, name)

    def recall(self, queue: str, qpools: Sequence[int]) -> list[int]:
        """A service has room again for these, which it had put off: they are ready. At most
        limits.RECALL_MAX a call. Those that were not put off any more (gone, due, held by an
        operator); a manager that is older does not say them."""
        answer = self._wire.control({"op": "recall", "queue": queue, "qpools": list(qpools)})
        return [int(each) for each in answer.get("passed", ())]

    def recall_due(self, queue: str, within_s: float, before: int) -> tuple[int, int]:
        """The same for what is due within this time and was put off before this LSN (0: until now).
        How many, RECALL_MAX at most, and the LSN for the next call."""
        answer = self._wire.control({"op": "recall", "queue": queue, "before": before,
                                     "within_ns": int(within_s * NS_PER_S)})
        return int(answer["recalled"]), int(answer["before"])

    def control(self, question: dict[str, Any]) -> dict[str, Any]:
        """One question over the control connection; the answer."""
        return self._wire.control(question)

    @property
    def registrations(self) -> int:
        """So many times it has registered. A request during which that has not changed was sent
        once: its answer is that of the only copy."""
        return self._link.registrations

    def relocate(self, rows: bytes) -> int:
        """pool.writer: bodies have moved (rows of format.wire.MOVED); how many were taken."""
        return self._link.request(Operation.RELOCATE, rows, length=len(rows)).count
