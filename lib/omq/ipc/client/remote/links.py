"""Links of a Line: one that puts on an address, one that takes from it. Their methods are for the
thread of the line (Line.until), but for `attach`.

Errors: UnknownQueue, RemoteRefused; MessageTooLong of a put.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from proton import Delivery, Described, Endpoint, Event, Link, Terminus, symbol, ulong

from omq.base.errors import MessageTooLong, OmqError, RemoteRefused, UnknownQueue
from omq.ipc.client.remote.line import Line

TRANSACTIONAL: Final = 0x34
_SELECTOR: Final = "apache.org:selector-filter:string"
_SELECTOR_CODE: Final = 0x0000468C00000004
_names: Final = iter(range(1, 1 << 62))


@dataclass(frozen=True, slots=True)
class DeliveryOutcome:
    """What became of a delivery that was sent: a state, and for what reason."""

    state: int
    condition: str = ""
    reason: str = ""
    data: Any = None


@dataclass(frozen=True, slots=True)
class Came:
    """A message that came."""

    tag: str
    data: bytes


class _Attached:
    """One link."""

    def __init__(self, line: Line, queue: str) -> None:
        self.line, self.queue = line, queue
        self.link: Any = None
        self.error: OmqError | None = None

    def attach(self) -> None:
        """From a caller; when it returns the server has agreed."""
        self.line.until(self._made, None)
        self.line.until(self._agreed, self.line.timeout_s)

    def _made(self) -> bool:
        self.link = self._new()
        self.line.links[self.link] = self
        self.link.open()
        return True

    def _new(self) -> Any:
        raise NotImplementedError

    def _agreed(self) -> bool | None:
        self.check()
        return bool(self.link.state & Endpoint.REMOTE_ACTIVE) or None

    def check(self) -> None:
        """The error that has ended it."""
        if self.error is not None:
            raise self.error

    def happened(self, event: Event) -> None:
        if event.type in (Event.LINK_REMOTE_CLOSE, Event.LINK_REMOTE_DETACH):
            condition = event.link.remote_condition
            self.error = error_of(self.queue, condition.name if condition else "",
                                  condition.description or "" if condition else "it was ended")
            self.close()
        elif event.type == Event.DELIVERY:
            self._delivered(event.delivery)

    def _delivered(self, delivery: Any) -> None:
        raise NotImplementedError

    def close(self) -> bool:
        if self.line.links.pop(self.link, None) is not None:
            self.link.close()
        return True


class Giving(_Attached):
    """Puts. With `queue` None it is a coordinator of transactions."""

    def __init__(self, line: Line, queue: str | None) -> None:
        super().__init__(line, queue or "a transaction")
        self._coordinates = queue is None
        self._told: dict[str, DeliveryOutcome] = {}
        self._sent: dict[str, Any] = {}

    def _new(self) -> Any:
        made = self.line.session.sender(f"put {next(_names)}")
        if self._coordinates:
            made.target.type = Terminus.COORDINATOR
            made.target.capabilities.put_object(symbol("amqp:local-transactions"))
        else:
            made.target.address = self.queue
        return made

    @property
    def most(self) -> int:
        """Bytes of the longest message; 0: any."""
        return int(self.link.remote_max_message_size)

    def send(self, data: bytes, transaction: bytes = b"") -> str | None:
        """The tag; None: there is no credit now."""
        self.check()
        if self.most and len(data) > self.most:
            raise MessageTooLong(size=len(data), queue=self.queue, limit=self.most)
        if self.link.credit <= 0:
            return None
        tag = str(next(_names))
        delivery = self._sent[tag] = self.link.delivery(tag)
        if transaction:
            delivery.local.data = [transaction]
            delivery.update(TRANSACTIONAL)
        self.link.stream(data)
        self.link.advance()
        return tag

    def _delivered(self, delivery: Any) -> None:
        if not delivery.updated or delivery.tag not in self._sent:
            return
        condition, state = delivery.remote.condition, delivery.remote_state
        if not state and not delivery.settled:
            return
        self._told[delivery.tag] = DeliveryOutcome(
            int(state), condition.name if condition else "",
            condition.description or "" if condition else "",
            delivery.remote.data if int(state) in (0x33, TRANSACTIONAL) else None)
        del self._sent[delivery.tag]
        delivery.settle()

    def told(self, tag: str) -> DeliveryOutcome | None:
        """What became of it; None: nobody has said yet."""
        found = self._told.pop(tag, None)
        if found is None:
            self.check()
        return found


@dataclass(slots=True)
class _Held:
    delivery: Any
    state: int = 0  # that we have said, and want confirmed


class Taking(_Attached):
    """Takes, or looks (`copies`). A dynamic one has a queue of its own."""

    def __init__(self, line: Line, queue: str, *, where: str = "", copies: bool = False) -> None:
        super().__init__(line, queue or "a temporary queue")
        self._dynamic, self._where, self._copies = not queue, where, copies
        self.found: deque[Came] = deque()
        self._held: dict[str, _Held] = {}
        self.drained = False

    def _new(self) -> Any:
        made = self.line.session.receiver(f"take {next(_names)}")
        made.rcv_settle_mode = Link.RCV_FIRST
        if self._dynamic:
            made.source.dynamic = True
        else:
            made.source.address = self.queue
        if self._copies:
            made.source.distribution_mode = Terminus.DIST_MODE_COPY
        if self._where:
            made.source.filter.put_object({symbol(_SELECTOR): Described(
                ulong(_SELECTOR_CODE), self._where)})
        return made

    def _agreed(self) -> bool | None:
        agreed = super()._agreed()
        if agreed and self._dynamic:
            self.queue = str(self.link.remote_source.address)
        return agreed

    def want(self, count: int) -> bool:
        """So many may be under way or wait here."""
        self.check()
        more = count - self.link.credit - len(self.found)
        if more > 0:
            self.link.flow(more)
        return True

    def drain(self, count: int) -> bool:
        """Those that are there now, up to `count`; `is_drained` says when that is all."""
        self.check()
        more = max(0, count - self.link.credit - len(self.found))
        if more or self.link.credit:  # a server may not answer who has none
            self.link.drain(more)
        return True

    def alive(self) -> Taking:
        """Itself, unless something has ended it."""
        self.check()
        return self

    @property
    def is_drained(self) -> bool:
        """There is no credit left."""
        if self.link.credit > 0 or self.link.draining():
            return False
        self.link.drain_mode = False
        return True

    def _delivered(self, delivery: Any) -> None:
        tag = delivery.tag
        if delivery.readable and not delivery.partial:
            data = self.link.recv(max(1, delivery.pending))
            self.link.advance()
            self.found.append(Came(tag, bytes(data or b"")))
            if delivery.settled:
                delivery.settle()
            else:
                self._held[tag] = _Held(delivery)
        elif delivery.settled and (held := self._held.pop(tag, None)) is not None:
            held.delivery.settle()

    def settle(self, tag: str, state: int, say: Callable[[Any], None] = lambda _: None,
               transaction: bytes = b"") -> bool:
        """Say what happens to it; `is_settled` tells when the server has that on its disk."""
        self.check()
        held = self._held[tag]
        say(held.delivery.local)
        held.state = state
        if transaction:
            held.delivery.local.data = [transaction, Described(ulong(state), [])]
            held.delivery.update(TRANSACTIONAL)
            held.delivery.settle()  # rolled back, it has failed: as a unit's
            del self._held[tag]
        else:
            held.delivery.update(state)
        return True

    def is_settled(self, tag: str) -> bool:
        if tag in self._held:
            self.check()
        return tag not in self._held

    def close(self) -> bool:
        self._held.clear()
        return super().close()


def error_of(queue: str, condition: str, reason: str) -> OmqError:
    """What AMQP calls it, as an error of omq."""
    if condition == "amqp:not-found":
        return UnknownQueue(queue=queue)
    return RemoteRefused(queue=queue, condition=condition, reason=reason)


def refuse(queue: str, told: DeliveryOutcome) -> NoReturn:
    raise error_of(queue, told.condition, told.reason)


ACCEPTED: Final = int(Delivery.ACCEPTED)
REJECTED: Final = int(Delivery.REJECTED)
RELEASED: Final = int(Delivery.RELEASED)
MODIFIED: Final = int(Delivery.MODIFIED)
