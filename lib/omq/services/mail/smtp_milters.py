"""Where a transaction meets the milters (smtp_milters): after our own checks, before the reply.

Rules:
1. MAIL and RCPT are answered when all milters have answered; a milter that is asked about MAIL was
   told the client and its greeting just before. The text is shown when it is whole: DATA, header,
   body and the end in one go.
2. They are asked in their order, each about the mail as those before it left it. The first refusal
   counts, in the filter's own words; a refused recipient is that recipient's matter.
3. One that is away, silent or wrong is asked nothing more about this mail, and changes nothing;
   `smtp_milter_default` says what happens to the mail: it is accepted, refused for now, or for
   good. Event 1519 tells of it, at a bounded rate.
4. A mail that is quarantined is taken, and put on DEFER, which no service reads, with the reason in
   its property mail.held; an operator moves it to ROUTER. A mail that is discarded, or whose
   recipients were all taken away, is taken and gone; mail.log says so.
5. Before that, Authentication-Results fields with our name go that a stranger wrote.

Crash argument: nothing of it is kept; killed before the durable put, the client has no 250.

Invariants of a change (`apply`): 1. a mail is changed by a filter's whole answer or not at all:
`Changed` is a new value; 2. what is not named stays byte for byte; 3. it is bounded:
milter_packets.CHANGES_MAX, the size of a message. Errors: MilterWrong.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from omq.base import clock, events
from omq.base.event_log import WARNING
from omq.services.mail import mail_message as mail
from omq.services.mail import milter_packets as packets
from omq.services.mail.mail_message import HELD
from omq.services.mail.map_errors import MapFailed, MapMissing
from omq.services.mail.milter_client import Kind, Milter, MilterFailed, Verdict
from omq.services.mail.milter_packets import Change, MilterWrong, Steps
from omq.services.mail.smtp_address import path_of
from omq.services.mail.smtp_data import NO_MEMORY
from omq.services.mail.smtp_handler import Answer, Listener, Transaction, address_problem
from omq.services.mail.smtp_policy_asking import GONE
from omq.services.mail.smtp_verifying import VerifyingCommands

_FIELD: Final = b"authentication-results"
_COMMENT: Final = re.compile(r"\((?:[^()\\]|\\.)*\)")
_SERVER: Final = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"(]+))')


def without_ours(text: bytes, hostname: str, scan_bytes: int) -> bytes:
    """The text without Authentication-Results fields of `hostname`; the very same object when there
    are none. Whoever reads mail here believes such a field by its first word, the name of the host
    that checked (RFC 8601 section 5): a stranger could write it into his own mail. A field whose
    name cannot be made out is kept, for nobody takes it for ours."""
    if _FIELD not in text[:scan_bytes].lower():
        return text
    cuts = [(start, end) for name, start, end in mail.header_fields(text, scan_bytes)
            if name == _FIELD and _server(text[start:end]) == hostname.lower().rstrip(".")]
    for start, end in reversed(cuts):
        text = text[:start] + text[end:]
    return text


def _server(field: bytes) -> str:
    value = " ".join(field.partition(b":")[2].decode("utf-8", "replace").split())
    before = ""
    while value != before:  # comments may lie in one another; each turn removes the inner ones
        before, value = value, _COMMENT.sub(" ", value)
    found = _SERVER.match(value)
    if found is None:
        return ""
    name = re.sub(r"\\(.)", r"\1", found[1]) if found[1] is not None else found[2]
    return name.lower().rstrip(".")


_DEFAULTS: Final = {"tempfail": "451 4.7.1 a content filter is away, try again later",
                    "reject": "550 5.7.1 a content filter is away", "accept": ""}
_TEXT_TIMES: Final = 10
"""All of a text's way through a filter has so many times what one of its answers has."""


