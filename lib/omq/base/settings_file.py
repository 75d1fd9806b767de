"""Reads omq.conf into Settings, and prints omq.conf from the table of keys.

A key that the file lacks has its default. A key is in the section that the table names. Values
that contradict each other are refused here, so that no daemon has to think about them.

Errors: ConfigError (file, line, key, reason, what is allowed).
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from omq.base import limits
from omq.base.config_file import Entry, Section, read_sections
from omq.base.errors import ConfigError
from omq.base.mistakes import Mistakes
from omq.base.names import escape
from omq.base.paths import shipped_conf
from omq.base.settings import DEFAULTS, KEYS, Settings

FILE_NAME: Final = "omq.conf"
REQUEST_OVERHEAD_BYTES: Final = 4 * limits.KIB
"""Room besides body and properties in a channel and in a block: headers and page padding."""

SECTION_TITLES: Final = {
    "journal": "The journal: what is acknowledged is here first",
    "archive": "Archive files: what omq-archive makes of retired journal files",
    "pool": "The message pool and its checkpoints",
    "store": "Bodies that live long or are large, and disk space",
    "index": "The index in shared memory: its size is the limit on messages",
    "ipc": "Clients and readers",
    "daemons": "Starting, watching and stopping the daemons",
    "metrics": "Figures for Prometheus, and alarms",
    "trigger": "Programs that queues have started",
    "qmgr": "The scheduler of outgoing work: channels, their processes, peers",
    "mail": "The mail services",
    "ship": "The journal and copies of the pool in an object store (omq ship)",
    "drop": "Mail that programs of this host hand in (omq-sendmail, mail.drop)",
    "tls": "Encryption of mail on its way in and out",
    "milter": "Milters, and policy services of Postfix's protocol",
    "dns": "Looking up the hosts that take mail for a domain",
    "amqp": "Clients of AMQP 1.0 and 0-9-1 (NETWORK.md)",
    "channel": "Channels: messages of transmission queues go to other instances (NETWORK.md)",
    "standby": "Standbys of this instance on other hosts (STANDBY.md)",
    "web": "omq-web: the console, and its API (CONSOLE.md)",
    "submission": "Who may send mail from elsewhere, and as whom we send to a smarthost",
}

SEED_KEYS: Final = {"QM_DONT_READ_MESSAGE_AT_START": "qm_dont_read_messages_at_start"}
"""The original's tweaks that exist here, as it spells them; TRUE and FALSE are taken too."""
_SEED_TRUTH: Final = {"TRUE": "yes", "FALSE": "no"}
_HEAD: Final = """\
# omq.conf: every setting of an omq instance. Each line below shows a key with its default; take
# the '#' away to change it. Sizes may be written as 64M or 64 MiB, numbers as 1_000_000. A comment
# is a line of its own. Daemons read this file when they start, and again at a reload (SIGHUP); what
# sizes files or shared memory ([journal], [store], [index], [ipc]) changes at the next start only.
# The keys and these comments are printed by: python -m omq.base.settings_file
"""


def client_settings(conf_dir: Path | None = None) -> Settings:
    """What a client takes from omq.conf: every key that is right for itself, else its default.

    A mistake in the file is the daemons' business, which read it at their next start or reload: it
    must not keep clients from a manager that runs well. So is a file that only daemons may read."""
    try:
        sections = read_sections(conf_path(conf_dir, FILE_NAME))
    except ConfigError:
        return DEFAULTS
    found: dict[str, Any] = {}
    for section in sections.values():
        for entry in _entries(section):
            key = KEYS.get(entry.key)
            if key is not None and key.section == section.name:
                with suppress(ConfigError):
                    found[entry.key] = _value(entry)
    return replace(DEFAULTS, **found)


def load_settings(conf_dir: Path | None = None) -> Settings:
    """The settings of `conf_dir`/omq.conf, or of the shipped file where it is missing."""
    path = conf_path(conf_dir, FILE_NAME)
    sections = read_sections(path)
    values: dict[str, Any] = {}
    entries: dict[str, Entry] = {}
    mistakes = Mistakes()
    for section in sections.values():
        with mistakes.noted():
            _refuse_unknown(section)
        for entry in _entries(section) if section.name in SECTION_TITLES else ():
            with mistakes.noted():
                _refuse_elsewhere(entry, section)
                if entry.key in entries:
                    raise entry.error("set twice, in two spellings",
                                      f"once (see line {entries[entry.key].line})")
                values[entry.key] = _value(entry)
                entries[entry.key] = entry
    mistakes.end()
    settings = replace(DEFAULTS, **values)
    complaint = contradiction(settings)
    if complaint is not None:
        key, reason, allowed = complaint
        line = entries[key].line if key in entries else 0
        raise ConfigError(file=path, line=line, key=key, reason=reason, allowed=allowed)
    return settings


def conf_path(conf_dir: Path | None, name: str) -> Path:
    """`name` in `conf_dir`, or the shipped file where it is missing there. A directory that was
    named and does not exist is a mistake, not a wish for defaults."""
    if conf_dir is None:
        return shipped_conf() / name
    if not conf_dir.is_dir():
        raise ConfigError(
            file=conf_dir, line=0, key="directory", reason="not there", allowed="a directory"
        )
    path = conf_dir / name
    return path if path.exists() else shipped_conf() / name


