"""Where a transaction meets the filter before the queue (omq.services.mail.smtp_filter).

Rules:
1. A client has its 250 after the filter's, and a filter that gives the mail back before it answers,
   as it should, answers after our durable put: nothing is acknowledged that is nowhere.
2. What comes back is known by the id in the Received field that it went out with, while its client
   waits: it keeps id, client, rank and the DSN requests of the sender. When a filter makes several
   messages of one, the first has that id, all have it as `mail.id`.
   What is not known again (a note that the
   filter itself writes, a text whose client was told to come back meanwhile) is taken as it is.
3. What the filter gives back at a port that asks the filter would go round without end: 554.
4. The return port is for clients of `smtp_relay_networks`; it asks for neither TLS nor names.

Crash argument: killed before the filter's 250 reached us, the client has none and sends again; the
first may be on the queue (RFC 1047).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from omq.base import events
from omq.base.event_log import WARNING
from omq.services.mail import mail_message as mail
from omq.services.mail.dsn import PROPERTIES, dsn_requests_of, properties_of, sender_parameters
from omq.services.mail.smtp_client import Mail
from omq.services.mail.smtp_filter import InFilter
from omq.services.mail.smtp_handler import Answer, Listener, Transaction
from omq.services.mail.smtp_intake import BARE_NEWLINE, whole_lines
from omq.services.mail.smtp_storing import StoringCommands
from omq.services.mail.smtp_trace import fit

_OUR_ID: Final = re.compile(r" \(omq\) with [A-Z0-9]+ id ([0-9a-f]{48})\b")
_RECEIVED: Final = frozenset((b"received",))
_CIRCLE: Final = "554 5.4.6 the content filter gave this back where it came from"


class FilteringCommands(StoringCommands):
    """A session at a port that asks the filter, or at the one where it gives back."""

    _back: InFilter | None = None  # what this transaction gives back

    def admit_filter(self) -> str:
        """Why there is no session at the return port; empty: there is."""
        way = self._handler.filter
        if not self._own:
            return "421 4.7.0 this port is not for you"
        if way.sessions >= way.sessions_max:
            return "421 4.3.2 too many sessions, try again later"
        way.sessions += 1
        return ""

    async def _store(self, body: bytes) -> Answer:
        given, policy = self._mail, self._handler.policy
        assert given is not None
        if self._listener is Listener.RETURNED:
            return await self._take_back(given, body)
        if policy.filter is None:
            return await super()._store(body)
        if next(self._known(given, body), None) is not None:
            return self.not_taken(_CIRCLE)
        if self.settings.smtp_bare_newline == "refuse" and not whole_lines(body):
            return self.not_taken(BARE_NEWLINE)
        return await self._ask(given, body)

    async def _ask(self, given: Transaction, body: bytes) -> Answer:
        handler, way = self._handler, self._handler.filter
        peer = handler.policy.filter
        assert peer is not None
        told = properties_of(given.parameters, given.dsn_requests)
        dsn_requests = dsn_requests_of(told)
        who = f", sasl_username={self._user}" if self._user else ""
        going = InFilter(given.mail_id, self._peer, self._helo, self._client() + who,
                         self._ranked, told)
        way.waiting[given.mail_id] = going
        try:
            verdict = await way.ask(peer, Mail(
                given.sender, tuple(given.recipients), body, given.utf8,
                sender_parameters(told),
                {each: wish.parameters() for each, wish in dsn_requests.items()},
                whole=True), self.settings)
        finally:
            del way.waiting[given.mail_id]
        if verdict.broken:
            handler.rated.event(events.SMTP_FILTER_FAILED, WARNING, str(peer), filter=str(peer),
                                reason=verdict.broken, message_id=given.mail_id)
        if verdict.refusal:
            return self.not_taken(verdict.refusal)
        self._mail = None
        if not going.returned:
            handler.log.event(events.SMTP_FILTER_KEPT, WARNING, filter=str(peer),
                              message_id=given.mail_id, peer=self._peer)
            handler.mail_log.write([("smtpd", f"{given.mail_id}: client={going.client}, "
                                              "taken by the content filter, not given back")])
        return Answer(f"250 2.0.0 OK {given.mail_id}")

    async def _take_back(self, given: Transaction, body: bytes) -> Answer:
        self._back = back = next(self._known(given, body), None)
        first = back is not None and not back.returned
        if back is not None:
            back.returned += 1
        if back is not None and first:
            head, text = body[: given.head_bytes], body[given.head_bytes :]
            body = head.replace(given.mail_id.encode(), back.mail_id.encode()) + text
            given.mail_id = back.mail_id
        try:
            answer = await super()._store(body)
            if back is not None and not answer.reply.startswith("250"):
                back.returned -= 1
            return answer
        finally:
            self._back = None

    def _known(self, given: Transaction, body: bytes) -> Iterator[InFilter]:
        """The mail in the filter that this text was."""
        waiting = self._handler.filter.waiting
        text = body[given.head_bytes :]
        fields = mail.header_fields(text, self.settings.mail_header_scan_bytes)
        for _, value in mail.field_values(text, _RECEIVED, fields):
            found = _OUR_ID.search(value)
            if found is not None and found[1] in waiting:
                yield waiting[found[1]]

    @property
    def _ranked(self) -> bool:
        if self._listener is Listener.RETURNED:
            return self.settings.smtp_stranger_priority if self._back is None else self._back.ranked
        return super()._ranked

    def _client(self) -> str:
        return self._back.client if self._back is not None else super()._client()

    def _properties(self, given: Transaction, body: bytes) -> dict[str, str]:
        found, back = super()._properties(given, body), self._back
        if back is None:
            return found
        if not PROPERTIES & set(found):  # a filter without the DSN extension lost them
            found |= back.told
        return found | {mail.ID: back.mail_id, mail.PEER: back.peer} | (
            {mail.HELO: fit(back.helo)} if back.helo else {})
