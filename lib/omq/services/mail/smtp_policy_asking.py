"""Where a recipient meets the policy services (smtp_policy_services): after our own checks.

Rules:
1. They are asked in their order about each recipient that we would take. OK ends the asking, DUNNO
   lets the next one speak; the first refusal counts, but DEFER_IF_PERMIT only when no later one
   refuses for good.
2. `smtp_policy_for`: clients that may not send to everybody, as strangers do, or all.
3. One that is away, silent or wrong refuses for now (451), or is passed over: smtp_policy_default.
   Event 1520, at a bounded rate.
4. PREPEND's field precedes the text, once a mail however many recipients brought it; HOLD,
   DISCARD, REDIRECT and BCC concern the whole mail, as in Postfix.

Each session waits for its own answer alone.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from omq.base import clock, events
from omq.base.event_log import ERROR, WARNING
from omq.services.daemon.daemon import last_trace
from omq.services.mail import policy_service
from omq.services.mail.policy_service import Action, PolicyFailed
from omq.services.mail.smtp_filtering import FilteringCommands
from omq.services.mail.smtp_handler import Answer, Listener, Transaction, address_problem

GONE: Final = "discarded"
_AWAY: Final = "451 4.3.5 a policy service is away, try again later"
_FIELD: Final = re.compile(r"[!-9;-~]+:[ \t]*[ -~\u0080-\U0010ffff]*")
_ADDED_MAX: Final = 100


class AskingCommands(FilteringCommands):
    """A session whose recipients policy services are asked about."""

    def _on_rcpt(self, argument: str) -> Answer | str:
        found = super()._on_rcpt(argument)
        settings = self.settings
        if (not settings.smtp_policy_services or not isinstance(found, Answer)
                or self._listener is Listener.RETURNED
                or (self._may_relay and settings.smtp_policy_for == "strangers")):
            return found
        return Answer("", work=partial(self.sure, self._ask_policies, found))

    async def sure(self, work: Callable[[Answer], Awaitable[Answer]], taken: Answer) -> Answer:
        """The answer of `work`; an error of ours is logged, and ends the transaction, not the
        session without a word."""
        try:
            return await work(taken)
        except Exception as error:
            self._handler.log.event(events.BUG, ERROR, reason=f"{type(error).__name__}: {error}",
                                    traceback=last_trace())
            self._forget()
            return Answer("451 4.3.0 local error, try again later")

    async def _ask_policies(self, taken: Answer) -> Answer:
        given, settings = self._mail, self.settings
        assert given is not None
        given.mail_id = given.mail_id or uuid.uuid4().hex + f"{clock.wall_ns():016x}"
        address, later = given.recipients[-1], ""
        for place in settings.smtp_policy_services.split():
            try:
                found = await policy_service.ask(place, self._values(given, address),
                                                 settings.smtp_policy_timeout_s)
                self._carry_out(given, found)
            except PolicyFailed as error:
                self._handler.rated.event(events.SMTP_POLICY_FAILED, WARNING, place, policy=place,
                                          reason=str(error))
                if settings.smtp_policy_default == "accept":
                    continue
                found = Action("DEFER", reply=_AWAY)
            if found.word == "DEFER_IF_PERMIT":
                later = later or found.reply
            elif found.reply:
                return self._without(given, address, found.reply)
            elif found.word == "OK":
                break
        return self._without(given, address, later) if later else taken

    def _without(self, given: Transaction, address: str, reply: str) -> Answer:
        given.recipients.pop()
        given.recipients_bytes -= len(address.encode()) + 1
        return self.refused(self._no("RCPT", reply, address))

    def _carry_out(self, given: Transaction, found: Action) -> None:
        """What an action that refuses nothing does to the mail. PolicyFailed."""
        if found.word == "HOLD":
            given.held = given.held or found.text or "by a policy service"
        elif found.word == "DISCARD":
            given.held = GONE
        elif found.word == "PREPEND":
            if _FIELD.fullmatch(found.text) is None:
                raise PolicyFailed("what it wants to prepend is not a header field")
            if found.text not in given.prepended and len(given.prepended) < _ADDED_MAX:
                given.prepended.append(found.text)
        elif found.word in ("REDIRECT", "BCC"):
            address = found.text.strip("<>")
            problem = address_problem(address, utf8=given.utf8)
            if problem:
                raise PolicyFailed(f"it names something that is not an address: {problem}")
            given.redirected = address if found.word == "REDIRECT" else given.redirected
            if found.word == "BCC" and address not in given.added and (
                    len(given.added) < _ADDED_MAX):
                given.added.append(address)
        elif found.word in ("INFO", "WARN"):
            self._handler.mail_log.write([(
                "smtpd", f"{given.mail_id}: {found.word.lower()}: {found.text}")])

    def _values(self, given: Transaction, address: str) -> dict[str, str]:
        """What Postfix says, as far as it is known here: names of clients are not looked up."""
        secured = str(self._secured).split() if self._secured else []
        return {
            "protocol_state": "RCPT", "protocol_name": "ESMTP" if self._extended else "SMTP",
            "helo_name": self._helo, "queue_id": "", "sender": given.sender, "recipient": address,
            "recipient_count": "0", "client_address": self._peer, "client_name": "unknown",
            "reverse_client_name": "unknown", "instance": given.mail_id,
            "sasl_method": "PLAIN" if self._user else "", "sasl_username": self._user,
            "sasl_sender": "", "size": given.parameters.get("SIZE") or "0", "ccert_subject": "",
            "ccert_issuer": "", "ccert_fingerprint": "",
            "encryption_protocol": secured[0] if secured else "",
            "encryption_cipher": secured[-1] if secured else "", "encryption_keysize": "0",
            "etrn_domain": "", "stress": "", "policy_context": ""}
