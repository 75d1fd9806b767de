"""Reader for routes.conf: local domains, aliases, queues by address and domain, peers, limits.

    [local]    domains, users, unknown_user        [aliases]  name or address = addresses
    [queues]   address, domain, .domain or * = queue       [peers]  domain, .domain or * = host:port
    [router]   limits and the Bcc rule

conf/routes.conf explains every key. A section or key that is missing has its default.

Errors: ConfigError (file, line, key, reason, what is allowed), before anything is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from omq.base import names
from omq.base.config_file import Entry, Section, read_sections
from omq.base.errors import BadName
from omq.base.limits import GIB, MIB
from omq.base.settings_file import conf_path
from omq.services.mail.mail_message import address_problem
from omq.services.mail.maildir import USER_RULE, mailbox_name
from omq.services.mail.routes import DEFAULT, REPORT_ERROR, Peer, Routes, peer_of

FILE_NAME: Final = "routes.conf"
_SECTIONS: Final = ("local", "aliases", "queues", "peers", "router")
_LOCAL_KEYS: Final = ("domains", "users", "unknown_user")
_ROUTER_KEYS: Final = ("hops_max", "bcc_header", "blind_copies_max", "blind_bytes_max")


def load_routes(conf_dir: Path | None) -> Routes:
    """The routes of `conf_dir`/routes.conf, or of the shipped file where it is missing."""
    sections = read_sections(conf_path(conf_dir, FILE_NAME))
    for section in sections.values():
        if section.name not in _SECTIONS:
            raise section.error("unknown section", ", ".join(_SECTIONS))
    empty = Section(Path(FILE_NAME), 0, "")
    local, router = sections.get("local", empty), sections.get("router", empty)
    local.refuse_unknown(_LOCAL_KEYS)
    router.refuse_unknown(_ROUTER_KEYS)
    default = Routes()
    limits = router.entries
    return Routes(
        domains=_words(local, "domains", default.domains),
        users=_words(local, "users", default.users),
        unknown_user=_unknown_user(local),
        aliases=dict(map(_alias, sections.get("aliases", empty).entries.values())),
        queues={_pattern(entry): _queue(entry) for entry
                in sections.get("queues", empty).entries.values()},
        peers={_pattern(entry): _peer(entry) for entry
               in sections.get("peers", empty).entries.values()},
        hops_max=_number(limits, "hops_max", default.hops_max, 1, 1000),
        keep_bcc=("bcc_header" in limits
                  and limits["bcc_header"].choice(("remove", "keep")) == "keep"),
        blind_copies_max=_number(limits, "blind_copies_max", default.blind_copies_max, 1, 500),
        blind_bytes_max=(limits["blind_bytes_max"].size(MIB, 4 * GIB)
                         if "blind_bytes_max" in limits else default.blind_bytes_max),
    )


def _peer(entry: Entry) -> Peer:
    peer = peer_of(entry.value)
    if peer is None:
        shown = names.escape(entry.value)
        raise entry.error(f"{shown!r} is no peer", "host, host:port or [::1]:port")
    return peer


def _words(section: Section, key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    if key not in section.entries:
        return default
    words = tuple(word.lower() for word in section.entries[key].value.replace(",", " ").split())
    if not words:
        raise section.entries[key].error("is empty", "one or more, separated by commas")
    return words


def _unknown_user(section: Section) -> str:
    entry = section.entries.get("unknown_user")
    if entry is None or entry.value == REPORT_ERROR:
        return REPORT_ERROR
    try:
        return mailbox_name(entry.value)
    except BadName as error:
        raise entry.error("not a mailbox name", f"error, or {USER_RULE}") from error


def _alias(entry: Entry) -> tuple[str, tuple[str, ...]]:
    members = tuple(each.strip() for each in entry.value.split(",") if each.strip())
    for address in (entry.key, *members):
        problem = address_problem(address, smtputf8=True)
        if problem is not None or " " in address:
            raise entry.error(f"{names.escape(address)!r} is no address: {problem or 'a space'}",
                              "one or more addresses or names, separated by commas")
    if not members:
        raise entry.error("an alias for nobody", "one or more addresses or names")
    return entry.key.lower(), members


def _pattern(entry: Entry) -> str:
    if entry.key != DEFAULT and (DEFAULT in entry.key or " " in entry.key):
        raise entry.error("neither a domain nor an address", "user@domain, domain, .domain or *")
    return entry.key.lower()


def _queue(entry: Entry) -> str:
    try:
        return names.check_queue_name(entry.value)
    except BadName as error:
        raise entry.error("not a queue name", names.QUEUE_RULE) from error


def _number(entries: Mapping[str, Entry], key: str, default: int, low: int, high: int) -> int:
    return entries[key].integer(low, high) if key in entries else default
