"""As whom a user who has logged in may send: section [senders] of routes.conf, and the addresses
that are his own.

    login or * = addresses, @domains, *

An address is a user's own if mail for it comes into his mailbox here, by name, by domain or by an
alias, or if it is his login itself. Others need a line; '*' as the key is for every login, '*' as
the value is for any sender. The null sender, of reports and receipts, is everybody's. Postfix has
the same as smtpd_sender_login_maps with reject_authenticated_sender_login_mismatch. The fields of
the text are not looked at. Where [senders] and the user's own addresses do not have it, the maps of
[sender_maps] are asked for the login.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from omq.base import names
from omq.base.config_file import Entry
from omq.services.mail.mail_message import address_problem, split_address
from omq.services.mail.routes import Routes
from omq.services.mail.smtp_address import plain_local

ANY: Final = "*"


def senders_of(entries: Iterable[Entry]) -> dict[str, frozenset[str]]:
    """The section, checked. ConfigError."""
    return dict(map(_line, entries))


def _line(entry: Entry) -> tuple[str, frozenset[str]]:
    words = [each.strip() for each in entry.value.split(",") if each.strip()]
    for word in words:
        domain = word[1:] if word[0] == "@" else ""
        if word != ANY and not domain and (
                "@" not in word or " " in word or address_problem(word, smtputf8=True)):
            raise entry.error(f"{names.escape(word)!r} is not a sender",
                              "addresses, @domains or *, separated by commas")
    if not words:
        raise entry.error("no sender to send as", "addresses, @domains or *")
    return entry.key.lower(), frozenset(_plain(word) for word in words)


def _plain(address: str) -> str:
    local, domain = split_address(address)
    return f"{plain_local(local).lower()}@{domain}" if domain else address


def may_send_as(routes: Routes, login: str, sender: str) -> bool:
    """Whether this user may have this sender in the envelope. MapMissing, MapFailed."""
    if not sender:
        return True
    plain, domain = _plain(routes.qualified(sender)), split_address(sender)[1]
    for key in (login.lower(), ANY):
        listed = routes.senders.get(key, frozenset())
        if not listed.isdisjoint((ANY, plain, f"@{domain}")):
            return True
    if plain == _plain(routes.qualified(login)):
        return True
    maps = routes.recipient_maps
    resolve = partial(routes.resolve, look=maps.known) if maps else routes.resolve
    own = {place.key for place in resolve(login)[0] if place.queue == names.LOCAL}
    if routes.accepts(sender) and any(place.key in own for place in resolve(sender)[0]):
        return True
    mapped = routes.sender_maps.known(login.lower()) if routes.sender_maps else None
    return not {_plain(each) for each in mapped or ()}.isdisjoint((ANY, plain, f"@{domain}"))
