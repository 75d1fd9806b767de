"""Sections [rewriting], [checks] and the maps of addresses that are written anew, of routes.conf.

What the files hold is looked at when a mail comes (omq.services.mail.rewriting, content_checks).

Errors: ConfigError (file, line, key, reason, what is allowed).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from omq.base import names
from omq.base.config_file import Entry, Section
from omq.services.mail.check_file import CheckFile
from omq.services.mail.content_checks import Checks
from omq.services.mail.map_file import source_of
from omq.services.mail.maps import Maps, Source
from omq.services.mail.mime_pieces import Kind
from omq.services.mail.rewriting import (
    RECIPIENTS,
    SENDERS,
    Class,
    Masquerade,
    Rewriting,
    rewrite_problem,
)
from omq.services.mail.smtp_address import domain_problem
from omq.services.mail.watched_file import Watched

SECTIONS: Final = ("rewriting", "canonical_maps", "sender_canonical_maps",
                   "recipient_canonical_maps", "generic_maps", "checks")
_KEYS: Final = ("headers", "masquerade_domains", "masquerade_exceptions", "masquerade_classes",
                "canonical_classes", "sender_canonical_classes", "recipient_canonical_classes")
_HEADERS: Final = ("own", "all", "none")
_TIME_KEY: Final = "time_s"
_TIMES: Final = 10
"""All look-ups of a mail have so many times what one has."""
MakeMaps = Callable[[list[Source]], Maps]


def rewriting_of(sections: Mapping[str, Section], made: MakeMaps, timeout_s: float
                 ) -> Rewriting | None:
    """None: nothing is rewritten. ConfigError."""
    empty = Section(Path(), 0, "")
    section = sections.get("rewriting", empty)
    section.refuse_unknown(_KEYS)
    entries = section.entries
    headers = entries["headers"].value.lower() if "headers" in entries else "own"
    if headers not in _HEADERS:
        raise entries["headers"].error("neither of these", ", ".join(_HEADERS))

    def maps(name: str) -> Maps | None:
        there = sections.get(name, empty).entries
        return made([source_of(each, whole=True, check=rewrite_problem)
                     for each in there.values()]) if there else None

    found = Rewriting(
        headers, maps("canonical_maps"), maps("sender_canonical_maps"),
        maps("recipient_canonical_maps"), maps("generic_maps"),
        _classes(entries, "canonical_classes", frozenset(Class)),
        _classes(entries, "sender_canonical_classes", SENDERS),
        _classes(entries, "recipient_canonical_classes", RECIPIENTS),
        Masquerade(tuple(map(str.lower, _domains(entries))),
                   frozenset(map(str.lower, _words(entries, "masquerade_exceptions"))),
                   _classes(entries, "masquerade_classes", SENDERS | {Class.HEADER_RECIPIENT})),
        _TIMES * timeout_s)
    return found if found or found.generic is not None else None


def checks_of(section: Section | None) -> Checks | None:
    """None: nothing is checked. ConfigError."""
    if section is None or not section.entries:
        return None
    kinds = {each.value: each for each in Kind}
    section.refuse_unknown((*kinds, _TIME_KEY))
    entries = section.entries
    files = {kinds[key]: _file(entry) for key, entry in entries.items()
             if key in kinds and entry.value}
    for kind in (Kind.MIME_HEADER, Kind.NESTED_HEADER):
        if kind.value not in entries and Kind.HEADER in files:
            files[kind] = files[Kind.HEADER]
    time_s = entries[_TIME_KEY].integer(1, 300) if _TIME_KEY in entries else 10
    if files and find_spec("re2") is None:
        raise section.error("the package google-re2 is missing", "pip install 'omq-base[maps]'")
    return Checks(files, float(time_s)) if files else None


def _file(entry: Entry) -> CheckFile:
    path = Path(entry.value.removeprefix("regexp:"))
    if not path.is_absolute() or " " in entry.value:
        raise entry.error("not the absolute path of a file", "/path of a file of expressions")
    return CheckFile(Watched(f"[checks] {entry.key}", path),
                     of_fields=entry.key != Kind.BODY.value)


def _words(entries: Mapping[str, Entry], key: str) -> list[str]:
    return entries[key].value.replace(",", " ").split() if key in entries else []


def _domains(entries: Mapping[str, Entry]) -> list[str]:
    words = _words(entries, "masquerade_domains")
    for each in words:
        if domain_problem(each.removeprefix("!")):
            raise entries["masquerade_domains"].error(
                f"{names.escape(each)!r} is not a domain", "domains, with ! before those that stay")
    return words


def _classes(entries: Mapping[str, Entry], key: str, default: frozenset[Class]
             ) -> frozenset[Class]:
    if key not in entries:
        return default
    known = {each.value: each for each in Class}
    words = _words(entries, key)
    if not words or not set(words) <= set(known):
        raise entries[key].error("not a class of addresses", ", ".join(known))
    return frozenset(known[each] for each in words)
