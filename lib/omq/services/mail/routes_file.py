"""Reader for routes.conf: local domains, aliases, queues by address and domain, peers, limits.

    [local]    domains, users, relayed ...         [aliases]  name or address = addresses
    [pipes]    name = user command
    [queues]   address, domain, .domain or * = queue       [peers]  domain, .domain or * = host:port
    [mailboxes] user, @domain or * = owner [quota]
    [senders]  login or * = addresses, @domains, *
    [peer_limits] host, domain, .domain = processes [messages/time]
    [sender_peers] address, domain, .domain, <> or * = host:port
    [rewriting], [checks], maps of addresses that are rewritten (omq.services.mail.cleaning_file)
    [recipient_maps], [sender_maps] name = file:, regexp:, command:, sqlite: or ldap: source
    [tls]      domain, host, .domain or * = level [hosts]  [router] limits
    [languages] address, domain, .domain or * = language

conf/routes.conf explains every key. A section or key that is missing has its default.

Errors: ConfigError (file, line, key, reason, what is allowed), before anything is used.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from omq.base import names
from omq.base.config_file import Entry, Section, read_sections
from omq.base.errors import BadName
from omq.base.limits import GIB, MIB
from omq.base.settings_file import conf_path
from omq.services.delivery.rules import PeerLimit
from omq.services.mail.cleaning_file import SECTIONS, checks_of, rewriting_of
from omq.services.mail.mail_message import address_problem
from omq.services.mail.mailbox_rules import rules_of
from omq.services.mail.maildir import USER_RULE, mailbox_name
from omq.services.mail.map_file import command_of, source_of
from omq.services.mail.maps import Maps, Source
from omq.services.mail.routes import (
    DEFAULT,
    NOBODY,
    POSTMASTER,
    REPORT_ERROR,
    TLS_LEVELS,
    Peer,
    Pipe,
    Routes,
    TlsRule,
    peer_of,
)
from omq.services.mail.senders import senders_of

FILE_NAME: Final = "routes.conf"
_SECTIONS: Final = (
    "local", "aliases", "queues", "peers", "sender_peers", "peer_limits", "pipes", "mailboxes",
    "senders", "tls", "recipient_maps", "sender_maps", *SECTIONS, "languages", "router")
_LOCAL_KEYS: Final = ("domains", "literals", "relayed", "users", "unknown_user", "delimiter")
_ROUTER_KEYS: Final = ("hops_max", "blind_copies_max", "blind_bytes_max", "map_timeout_s",
                       "map_ttl_s", "map_lookups_max")
_DELIMITERS: Final = ("+", "-", "=")
_PIPE_NAME: Final = re.compile(r"[a-z0-9_-]{1,32}")
_TLS_HOST: Final = re.compile(r"[a-z0-9_.*?-]{1,255}")
_LIMIT: Final = re.compile(r"([0-9]{1,4}|-)(?: ([0-9]{1,6})/([0-9]{1,5})?(s|min|h|d))?")
_SECONDS: Final = {"s": 1, "min": 60, "h": 3600, "d": 86400}
PROCESSES_MAX: Final = 1000
_LANGUAGE: Final = re.compile(r"[a-z]{2,3}(-[a-z0-9]{2,8})*")
_FILE: Final = "file:"
_SYSTEM: Final = "passwd:"
_USER_BYTES_MAX: Final = 64 * MIB


def load_routes(conf_dir: Path | None, hostname: str = "") -> Routes:
    """The routes of `conf_dir`/routes.conf, or of the shipped file where it is missing. `hostname`:
    by which this host is known, for its postmaster; not where the file names its way."""
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
    words = _words(local, "users", default.users)
    domains = _words(local, "domains", default.domains)
    pipes = dict(map(_pipe, sections.get("pipes", empty).entries.values()))
    routes = Routes(
        pipes=pipes,
        mailboxes=rules_of(sections.get("mailboxes", empty).entries.values(), domains),
        senders=senders_of(sections.get("senders", empty).entries.values()),
        relayed=_relayed(local, domains),
        delimiter=_delimiter(local),
        domains=domains,
        literals=_literals(local, default.literals),
        users=tuple(each.lower() for each in words if ":" not in each),
        users_listed=_listed(local, words),
        users_of_system=_SYSTEM in words,
        unknown_user=_unknown_user(local),
        aliases=dict(map(_alias, sections.get("aliases", empty).entries.values())),
        queues={_pattern(entry): _queue(entry) for entry
                in sections.get("queues", empty).entries.values()},
        peers={_pattern(entry): _peer(entry, pipes) for entry
               in sections.get("peers", empty).entries.values()},
        tls={_pattern(entry): _tls_rule(entry) for entry
             in sections.get("tls", empty).entries.values()},
        hops_max=_number(limits, "hops_max", default.hops_max, 1, 1000),
        blind_copies_max=_number(limits, "blind_copies_max", default.blind_copies_max, 1, 500),
        blind_bytes_max=(limits["blind_bytes_max"].size(MIB, 4 * GIB)
                         if "blind_bytes_max" in limits else default.blind_bytes_max),
        languages={_pattern(entry): _language(entry) for entry
                   in sections.get("languages", empty).entries.values()},
        recipient_maps=_maps(sections.get("recipient_maps"), limits, whole=True),
        sender_maps=_maps(sections.get("sender_maps"), limits, whole=False),
        rewriting=rewriting_of(sections, partial(_made, limits), _timeout_s(limits)),
        checks=checks_of(sections.get("checks")),
        peer_limits={_pattern(entry): _limit(entry) for entry
                     in sections.get("peer_limits", empty).entries.values()},
        sender_peers={_sender(entry): _peer(entry, pipes) for entry
                      in sections.get("sender_peers", empty).entries.values()},
    )
    _check_postmaster(routes, local, sections.get("aliases", empty))
    name = hostname.lower()
    elsewhere = name in {*routes.domains, *routes.queues, *routes.peers, *routes.relayed}
    return routes if elsewhere else replace(routes, hostname=name)


def _language(entry: Entry) -> str:
    if _LANGUAGE.fullmatch(entry.value.lower()) is None:
        raise entry.error(f"{names.escape(entry.value)!r} is not a language tag",
                          "en, de-at, pt-br")
    return entry.value.lower()


def _maps(section: Section | None, limits: Mapping[str, Entry], *, whole: bool) -> Maps | None:
    if section is None or not section.entries:
        return None
    return _made(limits, [source_of(each, whole=whole) for each in section.entries.values()])


def _made(limits: Mapping[str, Entry], sources: Sequence[Source]) -> Maps:
    return Maps(sources, _timeout_s(limits), float(_number(limits, "map_ttl_s", 60, 1, 86400)),
                _number(limits, "map_lookups_max", 20, 1, 1000))


def _timeout_s(limits: Mapping[str, Entry]) -> float:
    return float(_number(limits, "map_timeout_s", 10, 1, 300))


def _relayed(local: Section, domains: tuple[str, ...]) -> frozenset[str]:
    """Domains of others that mail is taken for. One that is local, too, would never be relayed."""
    found = frozenset(_words(local, "relayed", ()))
    both = sorted(found.intersection(domains))
    if both:
        raise local.entries["relayed"].error(
            f"{names.escape(both[0])} is in domains, too: its mail stays here",
            "domains of other hosts")
    return found


def _check_postmaster(routes: Routes, local: Section, aliases: Section) -> None:
    """Mail for postmaster must arrive (RFC 5321 section 4.5.1), in every domain of ours."""
    for domain in routes.domains:
        found, failures = routes.resolve(f"{POSTMASTER}@{domain}")
        if failures or not found:
            reason = failures[0].reason if failures else "it leads nowhere"
            at = aliases if aliases.entries else local
            raise at.error(f"mail for {POSTMASTER}@{domain} cannot be delivered: {reason}",
                           "an alias that leads to an address, or none")


def _literals(local: Section, default: frozenset[str]) -> frozenset[str]:
    entry = local.entries.get("literals")
    if entry is None:
        return default
    try:
        return frozenset(str(ipaddress.ip_address(word))
                         for word in entry.value.replace(",", " ").split())
    except ValueError as error:
        raise entry.error(str(error), "addresses of this host, or nothing") from error


def _listed(local: Section, words: tuple[str, ...]) -> frozenset[str]:
    """The users in the files that `users` names: one a line, what follows a colon is not read (a
    passwd file will do), '#' begins a comment."""
    found: set[str] = set()
    entry = local.entries.get("users")
    for word in words:
        if ":" not in word or word == _SYSTEM or entry is None:
            continue
        path = Path(word.removeprefix(_FILE))
        if not word.startswith(_FILE) or not path.is_absolute():
            raise entry.error(f"{names.escape(word)!r} is not a source of users",
                              f"{_FILE}/path or {_SYSTEM}")
        try:
            if path.stat().st_size > _USER_BYTES_MAX:
                raise entry.error(f"{path} is too large", "a file with a user a line")
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise entry.error(f"{path} cannot be read: {error}", "a file with a user a line"
                              ) from error
        users = (line.partition("#")[0].partition(":")[0].strip().lower() for line in lines)
        found.update(user for user in users if user)
    return frozenset(found)


def _peer(entry: Entry, pipes: Mapping[str, Pipe]) -> Peer:
    channel, colon, rest = entry.value.partition(":")
    if channel == "pipe" and colon:
        if rest not in pipes:
            raise entry.error(f"there is no {names.escape(rest)!r} in [pipes]", ", ".join(pipes))
        return Peer(rest, channel=channel)
    if channel == "lmtp" and rest.startswith("/"):
        return Peer(rest, channel=channel)
    peer = peer_of(rest if channel == "lmtp" and colon else entry.value)
    if peer is None or (channel == "lmtp" and colon and not peer.port):
        shown = names.escape(entry.value)
        raise entry.error(f"{shown!r} is not a peer", "host, host:port, [::1]:port, lmtp:/socket, "
                          "lmtp:host:port or pipe:name")
    return replace(peer, channel=channel) if channel == "lmtp" and colon else peer


def _pipe(entry: Entry) -> tuple[str, Pipe]:
    allowed = "user /path/of/command words"
    if _PIPE_NAME.fullmatch(entry.key) is None:
        raise entry.error("a wrong name", allowed)
    return entry.key, command_of(entry, entry.value, allowed)


def _delimiter(local: Section) -> str:
    entry = local.entries.get("delimiter")
    if entry is None or entry.value in ("", *_DELIMITERS):
        return entry.value if entry is not None else ""
    raise entry.error("not a delimiter", f"one of {' '.join(_DELIMITERS)}, or nothing")


def _tls_rule(entry: Entry) -> TlsRule:
    level, *hosts = entry.value.lower().replace(",", " ").split() or [""]
    if level not in TLS_LEVELS or (hosts and level not in ("verify", "secure")) or (
            not all(map(_TLS_HOST.fullmatch, hosts))):
        raise entry.error("not a TLS rule", f"{', '.join(TLS_LEVELS)}; patterns of names "
                          "after verify and secure")
    return TlsRule(level, tuple(hosts))


def _words(section: Section, key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    if key not in section.entries:
        return default
    listed = section.entries[key].value.replace(",", " ").split()
    words = tuple(word if word.startswith(_FILE) else word.lower() for word in listed)
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
            raise entry.error(f"{names.escape(address)!r} is not an address: "
                              f"{problem or 'a space'}", "one or more addresses or names, "
                              "separated by commas")
    if not members:
        raise entry.error("an alias without members", "one or more addresses or names")
    return entry.key.lower(), members


def _pattern(entry: Entry) -> str:
    if entry.key != DEFAULT and (DEFAULT in entry.key or " " in entry.key):
        raise entry.error("neither a domain nor an address", "user@domain, domain, .domain or *")
    return entry.key.lower()


def _limit(entry: Entry) -> PeerLimit:
    """`processes`, `processes messages/time` or `- messages/time`."""
    found = _LIMIT.fullmatch(" ".join(entry.value.split()))
    counts, messages, times, unit = found.groups() if found is not None else ("", "", "", "")
    processes = int(counts) if counts and counts != "-" else 0
    seconds = _SECONDS[unit] * int(times or 1) / (int(messages) or -1) if messages else 0.0
    if (found is None or processes > PROCESSES_MAX or (counts != "-" and not processes)
            or (counts == "-" and not messages) or (messages and seconds <= 0)):
        raise entry.error("no limit", f"processes (1 to {PROCESSES_MAX}) or -, then messages in a "
                          "time: 2, 2 30/min, - 100/h, 1 1/5s")
    return PeerLimit(processes, seconds)


def _sender(entry: Entry) -> str:
    return entry.key if entry.key == NOBODY else _pattern(entry)


def _queue(entry: Entry) -> str:
    try:
        return names.check_queue_name(entry.value)
    except BadName as error:
        raise entry.error("not a queue name", names.QUEUE_RULE) from error


def _number(entries: Mapping[str, Entry], key: str, default: int, low: int, high: int) -> int:
    return entries[key].integer(low, high) if key in entries else default
