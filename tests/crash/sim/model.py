"""What the spool must hold: a model of queues that knows nothing of the engine, and the judgement
of a recovered state against it.

A crash falls between two acknowledgements. What was acknowledged must be there exactly; what was
asked for and not yet answered (`flight`) may be there or not, each request whole (I1, I2, I4); no
other message may be there (no invention, no resurrection), bodies must be the bytes that were put
(I3), and every queue in its order (I5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from omq.core.engine.state import IDEL, POISON

READY, ACTIVE, DEFERRED, HELD, PREPARED = 1, 2, 3, 4, 6
Effect = dict[int, "Known | None"]
"""QPoolId -> the message after a request; None: it is gone."""


@dataclass(frozen=True, slots=True)
class Place:
    """A message on one queue. `order`: of two READY places the lower one goes first."""

    queue: int
    priority: int
    state: int = READY
    attempts: int = 0
    retries: int = 0
    until: int = 0  # unix seconds, DEFERRED only
    order: int = 0


@dataclass(frozen=True, slots=True)
class Known:
    """A message."""

    payload: bytes
    places: tuple[Place, ...]
    persistent: bool = True
    item: str = ""  # reference of its container
    content: bytes = b""
    expiry: int = 0  # wall clock ns
    group: int = 0  # the hash of its group id
    memory: str = ""  # not a message: the id that a queue has had
    members: tuple[int, ...] | None = None  # of a barrier that waits; what is found knows none

    def on(self, queue: int) -> Place | None:
        return next((place for place in self.places if place.queue == queue), None)

    def off(self, queue: int) -> tuple[Place, ...]:
        return tuple(place for place in self.places if place.queue != queue)

    def put_on(self, place: Place) -> Known:
        """The same, this place instead of the one on that queue."""
        return replace(self, places=tuple(place if p.queue == place.queue else p
                                          for p in self.places))

    # what each operation makes of it

    def given(self, queue: int) -> Known:
        place = self._place(queue)
        if queue == IDEL:
            return self
        return self.put_on(replace(place, state=ACTIVE, attempts=place.attempts + 1, until=0))

    def done(self, queue: int, order: int) -> Known | None:
        """Gone when it was the last place, but a container's waits on IDEL."""
        rest = self.off(queue)
        if rest or queue == IDEL or not self.item:
            return replace(self, places=rest) if rest else None
        return replace(self, places=(Place(IDEL, 0, order=order),))

    def deferred(self, queue: int, until: int, *, failed: bool) -> Known:
        place = self._place(queue)
        if failed:
            return self.put_on(replace(place, state=DEFERRED, until=until))
        return self.put_on(replace(place, state=DEFERRED, until=until, retries=place.retries + 1,
                                   attempts=place.attempts - 1))

    def released(self, queue: int) -> Known:
        place = self._place(queue)
        return self.put_on(replace(place, state=READY, attempts=place.attempts - 1))

    def prepared(self, queue: int) -> Known:
        """It ends with its unit of work."""
        return self.put_on(replace(self._place(queue), state=PREPARED))

    def backed_out(self, queue: int, limit: int, order: int) -> Known:
        """At its old place, the attempt counted; POISON at the limit."""
        place = self._place(queue)
        if place.attempts >= limit:
            return self.failed(queue, 0, limit, order)
        return self.put_on(replace(place, state=READY))

    def failed(self, queue: int, until: int, limit: int, order: int) -> Known:
        """Later again, or POISON."""
        place = self._place(queue)
        if queue == POISON or place.attempts < limit:
            return self.deferred(queue, until, failed=True)
        rest = self.off(queue)
        if self.on(POISON) is not None:
            return replace(self, places=rest)
        return replace(self, places=(*rest, Place(POISON, place.priority, READY, place.attempts,
                                                  order=order)))

    def moved(self, queue: int, targets: Iterable[tuple[int, int]], order: int) -> Known:
        rest = self.off(queue)
        present = {place.queue for place in rest}
        return replace(self, places=(*rest, *(Place(q, priority, order=order)
                                              for q, priority in targets if q not in present)))

    def expired(self, queue: int, target: int, keeping: int, order: int) -> Known | None:
        """Off a queue where it is late, to the one for such messages, if there is one. `keeping`:
        where times do not count; who is there alone has none."""
        rest, place = self.off(queue), self._place(queue)
        if target and self.on(target) is None:
            rest = (*rest, Place(target, place.priority, order=order))
        if not rest:
            return None
        alone = all(place.queue == keeping for place in rest)
        return replace(self, places=rest, expiry=0 if alone else self.expiry)

    # by an operator

    def taken_back(self, queue: int) -> Known:
        """As an order finds it that may take it from its reader."""
        return self.released(queue) if self._place(queue).state == ACTIVE else self

    def held(self, queue: int) -> Known:
        return self.put_on(replace(self._place(queue), state=HELD, until=0))

    def freed(self, queue: int) -> Known:
        return replace(self.put_on(replace(self._place(queue), state=READY, until=0)), members=None)

    def deleted(self, queue: int, until: int, order: int) -> Known | None:
        """Gone; of its last queue with a time to bring it back, or a container: on IDEL."""
        rest = self.off(queue)
        if rest:
            return replace(self, places=rest)
        if until:
            priority = self._place(queue).priority
            return replace(self, places=(Place(IDEL, priority, DEFERRED, until=until,
                                               order=order),))
        return replace(self, places=(Place(IDEL, 0, order=order),)) if self.item else None

    def due(self, now_s: int) -> Known:
        """What a restart makes of its delays: it counts them by the wall clock, each anew. READY
        with an `until` came by the monotonic clock, which only that manager knew, or by a wall
        clock that may be set back."""
        if not any(p.until for p in self.places) or self.members is not None:
            return self
        return replace(self, places=tuple(
            p if not p.until else
            replace(p, state=READY if p.until <= now_s else DEFERRED)
            for p in self.places))

    def given_up(self, order: int) -> Known:
        """A barrier that will never be ready: on POISON."""
        place, = self.places
        return replace(self, places=(Place(POISON, place.priority, order=order),), members=None)

    def _place(self, queue: int) -> Place:
        place = self.on(queue)
        assert place is not None
        return place


