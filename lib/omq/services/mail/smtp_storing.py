"""The text of a transaction becomes a message: 250 only after the durable put.

What comes at a port of users gets the fields Date and Message-ID if they are missing (RFC 6409
section 8).
"""

from __future__ import annotations

from functools import partial

from omq.base import clock, events, names
from omq.base.errors import OmqError
from omq.base.event_log import ERROR, WARNING
from omq.services.mail import mail_message as mail
from omq.services.mail.dsn import properties_of
from omq.services.mail.smtp_chunk import Chunk
from omq.services.mail.smtp_data import Text
from omq.services.mail.smtp_envelope import EnvelopeCommands
from omq.services.mail.smtp_handler import Accepted, Answer, Transaction
from omq.services.mail.smtp_intake import Submission
from omq.services.mail.smtp_refusals import reply_to
from omq.services.mail.smtp_trace import fit, submitted


class StoringCommands(EnvelopeCommands):
    """The end of a transaction."""

    def chunk_ended(self, chunk: Chunk) -> Answer:
        """What a chunk gets that has come."""
        text = chunk.text
        if text is None:
            return self.refused(chunk.refusal)
        if text.refusal:
            return self.not_taken(text.refusal)
        if chunk.last:
            return Answer("", work=partial(self.stored, text))
        return Answer(f"250 2.0.0 {text.received} bytes so far")

    async def stored(self, text: Text) -> Answer:
        """Put the message of this transaction, which is over then."""
        given = self._mail
        assert given is not None
        try:
            body = text.take()
            if self._listener.of_users:
                body = submitted(body, given.head_bytes, self._handler.policy.hostname,
                                 given.mail_id, self.settings.mail_header_scan_bytes)
            return await self._store(body)
        finally:
            text.drop()

    async def _store(self, body: bytes) -> Answer:
        """`body`: the Received field and the text."""
        handler, given = self._handler, self._mail
        assert given is not None
        mail_id = given.mail_id
        submission = Submission(
            body, mail_id, self._properties(given, body),
            ranked=self._ranked,
            scan_bytes=self.settings.mail_header_scan_bytes,
            bare_newlines=self.settings.smtp_bare_newline == "accept",
            routes=(handler.policy.routes if self.settings.smtp_straight and not given.held
                    else None),
            resolved=given.resolved, queue=names.DEFER if given.held else names.ROUTER)
        try:
            stored = await handler.intake.put(submission)
        except OmqError as error:
            handler.log.event(events.SMTP_REFUSED, WARNING, peer=self._peer, reason=str(error),
                              message_id=mail_id)
            return self.not_taken(reply_to(error))
        except Exception as error:
            handler.log.event(events.BUG, ERROR, reason=f"{type(error).__name__}: {error}")
            return self.not_taken("451 4.3.0 local error, try again later")
        if stored.refusal:
            return self.not_taken(stored.refusal)
        self._mail = None
        who = f", sasl_username={self._user}" if self._user else ""
        handler.accepted(Accepted(mail_id, self._peer, self._client() + who, stored.message_id,
                                  given.sender, stored.size, len(given.recipients)))
        return Answer(f"250 2.0.0 OK {mail_id}")

    @property
    def _ranked(self) -> bool:
        """Whether the text's own fields say how urgent it is."""
        return self._may_relay or self.settings.smtp_stranger_priority

    def _properties(self, given: Transaction, body: bytes) -> dict[str, str]:
        envelope = mail.Envelope(
            given.sender, tuple(given.recipients), given.eight_bit or not body.isascii(),
            given.utf8, self._peer, fit(self._helo))
        told = properties_of(given.parameters, given.dsn_requests)
        optional = mail.tls_is_optional(body, self.settings.mail_header_scan_bytes)
        return (envelope.properties() | told | mail.tracing(given.mail_id, clock.wall_ns())
                | ({mail.TLS: mail.TLS_OPTIONAL} if optional else {}))
