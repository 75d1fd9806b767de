"""queues.conf; with omq.conf, services.conf and authority.conf, all of an instance's configuration.

A file that the conf directory lacks is read from the shipped one. Nothing is half loaded: a mistake
anywhere raises ConfigError (file, line, key, reason, what is allowed; a line for each mistake of a
file) and the old state stays.

In queues.conf the section [*] holds what all queues have that do not say otherwise. A queue without
a section does not exist and is refused; IDEL and POISON always exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from omq.base import conf_values as values
from omq.base import limits
from omq.base.authority import Authority, load_authority
from omq.base.config_file import Entry, Section, read_sections
from omq.base.errors import BadName
from omq.base.limit_words import LIMIT_KEYS, limits_in
from omq.base.mistakes import Mistakes
from omq.base.names import (
    QUEUE_RULE,
    SPECIAL_NAMES,
    check_queue_name,
)
from omq.base.settings import Settings
from omq.base.settings_file import client_settings, conf_path, load_settings

__all__ = [
    "Authority", "QueueConf", "Settings", "client_settings", "load_authority", "load_queues",
    "load_settings",
]

QUEUES_FILE: Final = "queues.conf"
DEFAULTS_SECTION: Final = "*"
DEPTH_MAX: Final = 50_000_000
DELAY_S_MAX: Final = 7 * 86400
EXPIRY_S_MAX: Final = 10 * 366 * 86400
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
    in_work_max: int = 0  # messages in readers' hands at once, 0: no limit (base.limit_words)
    rate: str = ""  # messages handed out in a time, as base.rates; "": no limit
    rate_burst: int = 1
    limit_by: str = ""  # what the key of a message is
    key_in_work_max: int = 0  # the same for each key
    key_rate: str = ""
    key_rate_burst: int = 1
    fair_turns: bool = False  # keys take turns
    limit_keys_max: int = 100_000  # keys without messages that are remembered for their rates
    description: str = ""

    @property
    def special(self) -> bool:
        """Only the queue manager puts on it."""
        return self.name in SPECIAL_NAMES


QUEUE_KEYS: Final = (
    *("max_depth", "max_length", "put", "get", "persistent", "priority", "attempts_max"),
    *("death_delay_s", "lease_s", "expiry_max_s", "expired_to", "retry_delay_ms"),
    *("retry_backoff", "retry_max_s", "retry_jitter", "dead_letter", "dedupe_s", "duplicates"),
    *("dedupe_keys_max", "trigger", "trigger_depth", "trigger_program", *LIMIT_KEYS, "description"),
)


def load_queues(conf_dir: Path | None = None) -> dict[str, QueueConf]:
    """The queues by name, in the order of the file; IDEL and POISON after them unless given."""
    sections = read_sections(conf_path(conf_dir, QUEUES_FILE))
    common = sections.pop(DEFAULTS_SECTION, None)
    shared = common.entries if common is not None else {}
    mistakes = Mistakes()
    for section in (*((common,) if common is not None else ()), *sections.values()):
        for entry in section.unknown(QUEUE_KEYS):
            with mistakes.noted():
                raise entry
        if (count := len({*sections, *SPECIAL_NAMES})) > limits.NAMED_QUEUES_MAX:
            raise section.error(f"{count} queues with {' and '.join(SPECIAL_NAMES)}",
                                f"{limits.NAMED_QUEUES_MAX} queues")
    for item in sections.values():
        with mistakes.noted():
            _checked_name(item)
    known = frozenset(sections)
    queues: dict[str, QueueConf] = {}
    for name in (*sections, *SPECIAL_NAMES):
        entries = shared | sections[name].entries if name in sections else shared
        made = mistakes.built(partial(queue_of, name, known=known), entries)
        if made is not None:
            queues.setdefault(name, made)
    mistakes.end()
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
        max_depth=values.integer(entries, "max_depth", default.max_depth, 0, DEPTH_MAX),
        max_length=values.size(entries, "max_length", default.max_length, limits.BODY_BYTES_MAX),
        put_allowed=values.choice(entries, "put", _ALLOWANCE) == "allowed",
        get_allowed=values.choice(entries, "get", _ALLOWANCE) == "allowed",
        persistent_default=values.truth(entries, "persistent", default=default.persistent_default),
        priority_default=values.priority(entries, default.priority_default),
        attempts_max=values.integer(entries, "attempts_max", 3, 1, limits.ATTEMPTS_MAX),
        death_delay_s=values.integer(entries, "death_delay_s", default.death_delay_s, 0,
                                     DELAY_S_MAX),
        lease_s=values.integer(entries, "lease_s", default.lease_s, 0, DELAY_S_MAX),
        expiry_max_s=values.integer(entries, "expiry_max_s", 0, 0, EXPIRY_S_MAX),
        expired_to=_other_queue(name, entries, "expired_to", known),
        retry_delay_ms=values.integer(entries, "retry_delay_ms", -1, 0, DELAY_S_MAX * 1000),
        retry_backoff=values.choice(entries, "retry_backoff", BACKOFFS),
        retry_max_s=values.integer(entries, "retry_max_s", default.retry_max_s, 1, DELAY_S_MAX),
        retry_jitter=values.integer(entries, "retry_jitter", 0, 0, 100),
        dead_letter=_other_queue(name, entries, "dead_letter", known),
        dedupe_s=values.integer(entries, "dedupe_s", 0, 0, DELAY_S_MAX),
        duplicates=values.choice(entries, "duplicates", (ABSORBED, "refused")),
        dedupe_keys_max=values.integer(entries, "dedupe_keys_max", 100_000, 1, 1_000_000),
        trigger=values.choice(entries, "trigger", TRIGGERS),
        trigger_depth=values.integer(entries, "trigger_depth", default.trigger_depth, 1, DEPTH_MAX),
        trigger_program=values.text(entries, "trigger_program", ""),
        description=values.text(entries, "description", ""),
        **({} if name in SPECIAL_NAMES else limits_in(entries)),
    )


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