def contradiction(settings: Settings) -> tuple[str, str, str] | None:
    """The first key that does not go with another one: (key, reason, allowed); None when all do."""
    page = settings.journal_page_bytes
    request = (
        settings.container_threshold_bytes + limits.PROPERTIES_BYTES_MAX + REQUEST_OVERHEAD_BYTES
    )
    block = settings.block_bytes_max
    rules = (
        (page & (page - 1) == 0, "journal_page_bytes", "not a power of two", "512, 1024, 2048 ..."),
        (block % page == 0, "block_bytes_max", "not whole pages", f"a multiple of {page}"),
        *_at_least(settings, "journal_file_bytes", block + 2 * page, "two pages over a block"),
        *_at_least(settings, "block_bytes_max", request, "body in the journal, and properties"),
        *_at_least(settings, "channel_bytes", request, "body in the journal, and properties"),
        *_at_least(settings, "queue_entries_max", settings.messages_max, "messages_max"),
        *_at_least(settings, "body_bytes_max", settings.smtp_message_bytes_max, "the SMTP limit"),
        *_at_least(settings, "smtp_memory_bytes_max", 2 * settings.smtp_message_bytes_max,
                   "two copies of the largest message"),
        *_at_least(settings, "stop_timeout_s", settings.drain_timeout_s, "drain_timeout_s"),
        *_at_least(
            settings, "restart_backoff_max_s", settings.restart_backoff_min_s, "its minimum"
        ),
        *_at_least(settings, "unix_retry_max_s", settings.unix_retry_step_s, "unix_retry_step_s"),
    )
    for holds, key, reason, allowed in rules:
        if not holds:
            return key, reason, allowed
    return None


def _at_least(
    settings: Settings, key: str, low: int, what: str
) -> tuple[tuple[bool, str, str, str]]:
    value: int = getattr(settings, key)
    return ((value >= low, key, f"{value} is too small for {what}", f"{low} or more"),)


def _entries(section: Section) -> Iterator[Entry]:
    """Its entries, the seed's tweaks under our names."""
    for entry in section.entries.values():
        ours = SEED_KEYS.get(entry.key)
        if ours is None:
            yield entry
        else:
            value = _SEED_TRUTH.get(entry.value.upper(), entry.value)
            yield replace(entry, key=ours, value=value)


def _refuse_unknown(section: Section) -> None:
    if section.name not in SECTION_TITLES:
        raise section.error("unknown section", ", ".join(SECTION_TITLES))


def _refuse_elsewhere(entry: Entry, section: Section) -> None:
    key = KEYS.get(entry.key)
    if key is None:
        known = tuple(name for name, key in KEYS.items() if key.section == section.name)
        raise entry.error(f"unknown key in [{section.name}]", ", ".join(known))
    if key.section != section.name:
        raise entry.error(f"is in [{section.name}]", f"in section [{key.section}]")


def _value(entry: Entry) -> Any:
    key, default = KEYS[entry.key], getattr(DEFAULTS, entry.key)
    if isinstance(default, bool):
        return entry.truth()
    if isinstance(default, int):
        read = entry.size if _is_size(entry.key) else entry.integer
        return read(key.low, key.high)
    if key.choices:
        return entry.choice(key.choices)
    if re.fullmatch(key.pattern, entry.value) is None:
        raise entry.error(f"{escape(entry.value)!r} is not allowed", key.rule)
    return entry.value


def render() -> str:
    """The text of the shipped omq.conf."""
    blocks = [_HEAD]
    for section, title in SECTION_TITLES.items():
        keys = (name for name, key in KEYS.items() if key.section == section)
        blocks.append(f"[{section}]\n# {title}.\n\n" + "\n".join(map(_render_key, keys)))
    return "\n".join(blocks)


def in_force(settings: Settings, section: str = "") -> Iterator[str]:
    """The keys of a section, or of all, with their values; next to what is changed, its default."""
    for each in SECTION_TITLES:
        if section in ("", each):
            yield f"[{each}]"
            for name in (name for name, key in KEYS.items() if key.section == each):
                value, default = getattr(settings, name), getattr(DEFAULTS, name)
                line = f"{name} = {_shown(value, name)}".rstrip()
                yield line if value == default else (
                    f"{line}    # default: {_shown(default, name)}".rstrip())


def _render_key(name: str) -> str:
    text = f"{KEYS[name].reason}. Allowed: {_allowed(name)}."
    comment = textwrap.fill(
        text[0].upper() + text[1:], 98, initial_indent="# ", subsequent_indent="# "
    )
    line = f"#{name} = {_shown(getattr(DEFAULTS, name), name)}"
    return f"{comment}\n{line.rstrip()}\n"


def _is_size(key: str) -> bool:
    return key.endswith(("_bytes", "_bytes_max"))


def _allowed(name: str) -> str:
    key, default = KEYS[name], getattr(DEFAULTS, name)
    if isinstance(default, bool):
        return "yes or no"
    if isinstance(default, int):
        return f"{_shown(key.low, name)} to {_shown(key.high, name)}"
    return " or ".join(key.choices) if key.choices else key.rule


def _shown(value: int | str, name: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int) or not _is_size(name):
        return str(value)
    for unit, size in (("GiB", limits.GIB), ("MiB", limits.MIB), ("KiB", limits.KIB)):
        if value and value % size == 0:
            return f"{value // size} {unit}"
    return str(value)


if __name__ == "__main__":
    sys.stdout.write(render())
