"""triggers.conf: the programs that queues may have started.

    [ORDERS]                                        what trigger_program of a queue names
    command = /usr/local/bin/ship --queue {queue}   a command, without a shell; or
    unit = ship@{queue}.service                     a systemd unit
    runs_max = 4                                    so many at once
    timeout_s = 0                                   it is killed after this; 0: never

A queue can name a section, never a command: who may define queues may not say what this service
runs. The file belongs to the operator.

Errors: ConfigError (file, line, key, reason, what is allowed).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omq.base.config_file import Section, read_sections
from omq.base.errors import BadName
from omq.base.names import check_queue_name
from omq.base.settings_file import conf_path

FILE_NAME: Final = "triggers.conf"
PROGRAM_KEYS: Final = ("command", "unit", "runs_max", "timeout_s")
RUNS_MAX: Final = 500
_DAY_S: Final = 86_400
_UNIT: Final = re.compile(r"[A-Za-z0-9:_.@{}\\-]{1,200}\.(service|target|path|timer|socket)")


@dataclass(frozen=True, slots=True)
class Program:
    """One section. `words`: the command, with {queue} where the queue's name goes."""

    name: str
    words: tuple[str, ...]
    runs_max: int = 4
    timeout_s: int = 0

    def command(self, queue: str) -> list[str]:
        """For this queue, whose name is within its word, whatever it is."""
        return [word.replace("{queue}", queue) for word in self.words]


def load_programs(conf_dir: Path | None = None) -> Mapping[str, Program]:
    """The programs by name, of `conf_dir` or the shipped file (which has none)."""
    sections = read_sections(conf_path(conf_dir, FILE_NAME))
    return {name: _program(section) for name, section in sections.items()}


def _program(section: Section) -> Program:
    section.refuse_unknown(PROGRAM_KEYS)
    entries, default = section.entries, Program("", ())
    try:
        check_queue_name(section.name)
    except BadName as error:
        raise section.error("not the name of a program", "as of a queue") from error
    return Program(
        section.name, _words(section),
        entries["runs_max"].integer(1, RUNS_MAX) if "runs_max" in entries else default.runs_max,
        entries["timeout_s"].integer(0, _DAY_S) if "timeout_s" in entries else default.timeout_s)


def _words(section: Section) -> tuple[str, ...]:
    command, unit = section.entries.get("command"), section.entries.get("unit")
    if (command is None) == (unit is None):
        raise section.error("a command or a unit is started, one of them",
                            "command = /path ..., or unit = NAME.service")
    if unit is not None:
        if _UNIT.fullmatch(unit.value) is None:
            raise unit.error("not the name of a unit", "NAME.service, {queue} in it for the queue")
        return ("systemctl", "--no-ask-password", "start", "--", unit.value)
    assert command is not None
    try:
        words = tuple(shlex.split(command.value))
    except ValueError as error:
        raise command.error(f"not a command: {error}", "words, as a shell takes them") from error
    if not words or not words[0].startswith("/"):
        raise command.error("not a command", "an absolute path and its arguments")
    return words