class MilterCommands(VerifyingCommands):
    """A session at a port whose mail is shown to milters."""

    _milters: tuple[Milter, ...] = ()  # of this transaction, those that are still asked

    def _asks(self) -> bool:
        return bool(self.settings.smtp_milters) and self._listener is not Listener.RETURNED

    def _on_mail(self, argument: str) -> Answer | str:
        found = super()._on_mail(argument)
        if not (self._asks() and isinstance(found, Answer)):
            return found
        return Answer("", work=partial(self.sure, self._begin, found))

    def _on_rcpt(self, argument: str) -> Answer | str:
        found = super()._on_rcpt(argument)
        if not (self._milters and isinstance(found, Answer)):
            return found
        return Answer("", work=partial(self.sure, self._recipient, found))

    def _forget(self) -> None:
        milters, self._milters = self._milters, ()
        for each in milters:
            each.close()
        super()._forget()

    async def _begin(self, taken: Answer) -> Answer:
        """Client, greeting and sender."""
        given, settings = self._mail, self.settings
        assert given is not None
        given.mail_id = given.mail_id or uuid.uuid4().hex + f"{clock.wall_ns():016x}"
        parameters = [f"{name}={value}" if value else name
                      for name, value in given.parameters.items()]
        stages = (
            (packets.CONNECT, packets.connect(self._peer), self._macros_of_client()),
            (packets.HELO, packets.packet(packets.HELO, packets.strings([self._helo])),
             self._macros_of_tls()),
            (packets.MAIL, packets.packet(packets.MAIL, packets.strings(
                [f"<{given.sender}>", *parameters])), self._macros_of_mail(given)))
        self._milters = tuple(
            Milter(place, settings.smtp_milter_timeout_s, settings.smtp_message_bytes_max)
            for place in settings.smtp_milters.split())
        for milter in self._milters:
            if self._mail is not given:
                return taken  # its client has gone meanwhile
            try:
                await milter.open()
                found = Verdict(Kind.CONTINUE)
                for command, packet, macros in stages:
                    found = await milter.stage(command, packet, macros)
                    if found.kind is not Kind.CONTINUE:
                        break
            except MilterFailed as error:
                found = self._failed(given, milter, error)
            if found.kind is Kind.REFUSE:
                reply = self._no("MAIL", found.reply, given.sender)
                self._forget()
                return self.refused(reply)
            if found.kind is Kind.DISCARD:
                given.held = GONE
        return taken

    async def _recipient(self, taken: Answer) -> Answer:
        if taken.work is not None:  # policy services come first
            taken = await taken.work()
            if not taken.reply.startswith("250"):
                return taken
        given = self._mail
        assert given is not None
        address = given.recipients[-1]
        for milter in self._milters:
            try:
                found = await milter.stage(
                    packets.RCPT, packets.packet(packets.RCPT, packets.strings([f"<{address}>"])),
                    {"rcpt_addr": address, "rcpt_host": address.rpartition("@")[2],
                     "rcpt_mailer": "omq", "i": given.mail_id})
            except MilterFailed as error:
                found = self._failed(given, milter, error)
            if found.kind is Kind.REFUSE:
                given.recipients.pop()
                given.recipients_bytes -= len(address.encode()) + 1
                return self.refused(self._no("RCPT", found.reply, address))
            if found.kind is Kind.DISCARD:
                given.held = GONE
        return taken

    async def _store(self, body: bytes) -> Answer:
        given = self._mail
        assert given is not None
        head, text = body[: given.head_bytes], body[given.head_bytes :]
        if not self._own and self._listener is not Listener.RETURNED:
            text = without_ours(text, self._handler.policy.hostname,
                                self.settings.mail_header_scan_bytes)
        text = "".join(f"{each}\r\n" for each in reversed(given.prepended)).encode() + text
        if given.redirected or given.added:
            to = [given.redirected] if given.redirected else [*given.recipients, *given.added]
            self._envelope(given, Changed(given.sender, tuple(dict.fromkeys(to)), b""))
        if not self._milters:
            return self._discarded(given) if given.held == GONE else (
                await super()._store(head + text))
        memory, room = self._handler.memory, 2 * len(text)  # their copy, and what they make of it
        if not memory.take(room):
            return self.not_taken(NO_MEMORY)
        try:
            found = await self._shown(given, text)
        finally:
            memory.give(room)
        if isinstance(found, str):
            return self.not_taken(found)
        if given.held == GONE or not found.recipients:
            return self._discarded(given)
        self._envelope(given, found)
        answer = await super()._store(head + found.text)
        for each in self._milters:
            each.close()
        self._milters = ()
        return answer

    def _discarded(self, given: Transaction) -> Answer:
        """It is taken, and gone."""
        self._handler.mail_log.write([(
            "smtpd", f"{given.mail_id}: client={self._client()}, discarded by a filter")])
        self._forget()
        return Answer(f"250 2.0.0 OK {given.mail_id}")

    async def _shown(self, given: Transaction, text: bytes) -> Changed | str:
        """The mail as the milters leave it, or the reply of the one that refuses it."""
        settings = self.settings
        mail = Changed(given.sender, tuple(given.recipients), text)
        for milter in self._milters:
            try:
                async with asyncio.timeout(_TEXT_TIMES * settings.smtp_milter_timeout_s):
                    found = await milter.text(mail.text, {"i": given.mail_id},
                                              settings.mail_header_scan_bytes)
                mail = apply(mail, found.changes, milter.steps, utf8=given.utf8,
                             scan_bytes=settings.mail_header_scan_bytes)
            except (MilterFailed, MilterWrong, TimeoutError) as error:
                found = self._failed(given, milter, error)
            if found.kind is Kind.REFUSE:
                return found.reply
            if found.kind is Kind.DISCARD:
                given.held = GONE
                return mail
            if len(mail.text) > settings.smtp_message_bytes_max:
                return "552 5.3.4 a filter made the message too long"
        return mail

    def _envelope(self, given: Transaction, found: Changed) -> None:
        """The envelope as the milters want it: they may name whom they like."""
        given.sender, given.held = found.sender, found.held or given.held
        given.recipients[:] = found.recipients
        for each in found.recipients:
            if each not in given.resolved:
                with suppress(MapMissing, MapFailed):  # then ROUTER's reader asks the maps
                    given.resolved[each] = self._handler.policy.resolved(each)[1]

    def _failed(self, given: Transaction, milter: Milter, error: Exception) -> Verdict:
        """What happens to the mail."""
        milter.close()
        self._milters = tuple(each for each in self._milters if each is not milter)
        self._handler.rated.event(events.SMTP_MILTER_FAILED, WARNING, milter.place,
                                  milter=milter.place, reason=str(error) or "it is too slow",
                                  message_id=given.mail_id)
        reply = _DEFAULTS[self.settings.smtp_milter_default]
        return Verdict(Kind.REFUSE, reply) if reply else Verdict(Kind.CONTINUE)

    def _properties(self, given: Transaction, body: bytes) -> dict[str, str]:
        found = super()._properties(given, body)
        return found | {HELD: given.held} if given.held else found

    def _macros_of_client(self) -> dict[str, str]:
        return {"j": self._handler.policy.hostname, "daemon_name": self._listener.name.lower(),
                "client_addr": self._peer, "client_name": f"[{self._peer}]", "v": "omq"}

    def _macros_of_tls(self) -> dict[str, str]:
        how = str(self._secured).split() if self._secured else []
        return {"tls_version": how[0] if how else "", "cipher": how[-1] if how else ""}

    def _macros_of_mail(self, given: Transaction) -> dict[str, str]:
        return {"i": given.mail_id, "mail_addr": given.sender, "mail_mailer": "omq",
                "mail_host": given.sender.rpartition("@")[2], "auth_authen": self._user,
                "auth_type": "PLAIN" if self._user else ""}


