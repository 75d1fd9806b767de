"""schedules.conf: the schedules that belong to the operator's files.

    [NIGHTLY]
    queue = REPORTS
    when = 0 3 * * *
    zone = Europe/Berlin

Errors: ConfigError (file, line, key, reason, what is allowed).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from omq.base.config_file import Entry, Section, read_sections
from omq.base.errors import BadSchedule
from omq.base.settings_file import conf_path
from omq.tasks.schedule import FILE, JITTER_S_MAX, Schedule

_TEXTS: Final = ("queue", "when", "zone", "body", "catch_up", "overlap")
_NUMBERS: Final = {"priority": ("priority", 9), "expiry": ("expiry_s", 366 * 86400),
                   "jitter": ("jitter_s", JITTER_S_MAX)}
PROPERTY: Final = "property."
SCHEDULE_KEYS: Final = (*_TEXTS, *_NUMBERS)


def load_schedules(conf_dir: Path | None = None) -> list[Schedule]:
    """Those of `conf_dir`, or of the shipped file (which has none)."""
    return [_schedule(each) for each in read_sections(conf_path(conf_dir, FILE)).values()]


def _schedule(section: Section) -> Schedule:
    plain = {key: entry for key, entry in section.entries.items() if not key.startswith(PROPERTY)}
    Section(section.file, section.line, section.name, plain).refuse_unknown(SCHEDULE_KEYS)
    for key in ("queue", "when"):
        if key not in plain:
            raise section.error(f"{key} is missing", f"{key} = ...")
    given: dict[str, Any] = {key: entry.value for key, entry in plain.items() if key in _TEXTS}
    for key, (name, most) in _NUMBERS.items():
        if key in plain:
            given[name] = plain[key].integer(0, most)
    properties = {key.removeprefix(PROPERTY): entry.value
                  for key, entry in section.entries.items() if key.startswith(PROPERTY)}
    try:
        return Schedule(section.name, by=FILE, properties=properties, **given).checked()
    except BadSchedule as error:
        where: Section | Entry = plain["when"] if "fields" in str(error) else section
        raise where.error(str(error), "see the comments of the shipped schedules.conf") from error
