"""What the part of a report for people says: built in, or a site's own words in files.

A file of `report_templates` (omq.conf), a folder, is named `ACTION.LANGUAGE` or `ACTION`: failed,
delayed, delivered or relayed, and a language tag as Content-Language has it (de, pt-br). It is

    Subject: Unzustellbare Nachricht
                                            an empty line
    Mailserver {host}: die Nachricht ging nicht an:

    {recipients}

The language of a report is that of `[languages]` in routes.conf for its sender's address or domain;
a sender without one has the file without a language. Where neither is there, the words are ours.

Fields: {host}, {postmaster}, {sender}, {id} (of the mail), {arrival} (its date), {count} and
{recipients} (one for each recipient: address, status and reason). `{{` and `}}` are brackets.

Invariants: 1. a template decides about the text for people and the subject alone: the
machine-readable part, the returned header and the other fields are omq's (RFC 3464); 2. a wrong
file is refused with its name and line when the folder is read, and what is built in is used; 3.
a field's value is put in once and is never looked at for fields; 4. recipients are always named: a
text without {recipients} is wrong for failed and delayed mail.

No errors leave `load_templates`: what is wrong is given back, to be told.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.header import Header
from pathlib import Path
from typing import Final

from omq.base.limits import KIB
from omq.base.names import escape
from omq.services.mail.dsn import DELAYED, DELIVERED, FAILED, RELAYED

FILES_MAX: Final = 500
FILE_BYTES_MAX: Final = 64 * KIB
SUBJECT_CHARACTERS_MAX: Final = 200
FIELDS: Final = frozenset(("host", "postmaster", "sender", "id", "arrival", "count", "recipients"))
ACTIONS: Final = (FAILED, DELAYED, DELIVERED, RELAYED)
_SUBJECT: Final = "Subject:"
_SUBJECT_FIELDS: Final = frozenset(("host", "count"))
_NAME: Final = re.compile(
    r"(failed|delayed|delivered|relayed)(?:\.([a-z]{2,3}(?:-[a-z0-9]{2,8})*))?")
_PIECE: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_NAMES_RECIPIENTS: Final = (FAILED, DELAYED)


@dataclass(frozen=True, slots=True)
class Template:
    """One file: its subject and text, with fields."""

    subject: str
    text: str
    language: str = ""

    def filled(self, values: Mapping[str, str]) -> tuple[str, str]:
        """(subject, text) with these values."""
        return _filled(self.subject, values), _filled(self.text, values)


_BUILT_IN_TEXT: Final = ("This is the mail system at host {host}.\n\n%s\nFor help, write to "
                         "{postmaster} and include this report.\n\n{recipients}\n")
BUILT_IN: Final = {action: Template(subject, _BUILT_IN_TEXT % sentence)
                   for action, subject, sentence in (
    (FAILED, "Undelivered mail returned to sender",
     "Your message could not be delivered to the recipients below. It is not tried again."),
    (DELAYED, "Delayed mail",
     "Your message could not be delivered yet. It is tried again; do not send it again."),
    (DELIVERED, "Mail was delivered", "Your message was delivered to the recipients below."),
    (RELAYED, "Mail was passed on",
     "Your message was passed on to a host that does not report what happens to it."))}


@dataclass(frozen=True, slots=True)
class Wrong:
    """A file that is not used, and why."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Templates:
    """Those of a site."""

    by_name: Mapping[tuple[str, str], Template] = field(default_factory=dict)  # action, language
    wrong: tuple[Wrong, ...] = ()

    def chosen(self, action: str, language: str) -> Template:
        """The one for a report: in the language, in one that it is a kind of (de for de-at), of the
        site in none, ours."""
        while language:
            if (found := self.by_name.get((action, language))) is not None:
                return found
            language = language.rpartition("-")[0]
        return self.by_name.get((action, "")) or BUILT_IN[action]


def load_templates(folder: str) -> Templates:
    """What is in the folder; empty: none."""
    if not folder:
        return Templates()
    found: dict[tuple[str, str], Template] = {}
    wrong: list[Wrong] = []
    try:
        names = sorted(each for each in os.listdir(folder) if not each.startswith("."))
    except OSError as error:
        return Templates(wrong=(Wrong(Path(folder), 0, f"cannot be read: {error.strerror}"),))
    if len(names) > FILES_MAX:
        return Templates(wrong=(Wrong(Path(folder), 0, f"more than {FILES_MAX} files"),))
    for name in names:
        path, named = Path(folder) / name, _NAME.fullmatch(name)
        if named is None:
            wrong.append(Wrong(path, 0, "the name is not ACTION or ACTION.LANGUAGE, as failed.de; "
                                        f"actions: {', '.join(ACTIONS)}"))
            continue
        action, language = named[1], named[2] or ""
        loaded = _load(path, action, language)
        if isinstance(loaded, Wrong):
            wrong.append(loaded)
        else:
            found[action, language] = loaded
    return Templates(found, tuple(wrong))


def _at_once(path: str, flags: int) -> int:
    """A pipe is not waited for."""
    return os.open(path, flags | os.O_NONBLOCK)


def _load(path: Path, action: str, language: str) -> Template | Wrong:
    try:
        with open(path, "rb", opener=_at_once) as file:
            data = file.read(FILE_BYTES_MAX + 1) or b""
        text = data.decode("utf-8").replace("\r\n", "\n")
    except OSError as error:
        return Wrong(path, 0, f"cannot be read: {error.strerror}")
    except UnicodeDecodeError as error:
        return Wrong(path, data.count(b"\n", 0, error.start) + 1, "not UTF-8")
    if len(data) > FILE_BYTES_MAX:
        return Wrong(path, 0, f"more than {FILE_BYTES_MAX} bytes")
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.replace("\t", " ").isprintable():
            return Wrong(path, number, "a control character")
    subject = lines[0].removeprefix(_SUBJECT).strip()
    if not lines[0].startswith(_SUBJECT) or not subject:
        return Wrong(path, 1, "it begins with 'Subject: ' and words")
    if len(subject) > SUBJECT_CHARACTERS_MAX:
        return Wrong(path, 1, f"more than {SUBJECT_CHARACTERS_MAX} characters")
    if len(lines) < 2 or lines[1].strip():
        return Wrong(path, 2, "an empty line is missing after the subject")
    for number, line in enumerate(lines, start=1):
        if problem := _field_problem(line, _SUBJECT_FIELDS if number == 1 else FIELDS):
            return Wrong(path, number, problem)
    body = "\n".join(lines[2:]).strip("\n")
    if not body:
        return Wrong(path, 3, "no text")
    if action in _NAMES_RECIPIENTS and "recipients" not in _PIECE.findall(body):
        return Wrong(path, len(lines), "{recipients} is missing: who did not get it must be told")
    return Template(subject, f"{body}\n", language)


def _field_problem(line: str, known: frozenset[str]) -> str:
    for piece in _PIECE.finditer(line):
        if piece[0] in ("{", "}"):
            return "a bracket alone; '{{' and '}}' stand for brackets"
        if piece[1] is not None and piece[1] not in known:
            return (f"{{{escape(piece[1])}}} is not a field here; known are "
                    f"{', '.join(sorted(known))}")
    return ""


def _filled(text: str, values: Mapping[str, str]) -> str:
    return _PIECE.sub(lambda piece: values[piece[1]] if piece[1] is not None else piece[0][0], text)


def subject_field(subject: str) -> str:
    """For a header: as it is, or encoded (RFC 2047), in lines of a header."""
    if subject.isascii():
        return subject
    return Header(subject, "utf-8", header_name="Subject").encode(linesep="\r\n")
