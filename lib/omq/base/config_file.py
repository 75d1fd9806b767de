"""Reader for omq's configuration files: sections and keys that keep their line numbers.

    # a comment is a line of its own, so values may hold '#'
    [section]
    key = value

Files are UTF-8, at most 1 MiB. A section and a key in a section appear once; nothing precedes
the first section; a line is not continued. Sizes are written as base.sizes says (64M), counts as
1_000_000.

Errors: ConfigError with file, line, key, reason and what is allowed; it is raised for the first
mistake found, before anything is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from omq.base import limits, sizes
from omq.base.errors import ConfigError
from omq.base.names import escape
from omq.base.sizes import parse_size

_SECTION = re.compile(r"\[([^\[\]]{1,64})\]")
_NUMBER = re.compile(r"-?[0-9][0-9_]*")
_TRUTH = {"yes": True, "no": False}


@dataclass(frozen=True, slots=True)
class Entry:
    """One `key = value` line, with the file it came from for messages."""

    file: Path
    line: int
    key: str
    value: str

    def error(self, reason: str, allowed: str) -> ConfigError:
        return ConfigError(
            file=self.file, line=self.line, key=escape(self.key), reason=reason, allowed=allowed
        )

    def integer(self, low: int, high: int) -> int:
        """A whole number."""
        if _NUMBER.fullmatch(self.value) is None:
            raise self.error(f"{escape(self.value)!r} is not a whole number", f"{low} to {high}")
        return self._within(int(self.value), low, high)

    def size(self, low: int, high: int) -> int:
        """A number of bytes (base.sizes)."""
        number = parse_size(self.value)
        if number is None:
            raise self.error(f"{escape(self.value)!r} is not a size",
                             f"{low} to {high} {sizes.RULE}")
        return self._within(number, low, high)

    def _within(self, number: int, low: int, high: int) -> int:
        if not low <= number <= high:
            raise self.error(f"{escape(self.value)} is out of range", f"{low} to {high}")
        return number

    def truth(self) -> bool:
        """yes or no."""
        return _TRUTH[self.choice(tuple(_TRUTH))]

    def choice(self, allowed: tuple[str, ...]) -> str:
        if self.value not in allowed:
            raise self.error(f"{escape(self.value)!r} is not known", " or ".join(allowed))
        return self.value


@dataclass(frozen=True, slots=True)
class Section:
    """The entries of one [section], in the order of the file."""

    file: Path
    line: int
    name: str
    entries: dict[str, Entry] = field(default_factory=dict)

    def error(self, reason: str, allowed: str) -> ConfigError:
        name = f"[{escape(self.name)}]"
        return ConfigError(
            file=self.file, line=self.line, key=name, reason=reason, allowed=allowed
        )

    def refuse_unknown(self, known: tuple[str, ...]) -> None:
        """ConfigError for the first key that is not in `known`."""
        for error in self.unknown(known):
            raise error

    def unknown(self, known: tuple[str, ...]) -> Iterator[ConfigError]:
        """An error for each key that is not in `known`."""
        for entry in self.entries.values():
            if entry.key not in known:
                yield entry.error("unknown key", ", ".join(known))


def read_sections(path: Path) -> dict[str, Section]:
    """The sections of `path` by name, in the order of the file."""
    sections: dict[str, Section] = {}
    current: Section | None = None
    for number, raw in enumerate(_lines(path), start=1):
        text = raw.strip()
        if not text or text.startswith("#"):
            continue
        if text.startswith("["):
            current = _open_section(path, number, text, sections)
        elif current is None:
            raise _line_error(path, number, text, "a key before the first section", "[section]")
        else:
            entry = _entry(path, number, text)
            if entry.key in current.entries:
                first = current.entries[entry.key].line
                raise entry.error(f"set twice in [{current.name}]", f"once (see line {first})")
            current.entries[entry.key] = entry
    return sections


def _lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            data = file.read(limits.CONF_FILE_BYTES_MAX + 1)
        if len(data) > limits.CONF_FILE_BYTES_MAX:
            raise _line_error(path, 0, "file", "too long", f"{limits.CONF_FILE_BYTES_MAX} bytes")
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _line_error(path, line, "file", "not UTF-8 text", "UTF-8") from error
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
        raise _line_error(path, 0, "file", reason, "a readable file") from error
    lines = text.split("\n")
    for number, content in enumerate(lines, start=1):
        if not content.replace("\t", " ").rstrip("\r").isprintable():
            raise _line_error(path, number, content, "a control character", "printable text")
    return lines


def _open_section(path: Path, number: int, text: str, sections: dict[str, Section]) -> Section:
    match = _SECTION.fullmatch(text)
    if match is None:
        raise _line_error(path, number, text, "not a section heading", "[name]")
    name = match[1].strip()
    if name in sections:
        first = sections[name].line
        raise _line_error(path, number, text, "section given twice", f"once (see line {first})")
    sections[name] = Section(path, number, name)
    return sections[name]


def _entry(path: Path, number: int, text: str) -> Entry:
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise _line_error(path, number, text, "not a setting", "key = value")
    return Entry(path, number, key, value.strip())


def _line_error(path: Path, line: int, key: str, reason: str, allowed: str) -> ConfigError:
    return ConfigError(file=path, line=line, key=escape(key, 64), reason=reason, allowed=allowed)
