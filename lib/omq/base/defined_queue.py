"""What the keys of a queue say that was made at run time: as a section of queues.conf would.

Its keys are those of queues.conf, with what [*] says for those that are not given, and those of its
kind. Errors: BadDefinition, which names the key; ConfigError of queues.conf itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from omq.base import names
from omq.base.config import DEFAULTS_SECTION, QUEUE_KEYS, QUEUES_FILE, QueueConf, queue_of
from omq.base.config_file import Entry, read_sections
from omq.base.errors import BadDefinition, BadName, ConfigError
from omq.base.settings_file import conf_path

_ORIGIN: Final = Path("(made at run time)")
VALUE_CHARACTERS_MAX: Final = 1200
"""64 names of queues: the longest list that a key can have."""


def load_common(conf_dir: Path | None = None) -> dict[str, Entry]:
    """What [*] says of all queues, also of those that are made at run time."""
    common = read_sections(conf_path(conf_dir, QUEUES_FILE)).get(DEFAULTS_SECTION)
    return common.entries if common is not None else {}


def conf_of(name: str, keys: Mapping[str, str], common: Mapping[str, Entry],
            known: Iterable[str]) -> QueueConf:
    """The queue with these keys; `known`: queues that it may name as expired_to, dead_letter."""
    entries = {key: Entry(_ORIGIN, 0, key, value) for key, value in keys.items()
               if key in QUEUE_KEYS}
    try:
        return queue_of(name, {**common, **entries}, frozenset(known))
    except ConfigError as error:
        fields = error.fields
        raise BadDefinition(queue=name, key=fields["key"], reason=fields["reason"],
                            allowed=fields["allowed"]) from error


def check_name(name: str) -> str:
    """A name that a queue may be given at run time."""
    try:
        names.check_queue_name(name)
    except BadName as error:
        raise BadDefinition(queue=names.escape(name, 32), key="its name", reason="not a queue name",
                            allowed=names.QUEUE_RULE) from error
    if name in names.SPECIAL_NAMES:
        raise BadDefinition(queue=name, key="its name", reason="this queue always exists",
                            allowed="another name")
    return name


def check_keys(name: str, keys: Mapping[str, str], allowed: Iterable[str]) -> None:
    """Known keys with values that one line can have."""
    listed = tuple(allowed)
    for key, value in keys.items():
        shown = names.escape(key, 32)
        if key not in listed:
            raise BadDefinition(queue=name, key=shown, reason="unknown key",
                                allowed=", ".join(listed))
        if len(value) > VALUE_CHARACTERS_MAX or not value.isprintable() or not value.isascii():
            raise BadDefinition(queue=name, key=shown, reason="not a value",
                                allowed=f"up to {VALUE_CHARACTERS_MAX} ASCII characters")


def keys_of(conf: QueueConf) -> dict[str, str]:
    """A queue in the words of queues.conf, whatever [*] says there."""
    told = {
        "max_depth": conf.max_depth, "max_length": conf.max_length,
        "put": "allowed" if conf.put_allowed else "inhibited",
        "get": "allowed" if conf.get_allowed else "inhibited",
        "persistent": "yes" if conf.persistent_default else "no",
        "priority": conf.priority_default, "attempts_max": conf.attempts_max,
        "death_delay_s": conf.death_delay_s, "lease_s": conf.lease_s,
        "expiry_max_s": conf.expiry_max_s, "expired_to": conf.expired_to,
        "retry_backoff": conf.retry_backoff, "retry_max_s": conf.retry_max_s,
        "retry_jitter": conf.retry_jitter, "dead_letter": conf.dead_letter,
        "dedupe_s": conf.dedupe_s, "duplicates": conf.duplicates,
        "dedupe_keys_max": conf.dedupe_keys_max,
        "trigger": conf.trigger, "trigger_depth": conf.trigger_depth,
        "trigger_program": conf.trigger_program, "description": conf.description,
        "in_work_max": conf.in_work_max, "rate": conf.rate, "rate_burst": conf.rate_burst,
        "limit_by": conf.limit_by, "key_in_work_max": conf.key_in_work_max,
        "key_rate": conf.key_rate, "key_rate_burst": conf.key_rate_burst,
        "fair_turns": "yes" if conf.fair_turns else "no",
        "limit_keys_max": conf.limit_keys_max}
    if conf.retry_delay_ms >= 0:
        told["retry_delay_ms"] = conf.retry_delay_ms
    return {key: str(value) for key, value in told.items()}
