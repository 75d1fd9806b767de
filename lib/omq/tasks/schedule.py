"""A schedule: what is put where and when, and how far it has come. It lives in a message.

The message is on SYSTEM.SCHEDULES, waits there until the next planned time, and is replaced in one
step with what it puts (omq.tasks.schedule_step), so definition and progress are as durable as every
message, and there is no second place to agree with. Its body is JSON, its id GENERATION!NAME.

Invariant: of several generations of one name the highest counts; who finds a lower one may remove
it (omq.tasks.schedules). Errors: BadSchedule with the name and the reason.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from omq.base import limits
from omq.base.clock import NS_PER_S
from omq.base.errors import BadName, BadSchedule
from omq.base.names import check_queue_name, check_schedule_name, escape
from omq.ipc.wire.outgoing import Outgoing
from omq.tasks.schedule_times import Rule, moment, rule, shown

QUEUE: Final = "SYSTEM.SCHEDULES"
QUEUE_KEYS: Final[dict[str, Any]] = {"attempts_max": 255, "death_delay_s": 0}
FILE, RUN_TIME = "schedules.conf", "run time"
SKIP, ONCE, ALL, ALLOW = "skip", "once", "all", "allow"
ALL_MAX: Final = 1000
JITTER_S_MAX: Final = 86400
BODY_BYTES_MAX: Final = 65536
GENERATION_MAX: Final = 999_999
PLANNED: Final = "{planned}"
"""In a body: the planned time."""
ID, MILLISECONDS = "{omq.id}", "{omq.ms}"
"""In a body or a property: a UUID of the planned time alone; the planned time in ms since 1970. For
the messages of task queues (omq.tasks.celery_beat, dramatiq_periodic)."""
NAME_PROPERTY, PLANNED_PROPERTY = "omq.schedule", "omq.planned"
NEVER_NS: Final = 4_000_000_000 * NS_PER_S  # 2096: a schedule that is paused


@dataclass(frozen=True, slots=True)
class Schedule:
    """See the module. Up to `overlap` it is what was defined, the rest is how far it has come:
    times in ns, 0 for never. `missed`: planned times that nobody was there for; `skipped`: those at
    which the one before was unfinished."""

    name: str
    queue: str
    when: str
    zone: str = "UTC"
    body: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    priority: int | None = None
    expiry_s: float | None = None
    jitter_s: int = 0
    catch_up: str = ONCE  # or skip, or "all N"
    overlap: str = ALLOW  # or skip
    by: str = RUN_TIME
    generation: int = 1
    paused: bool = False
    since_ns: int = 0
    next_ns: int = 0
    last_ns: int = 0
    last_put_ns: int = 0
    last_id: str = ""
    puts: int = 0
    missed: int = 0
    skipped: int = 0
    missed_ns: int = 0

    def checked(self) -> Schedule:
        """Itself. BadSchedule; ExtraMissing."""
        try:
            check_schedule_name(self.name)
            check_queue_name(self.queue)
        except BadName as error:
            raise self.wrong(str(error)) from error
        if self.queue == QUEUE:
            raise self.wrong(f"queue: {QUEUE} is that of the schedules themselves")
        self.rule()
        self.catch_up_most()
        if self.overlap not in (ALLOW, SKIP):
            raise self.wrong(f"overlap: {escape(self.overlap)!r} is neither allow nor skip")
        if not 0 <= self.jitter_s <= JITTER_S_MAX:
            raise self.wrong("jitter: it is 0 to 86400 seconds")
        if len(self.body.encode()) > BODY_BYTES_MAX:
            raise self.wrong(f"body: it has at most {BODY_BYTES_MAX} bytes")
        if self.priority is not None and not 0 <= self.priority < limits.PRIORITIES:
            raise self.wrong(f"priority: it is 0 to {limits.PRIORITIES - 1}")
        if self.expiry_s is not None and not 0 < self.expiry_s <= 366 * 86400:
            raise self.wrong("expiry: it is more than 0 s, and up to 366 days")
        return self

    def wrong(self, reason: str) -> BadSchedule:
        """The error."""
        return BadSchedule(name=escape(self.name), reason=reason)

    def rule(self) -> Rule:
        """When it is due."""
        return rule(escape(self.name), self.when, self.zone, self.since_ns)

    def catch_up_most(self) -> int:
        """So many of the planned times that were missed are made up for."""
        if self.catch_up in (SKIP, ONCE):
            return int(self.catch_up == ONCE)
        word, _, number = self.catch_up.partition(" ")
        if word != ALL or not number.isdecimal() or not 1 <= int(number) <= ALL_MAX:
            raise self.wrong(f"catch_up: {escape(self.catch_up)!r} is neither skip, once nor "
                             f"'all N' with N up to {ALL_MAX}")
        return int(number)

    @property
    def definition(self) -> dict[str, Any]:
        """What was defined, without how far it has come."""
        return {key: value for key, value in asdict(self).items() if key in _DEFINED}

    @property
    def message_id(self) -> str:
        """Of the message that it lives in."""
        return id_of(self.name, self.generation)

    @property
    def due_ns(self) -> int:
        """When its message is handed out."""
        return NEVER_NS if self.paused else self.next_ns + self.jitter_ns(self.next_ns)

    def jitter_ns(self, planned_ns: int) -> int:
        """How much later than planned: the same for a planned time whenever it is asked for."""
        if not self.jitter_s:
            return 0
        number = int.from_bytes(_digest(self.name, planned_ns)[:8], "big")
        return number % (self.jitter_s * 1000) * (NS_PER_S // 1000)

    def message(self) -> Outgoing:
        """Its own."""
        body = json.dumps(asdict(self), separators=(",", ":"))
        return Outgoing(body.encode(), queues=(QUEUE,), message_id=self.message_id,
                        at=moment(self.due_ns), persistent=True)

    def planned(self, planned_ns: int) -> Outgoing:
        """What it puts for a planned time, under an id that is that of this time alone."""
        text = shown(planned_ns, self.zone)
        own = str(uuid.UUID(bytes=_digest(self.name, planned_ns)[:16], version=5))

        def filled(said: str) -> str:
            return said.replace(ID, own).replace(MILLISECONDS, str(planned_ns // 1_000_000))

        return Outgoing(
            filled(self.body.replace(PLANNED, text)).encode(), queues=(self.queue,),
            priority=self.priority, expiry_s=self.expiry_s,
            message_id=planned_id(self.name, planned_ns),
            properties={**{key: filled(value) for key, value in self.properties.items()},
                        NAME_PROPERTY: self.name, PLANNED_PROPERTY: text})


_DEFINED: Final = frozenset(
    each.name for each in fields(Schedule)[: [f.name for f in fields(Schedule)].index("by") + 1])
_KINDS: Final = {each.name: each.type for each in fields(Schedule)}


def id_of(name: str, generation: int) -> str:
    """The id of a schedule's message."""
    return f"{generation}!{name}"