@dataclass(frozen=True, slots=True)
class Changed:
    """A mail as filters left it. `text`: without our Received field; `held`: why it is set aside,
    empty: it is not."""

    sender: str
    recipients: tuple[str, ...]
    text: bytes
    held: str = ""


def apply(given: Changed, changes: Sequence[Change], steps: Steps, *, scan_bytes: int, utf8: bool
          ) -> Changed:
    """The mail after these changes, in their order. MilterWrong.

    Counting is libmilter's: `change` means the n-th field of that name (from 1; beyond the last it
    is added, an empty value removes it), `insert` a place among all fields (0: before the first).
    """
    found = given
    if any(each.command in _HEADER for each in changes):
        found = replace(found, text=_with_header(found.text, changes, steps, scan_bytes))
    body = [each.value for each in changes if each.command == packets.REPLACE_BODY]
    if body:
        end = mail.header_end(found.text, scan_bytes)
        found = replace(found, text=found.text[:end] + b"\r\n" + b"".join(body))
    for each in changes:
        found = _envelope(found, each, utf8=utf8)
    return found


_HEADER: Final = frozenset((packets.ADD_HEADER, packets.INSERT_HEADER, packets.CHANGE_HEADER))


def _with_header(text: bytes, changes: Iterable[Change], steps: Steps, scan_bytes: int) -> bytes:
    parts = list(mail.header_fields(text, scan_bytes))
    end = max((at for _, _, at in parts), default=0)
    fields = [(name, text[start:stop]) for name, start, stop in parts]
    rest = text[end:]
    if not rest.startswith((b"\r\n", b"\n")):  # it had no header: what is added must not join it
        rest = b"\r\n" + rest
    for each in changes:
        if each.command not in _HEADER:
            continue
        name = each.name.lower()
        made = (name, packets.field(each.name, each.value, steps))
        if each.command == packets.ADD_HEADER:
            fields.append(made)
        elif each.command == packets.INSERT_HEADER:
            fields.insert(min(each.index, len(fields)), made)
        else:
            places = [at for at, (known, _) in enumerate(fields) if known == name]
            if each.index > len(places) or not places:
                fields += [made] if each.value else []
            elif each.value:
                fields[places[max(each.index, 1) - 1]] = made
            else:
                del fields[places[max(each.index, 1) - 1]]
    return b"".join(field for _, field in fields) + rest


def _envelope(given: Changed, change: Change, *, utf8: bool) -> Changed:
    if change.command == packets.QUARANTINE:
        return replace(given, held=mail.one_line(change.value.decode("utf-8", "replace"))
                       or "by a filter")
    if change.command == packets.CHANGE_FROM:
        return replace(given, sender=_address(change.value, utf8=utf8, empty=True))
    if change.command in (packets.ADD_RCPT, packets.ADD_RCPT_ARGS):
        address = _address(change.value, utf8=utf8)
        return replace(given, recipients=tuple(dict.fromkeys((*given.recipients, address))))
    if change.command == packets.DELETE_RCPT:
        address = _address(change.value, utf8=True)
        return replace(given, recipients=tuple(each for each in given.recipients
                                               if each.lower() != address.lower()))
    return given


def _address(value: bytes, *, utf8: bool, empty: bool = False) -> str:
    text = value.decode("utf-8", "replace").strip()
    path = path_of(text if text.startswith("<") else f"<{text}>")
    address = path[0] if path else text
    if not address and empty:
        return ""
    problem = address_problem(address, utf8=utf8)
    if path is None or problem:
        raise MilterWrong(f"it names something that is not an address: {problem}")
    return address