def same(found: Known | None, wanted: Known | None) -> bool:
    """Is the message that was found the one that is wanted? Orders are compared elsewhere."""
    if found is None or wanted is None:
        return found is wanted
    if found.payload != wanted.payload or len(found.places) != len(wanted.places):
        return False
    if (found.expiry, found.group, found.memory) != (wanted.expiry, wanted.group, wanted.memory):
        return False
    if (found.members is None) is not (wanted.members is None):
        return False
    if wanted.item and wanted.on(IDEL) is None and found.content != wanted.content:
        return False
    for place in wanted.places:
        other = found.on(place.queue)
        until = place.until if place.state == DEFERRED else 0
        if other is None or replace(other, order=place.order) != replace(place, until=until):
            return False
    return True


@dataclass(slots=True)
class Judgement:
    """`wrong`: what breaks the promise; `now`: the state from which life goes on."""

    wrong: list[str]
    now: dict[int, Known]


def judge(found: Mapping[int, Known], acked: Mapping[int, Known], flight: list[Effect],
          now_s: int, given_ids: int) -> Judgement:
    """See the module. `given_ids`: every QPoolId below was given to a message at some time."""
    chains: dict[int, list[tuple[int, Known | None]]] = {}
    for number, effect in enumerate(flight):
        for qpool, after in effect.items():
            chains.setdefault(qpool, []).append((number, after))
    wrong: list[str] = []
    now: dict[int, Known] = {}
    applied: dict[int, tuple[int, ...]] = {}
    for qpool in {*found, *acked, *chains}:
        before = acked.get(qpool)
        options = [(-1, _kept(before, now_s)),
                   *((n, _kept(after, now_s)) for n, after in chains.get(qpool, ()))]
        fits = [i for i, (_, option) in enumerate(options) if same(found.get(qpool), option)]
        if not fits:
            wrong.append(_say(qpool, found.get(qpool), [o for _, o in options], given_ids))
            continue
        chosen = options[fits[-1]][1]
        if chosen is not None:
            now[qpool] = _idle(chosen, found[qpool])
        if len(fits) == 1:
            applied[qpool] = tuple(n for n, _ in options[1 : fits[0] + 1])
    wrong += _halved(flight, applied, chains)
    wrong += _disorder(found, now)
    return Judgement(wrong, now)


def _idle(message: Known, found: Known) -> Known:
    """On IDEL no order is promised over a restart: it is as it is found."""
    mine, other = message.on(IDEL), found.on(IDEL)
    return message.put_on(replace(mine, order=other.order)) if mine and other else message


def _kept(message: Known | None, now_s: int) -> Known | None:
    """What a restart makes of a message."""
    if message is None or not message.persistent:
        return None
    return message.due(now_s)


def _halved(flight: list[Effect], applied: Mapping[int, tuple[int, ...]],
            chains: Mapping[int, list[tuple[int, Known | None]]]) -> list[str]:
    out = []
    for number, effect in enumerate(flight):
        known = {qpool: number in applied[qpool] for qpool in effect if qpool in applied}
        if len(set(known.values())) > 1:
            out.append(f"halved: of one request only {sorted(q for q, yes in known.items() if yes)}"
                       f" of {sorted(known)} is there")
    return out


def _disorder(found: Mapping[int, Known], now: Mapping[int, Known]) -> list[str]:
    lines: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for qpool, message in now.items():
        for place in message.places:
            other = found[qpool].on(place.queue)
            assert other is not None
            lines.setdefault((place.queue, place.priority), []).append(
                (place.order, other.order, qpool))
    return [f"disorder on queue {queue}: {[q for _, _, q in sorted(line, key=lambda x: x[1])]}"
            for (queue, _), line in lines.items()
            if [x[1] for x in sorted(line)] != sorted(x[1] for x in line)]


def _say(qpool: int, found: Known | None, options: list[Known | None], given_ids: int) -> str:
    if found is None:
        return f"lost: message {qpool}, wanted {_short(options)}"
    if options == [None] and qpool >= given_ids:
        return f"invented: message {qpool}"
    if all(option is None for option in options):
        return f"resurrected: message {qpool} on {found.places}"
    if any(o is not None and found.payload != o.payload for o in options):
        return f"damaged: the body of message {qpool}"
    return f"changed: message {qpool} is {found.places}, wanted {_short(options)}"


def _short(options: list[Known | None]) -> str:
    return " or ".join("gone" if o is None else str(o.places) for o in options)