def planned_id(name: str, planned_ns: int) -> str:
    """The id of what is put for a planned time: a queue with dedupe_s takes it once."""
    return "p" + _digest(name, planned_ns).hex()[:23]


def decode(body: bytes) -> Schedule:
    """What a message says. BadSchedule: it is none."""
    try:
        given = json.loads(body)
        found = Schedule(**given)
        for key, kind in _KINDS.items():
            _check(key, getattr(found, key), str(kind))
    except (ValueError, TypeError, RecursionError) as error:
        raise BadSchedule(name="?", reason=f"a message on {QUEUE} is none: {error}") from error
    return found.checked()


def check_types(name: str, given: Mapping[str, object]) -> None:
    """Whether these may be fields of a schedule. BadSchedule."""
    for key, value in given.items():
        try:
            _check(key, value, str(_KINDS[key]))
        except ValueError as error:
            raise BadSchedule(name=escape(name), reason=str(error)) from error


def _check(key: str, value: object, kind: str) -> None:
    good = {"str": isinstance(value, str), "bool": isinstance(value, bool),
            "int": isinstance(value, int), "int | None": value is None or isinstance(value, int),
            "float | None": value is None or isinstance(value, (int, float))}.get(
        kind, isinstance(value, dict) and all(
            isinstance(text, str) for pair in value.items() for text in pair))
    if not good:
        raise ValueError(f"{key} is no {kind}")


def _digest(name: str, planned_ns: int) -> bytes:
    return hashlib.sha256(f"{name} {planned_ns}".encode()).digest()
