"""queues.conf and services.conf; with omq.conf and authority.conf, all that an instance is told.

A file that the conf directory lacks is read from the shipped one. Nothing is half loaded: a mistake
anywhere raises ConfigError (file, line, key, reason, what is allowed) and the old state stays.

In queues.conf the section [*] holds what all queues have that do not say otherwise. A queue without
a section does not exist and is refused; IDEL and POISON always exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from omq.base import limits
from omq.base.authority import Authority, load_authority
from omq.base.config_file import Entry, Section, read_sections
from omq.base.errors import BadName, OmqError
from omq.base.names import (
    QUEUE_RULE,
    SERVICE_RULE,
    SPECIAL_NAMES,
    check_queue_name,
    check_service_name,
    escape,
    parse_priority,
)
from omq.base.settings import Settings
from omq.base.settings_file import client_settings, conf_path, load_settings

__all__ = [
    "Authority", "QueueConf", "ServiceConf", "ServiceKind", "Settings", "client_settings",
    "load_authority", "load_queues", "load_services", "load_settings",
]

QUEUES_FILE: Final = "queues.conf"
SERVICES_FILE: Final = "services.conf"
DEFAULTS_SECTION: Final = "*"
DEPTH_MAX: Final = 50_000_000
DELAY_S_MAX: Final = 7 * 86400
EXPIRY_S_MAX: Final = 10 * 366 * 86400
DESCRIPTION_CHARACTERS_MAX: Final = 100
BACKOFFS: Final = (NONE := "none", "linear", "exponential")
ABSORBED: Final = "absorbed"
TRIGGERS: Final = (NONE, FIRST := "first", EVERY := "every", DEPTH := "depth")
_ALLOWANCE: Final = ("allowed", "inhibited")


@dataclass(frozen=True, slots=True)
class QueueConf:
    """One queue; 0 in max_depth, max_length or lease_s is "no limit of its own"."""

    name: str
    max_depth: int = 0  # messages; more are refused with QueueFull
    max_length: int = 0  # bytes of one body; more is refused with MessageTooLong
    put_allowed: bool = True
    get_allowed: bool = True
    persistent_default: bool = True
    priority_default: int = limits.PRIORITY_NORMAL
    attempts_max: int = 3  # failed attempts after which a message goes to POISON
    death_delay_s: int = 30  # pause before a message that its reader died with is handed out again
    lease_s: int = 0  # time a reader has for a message before it is taken back
    expiry_max_s: int = 0  # time a message put here has at most; 0: as long as it says itself
    expired_to: str = ""  # queue for messages whose time is over here; "": they are discarded
    retry_delay_ms: int = -1  # pause after a failed attempt; -1: death_delay_s
    retry_backoff: str = NONE
    retry_max_s: int = 3600  # the longest pause that back-off makes
    retry_jitter: int = 0  # per cent by which a pause may be shorter
    dead_letter: str = ""  # queue for messages that have failed attempts_max times; "": POISON
    dedupe_s: int = 0  # so long the ids of messages put here are remembered
    duplicates: str = ABSORBED
    dedupe_keys_max: int = 100_000  # ids that are remembered at once; then no more are taken
    trigger: str = NONE  # when a trigger message is made: one of TRIGGERS (ADR 0051)
    trigger_depth: int = 1  # messages that must be ready, for "depth"
    trigger_program: str = ""  # section of triggers.conf that is started; "": the queue's name
    description: str = ""

    @property
    def special(self) -> bool:
        """Only the queue manager puts on it."""
        return self.name in SPECIAL_NAMES


class ServiceKind(Enum):
    """What a service is to the supervisor, in the order of starting; stopping is in STOP_ORDER."""

    MANAGER = "manager"  # queue.manager
    POOL = "pool"  # pool.writer: recovery that never stops
    DELETER = "deleter"  # idel.server
    READER = "reader"  # takes messages from a queue
    SUBMITTER = "submitter"  # only puts messages: the first to stop


START_ORDER: Final = tuple(ServiceKind)
STOP_ORDER: Final = (
    *(ServiceKind.SUBMITTER, ServiceKind.READER, ServiceKind.DELETER),
    *(ServiceKind.MANAGER, ServiceKind.POOL),
)


@dataclass(frozen=True, slots=True)
class ServiceConf:
    """One service: a main process and `auxiliaries` more."""

    name: str
    title: str  # how listings and logs name it
    number: int  # as in the original: Service Router 2, Queue Manager 100
    kind: ServiceKind
    program: str  # launcher in bin/
    queue: str = ""  # which it reads; "" for one that reads none
    auxiliaries: int = 0
    batch: int = 1  # messages a reader takes at once
    nonstop: bool = False  # not stopped by "all", only with the whole instance
    enabled: bool = True
    subservices: tuple[str, ...] = ()  # run inside this one, once


QUEUE_KEYS: Final = (
    *("max_depth", "max_length", "put", "get", "persistent", "priority", "attempts_max"),
    *("death_delay_s", "lease_s", "expiry_max_s", "expired_to", "retry_delay_ms"),
    *("retry_backoff", "retry_max_s", "retry_jitter", "dead_letter", "dedupe_s", "duplicates"),
    *("dedupe_keys_max", "trigger", "trigger_depth", "trigger_program", "description"),
)
_SERVICE_KEYS: Final = (
    *("title", "number", "kind", "program", "queue", "auxiliaries", "batch", "nonstop"),
    *("enabled", "subservices"),
)


def load_queues(conf_dir: Path | None = None) -> dict[str, QueueConf]:
    """The queues by name, in the order of the file; IDEL and POISON behind them unless given."""
    sections = read_sections(conf_path(conf_dir, QUEUES_FILE))
    common = sections.pop(DEFAULTS_SECTION, None)
    shared = common.entries if common is not None else {}
    for section in (*((common,) if common is not None else ()), *sections.values()):
        section.refuse_unknown(QUEUE_KEYS)
        if (count := len({*sections, *SPECIAL_NAMES})) > limits.NAMED_QUEUES_MAX:
            raise section.error(f"{count} queues with {' and '.join(SPECIAL_NAMES)}",
                                f"{limits.NAMED_QUEUES_MAX} queues")
    known = frozenset(_checked_name(item) for item in sections.values())
    queues = {item.name: queue_of(item.name, shared | item.entries, known)
              for item in sections.values()}
    for name in SPECIAL_NAMES:
        queues.setdefault(name, queue_of(name, shared, known))
    for section in sections.values():
        _refuse_ring(section, shared | section.entries, queues)
    return queues


def _checked_name(section: Section) -> str:
    try:
        return check_queue_name(section.name)
    except BadName as error:
        raise section.error("not a queue name", QUEUE_RULE) from error


def queue_of(name: str, entries: dict[str, Entry], known: frozenset[str]) -> QueueConf:
    """What the keys of a queue say; `known`: queues that it may name. ConfigError."""
    default = QueueConf(name)
    return QueueConf(
        name=name,
        max_depth=_integer(entries, "max_depth", default.max_depth, 0, DEPTH_MAX),
        max_length=_size(entries, "max_length", default.max_length, limits.BODY_BYTES_MAX),
        put_allowed=_choice(entries, "put", _ALLOWANCE) == "allowed",
        get_allowed=_choice(entries, "get", _ALLOWANCE) == "allowed",
        persistent_default=_truth(entries, "persistent", default=default.persistent_default),
        priority_default=_priority(entries, default.priority_default),
        attempts_max=_integer(entries, "attempts_max", 3, 1, limits.ATTEMPTS_MAX),
        death_delay_s=_integer(entries, "death_delay_s", default.death_delay_s, 0, DELAY_S_MAX),
        lease_s=_integer(entries, "lease_s", default.lease_s, 0, DELAY_S_MAX),
        expiry_max_s=_integer(entries, "expiry_max_s", 0, 0, EXPIRY_S_MAX),
        expired_to=_other_queue(name, entries, "expired_to", known),
        retry_delay_ms=_integer(entries, "retry_delay_ms", -1, 0, DELAY_S_MAX * 1000),
        retry_backoff=_choice(entries, "retry_backoff", BACKOFFS),
        retry_max_s=_integer(entries, "retry_max_s", default.retry_max_s, 1, DELAY_S_MAX),
        retry_jitter=_integer(entries, "retry_jitter", 0, 0, 100),
        dead_letter=_other_queue(name, entries, "dead_letter", known),
        dedupe_s=_integer(entries, "dedupe_s", 0, 0, DELAY_S_MAX),
        duplicates=_choice(entries, "duplicates", (ABSORBED, "refused")),
        dedupe_keys_max=_integer(entries, "dedupe_keys_max", 100_000, 1, 1_000_000),
        trigger=_choice(entries, "trigger", TRIGGERS),
        trigger_depth=_integer(entries, "trigger_depth", default.trigger_depth, 1, DEPTH_MAX),
        trigger_program=_text(entries, "trigger_program", ""),
        description=_text(entries, "description", ""),
    )


def load_services(conf_dir: Path | None = None) -> dict[str, ServiceConf]:
    """The services by short name (router, local, ...), in the order of the file."""
    sections = read_sections(conf_path(conf_dir, SERVICES_FILE))
    services: dict[str, ServiceConf] = {}
    numbers: dict[int, str] = {}
    for section in sections.values():
        section.refuse_unknown(_SERVICE_KEYS)
        service = _service(section)
        if service.number in numbers:
            taken = numbers[service.number]
            raise section.entries["number"].error(f"also that of [{taken}]", "a number of its own")
        numbers[service.number] = service.name
        services[service.name] = service
    return services


def _service(section: Section) -> ServiceConf:
    entries = section.entries
    for key in ("number", "kind", "program"):
        if key not in entries:
            raise section.error(f"the key {key} is missing", f"{key} = ...")
    try:
        name = check_service_name(section.name)
        program = check_service_name(entries["program"].value)
    except BadName as error:
        raise section.error(str(error), SERVICE_RULE) from error
    kind = ServiceKind(_choice(entries, "kind", tuple(kind.value for kind in ServiceKind)))
    return ServiceConf(
        name=name,
        title=_text(entries, "title", name),
        number=entries["number"].integer(1, 9999),
        kind=kind,
        program=program,
        queue=_service_queue(section, kind),
        auxiliaries=_integer(entries, "auxiliaries", 0, 0, limits.AUXILIARIES_MAX),
        batch=_integer(entries, "batch", 1, 1, limits.BATCH_MAX),
        nonstop=_truth(entries, "nonstop", default=False),
        enabled=_truth(entries, "enabled", default=True),
        subservices=tuple(entries["subservices"].value.split()) if "subservices" in entries else (),
    )


def _service_queue(section: Section, kind: ServiceKind) -> str:
    entry = section.entries.get("queue")
    reads = kind in (ServiceKind.READER, ServiceKind.DELETER)
    if entry is None or not entry.value:
        if reads:
            raise section.error(f"a {kind.value} reads a queue", "queue = NAME")
        return ""
    if not reads:
        raise entry.error(f"a {kind.value} reads no queue", "no queue")
    try:
        return check_queue_name(entry.value)
    except BadName as error:
        raise entry.error("not a queue name", QUEUE_RULE) from error


def _other_queue(name: str, entries: dict[str, Entry], key: str, known: frozenset[str]) -> str:
    """Where messages go that leave a queue; the one that is meant itself has no such queue."""
    other = entries[key].value if key in entries else ""
    if other and (other not in known or other in SPECIAL_NAMES):
        raise entries[key].error("not a queue of this file", "the name of a section, or nothing")
    return "" if other == name or name in SPECIAL_NAMES else other


def _refuse_ring(section: Section, entries: dict[str, Entry], queues: dict[str, QueueConf]
                 ) -> None:
    """What fails everywhere ends on POISON, not in a ring of queues."""
    name = section.name
    for _ in queues:
        name = queues[name].dead_letter
        if not name:
            return
    raise entries["dead_letter"].error(
        "a ring: a message that fails everywhere would go round for ever",
        "one queue of a ring without dead_letter")


def _integer(entries: dict[str, Entry], key: str, default: int, low: int, high: int) -> int:
    return entries[key].integer(low, high) if key in entries else default


def _size(entries: dict[str, Entry], key: str, default: int, high: int) -> int:
    return entries[key].size(0, high) if key in entries else default


def _truth(entries: dict[str, Entry], key: str, *, default: bool) -> bool:
    return entries[key].truth() if key in entries else default


def _choice(entries: dict[str, Entry], key: str, choices: tuple[str, ...]) -> str:
    """The first choice is the default."""
    return entries[key].choice(choices) if key in entries else choices[0]


def _text(entries: dict[str, Entry], key: str, default: str) -> str:
    if key not in entries:
        return default
    text = entries[key].value
    if len(text) > DESCRIPTION_CHARACTERS_MAX:
        raise entries[key].error("too long", f"{DESCRIPTION_CHARACTERS_MAX} characters")
    return escape(text)


def _priority(entries: dict[str, Entry], default: int) -> int:
    if "priority" not in entries:
        return default
    try:
        return parse_priority(entries["priority"].value)
    except OmqError as error:
        raise entries["priority"].error("not a priority", "0 to 9, urgent, normal, low") from error
