"""The keys of queues.conf that limit work: how many messages readers have at once, how many are
handed out in a time, and whose turn it is (ADR 0160). ConfigError: the key, and what is allowed.
"""

from __future__ import annotations

from typing import Any, Final

from omq.base import conf_values as values
from omq.base.config_file import Entry
from omq.base.names import PROPERTY_RULE, is_property_name
from omq.base.rates import BURST_MAX, RULE, parse_rate

BY_GROUP: Final = "group"
BY_PROPERTY: Final = "property:"
IN_WORK_MAX: Final = 1_000_000
KEYS_MAX: Final = 10_000_000
OF_KEYS: Final = ("key_in_work_max", "key_rate", "fair_turns")
"""They say something of each key, so they need `limit_by`."""
LIMIT_KEYS: Final = ("in_work_max", "rate", "rate_burst", "limit_by", "key_in_work_max", "key_rate",
                     "key_rate_burst", "fair_turns", "limit_keys_max")


def property_of(by: str) -> str:
    """The property that a `limit_by` names; "": none."""
    return by.removeprefix(BY_PROPERTY) if by.startswith(BY_PROPERTY) else ""


def limits_in(entries: dict[str, Entry]) -> dict[str, Any]:
    """Fields of QueueConf."""
    by = _by(entries)
    for key in OF_KEYS:
        if not by and key in entries and entries[key].value not in ("", "0", "no"):
            raise entries[key].error("there are no keys", "together with limit_by")
    return {
        "in_work_max": values.integer(entries, "in_work_max", 0, 0, IN_WORK_MAX),
        "rate": _rate(entries, "rate"),
        "rate_burst": values.integer(entries, "rate_burst", 1, 1, BURST_MAX),
        "limit_by": by,
        "key_in_work_max": values.integer(entries, "key_in_work_max", 0, 0, IN_WORK_MAX),
        "key_rate": _rate(entries, "key_rate"),
        "key_rate_burst": values.integer(entries, "key_rate_burst", 1, 1, BURST_MAX),
        "fair_turns": values.truth(entries, "fair_turns", default=False),
        "limit_keys_max": values.integer(entries, "limit_keys_max", 100_000, 1, KEYS_MAX)}


def _by(entries: dict[str, Entry]) -> str:
    by = entries["limit_by"].value if "limit_by" in entries else ""
    if by in ("", BY_GROUP):
        return by
    if not by.startswith(BY_PROPERTY):
        raise entries["limit_by"].error("not a key", f"nothing, {BY_GROUP}, or {BY_PROPERTY}NAME")
    if not is_property_name(property_of(by)):
        raise entries["limit_by"].error("not the name of a property", PROPERTY_RULE)
    return by


def _rate(entries: dict[str, Entry], key: str) -> str:
    text = entries[key].value if key in entries else ""
    if text and parse_rate(text) is None:
        raise entries[key].error("not a rate", f"nothing, or {RULE}")
    return text
