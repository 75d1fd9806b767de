"""alarms.conf: the thresholds, each an alarm with a name; conf/alarms.conf explains every key.

Errors: ConfigError with file, line, key and what is allowed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omq.base.config_file import Entry, Section, read_sections
from omq.base.errors import BadName
from omq.base.names import QUEUE_RULE, check_queue_name
from omq.base.settings_file import conf_path
from omq.cli.watch.measures import EACH, OF_INSTANCE, OF_QUEUE

FILE_NAME: Final = "alarms.conf"
ALARM_KEYS: Final = ("measure", "queue", "raise", "clear", "hold_s", "severity", "run", "mail",
                     "unit", "every_s")
SEVERITIES: Final = ("warning", "critical")
ALARMS_MAX: Final = 100
_VALUE_MAX: Final = 1 << 50
_SECONDS_MAX: Final = 366 * 86400
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_PATH: Final = (re.compile(r"/\S+"), "an absolute path without spaces")
_ADDRESS: Final = (re.compile(r"[A-Za-z0-9._%+][A-Za-z0-9._%+-]*@[A-Za-z0-9.-]+"),
                   "an address like ops@example.org")
_UNIT: Final = (re.compile(r"[A-Za-z0-9][A-Za-z0-9:_.@-]*\.(service|target)"),
                "a unit like page@omq.service")


@dataclass(frozen=True, slots=True)
class Alarm:
    """One section. `run`, `mail` and `unit` are empty where nobody is notified."""

    name: str
    measure: str
    queue: str
    begin: int
    clear: int
    hold_s: int = 0
    severity: str = SEVERITIES[0]
    run: str = ""
    mail: str = ""
    unit: str = ""
    every_s: int = 300


def load_alarms(conf_dir: Path | None = None) -> tuple[Alarm, ...]:
    """The alarms of `conf_dir`/alarms.conf, or of the shipped file where it is missing."""
    sections = read_sections(conf_path(conf_dir, FILE_NAME))
    found = tuple(_alarm(each) for each in sections.values())
    if len(found) > ALARMS_MAX:
        raise [*sections.values()][ALARMS_MAX].error("too many alarms", f"{ALARMS_MAX}")
    return found


def _alarm(section: Section) -> Alarm:
    section.refuse_unknown(ALARM_KEYS)
    if _NAME.fullmatch(section.name) is None:
        raise section.error("not a name", "1 to 32 of a-z, 0-9, '_' and '-', no '-' first")
    entries = section.entries
    for key in ("measure", "raise"):
        if key not in entries:
            raise section.error(f"{key} is missing", "measure and raise")
    measure = entries["measure"].choice((*OF_INSTANCE, *OF_QUEUE))
    begin = entries["raise"].integer(1, _VALUE_MAX)
    return Alarm(
        section.name, measure, _queue(section, measure), begin,
        entries["clear"].integer(1, begin) if "clear" in entries else begin,
        _seconds(entries, "hold_s", 0),
        entries["severity"].choice(SEVERITIES) if "severity" in entries else SEVERITIES[0],
        _like(entries, "run", _PATH), _like(entries, "mail", _ADDRESS),
        _like(entries, "unit", _UNIT), _seconds(entries, "every_s", 300))


def _queue(section: Section, measure: str) -> str:
    entry = section.entries.get("queue")
    if measure in OF_INSTANCE:
        if entry is not None:
            raise entry.error(f"{measure} is of the whole instance", "no queue")
        return ""
    if entry is None:
        raise section.error("queue is missing", f"a queue, or {EACH} for each")
    if entry.value != EACH:
        try:
            check_queue_name(entry.value)
        except BadName as error:
            raise entry.error("not a queue name", f"{QUEUE_RULE}; or {EACH}") from error
    return entry.value


def _seconds(entries: dict[str, Entry], key: str, default: int) -> int:
    return entries[key].integer(0, _SECONDS_MAX) if key in entries else default


def _like(entries: dict[str, Entry], key: str, rule: tuple[re.Pattern[str], str]) -> str:
    if key not in entries:
        return ""
    if rule[0].fullmatch(entries[key].value) is None:
        raise entries[key].error("cannot be used", rule[1])
    return entries[key].value
