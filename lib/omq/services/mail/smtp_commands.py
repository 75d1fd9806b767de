"""The commands of one SMTP session: the greeting, STARTTLS, AUTH, and what each other one means.

`Handler` is what all sessions of a server share. Every reply has an enhanced status (RFC 3463, RFC
2034), but those to a greeting, 334 and 354. Nothing is announced that is not there, or not now:
STARTTLS without a certificate, and AUTH at the port for other hosts, are unknown commands (502).

Rules:
1. After a handshake nothing that was said before counts (RFC 3207 section 4.2).
2. A password is taken over TLS alone (538), checked in a thread, and not at all for a client that
   has had `smtp_client_logins_max` wrong ones (454). What is wrong, name or password, is not said.
3. Where a password cannot be looked at (no memory, no thread) its client gets 454; where any
   other command fails in a way that nobody foresaw, 421. It is event 7206, and nobody waits.
4. An answer to 334 is not a command, whatever it looks like; its length is that of any line.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from omq.base import clock, events
from omq.base.event_log import REPORT, WARNING
from omq.services.mail.sasl import MECHANISMS, Credentials, Exchange, SaslError, decoded, exchange
from omq.services.mail.smtp_clients import Act
from omq.services.mail.smtp_handler import Answer, Listener
from omq.services.mail.smtp_mapping import MappingCommands
from omq.services.mail.smtp_trace import fit
from omq.services.network.tls import Secured

_NO_SERVICE: Final = frozenset(("CONNECT", "GET", "HEAD", "POST", "PUT"))
"""Who says this is not a mail client, but something that was led here (a browser, a proxy)."""


class SmtpCommands(MappingCommands):
    """One session's."""

    _began = False
    _exchange: Exchange | None = None  # of AUTH, under way

    def admit(self, peername: object, source: str) -> str:
        """Why this client has no session now; empty: it has one. It is counted by its `source`."""
        self._peer = str(peername[0]) if isinstance(peername, tuple) and peername else ""
        self._key, handler = source, self._handler
        if self._listener is Listener.RETURNED:  # else clients that wait for it shut it out
            refusal = self.admit_filter()
            self._began = not refusal
            return refusal
        now, places = clock.monotonic_ns(), self._listener.places
        reason = handler.clients.refusal(places, self._key, self.settings, now, own=self._own)
        if reason:
            handler.rated.event(events.SMTP_REFUSED, WARNING, self._key, peer=self._peer,
                                reason=reason)
            return f"421 4.7.0 {reason}, try again later"
        handler.clients.begin(places, self._key, now)
        self._began = True
        return ""

    def greeting(self) -> Answer:
        """The first words."""
        return Answer(f"220 {self._handler.policy.hostname} ESMTP omq")

    def end(self) -> None:
        """The session is over."""
        self._forget()
        if self._began:
            self._began = False
            if self._listener is Listener.RETURNED:
                self._handler.filter.sessions -= 1
            else:
                self._handler.clients.end(self._listener.places, self._key)

    def secured(self, how: Secured) -> None:
        """TLS has begun: all that was said before is forgotten."""
        self._forget()
        self._helo, self._extended, self._secured = "", False, how
        self._handler.mail_log.write([(
            "smtpd", f"Anonymous TLS connection established from {self._client()}: {how}")])

    def not_secured(self, error: Exception) -> None:
        """The handshake failed, and with it the session."""
        self._exceeds(Act.ERROR)
        self._handler.rated.event(events.SMTP_TLS_FAILED, WARNING, self._key, peer=self._peer,
                                  reason=f"{type(error).__name__}: {error}")

    def answer(self, line: bytes) -> Answer:
        """What a command line gets."""
        if self._exchange is not None:
            return self._go_on(line.rstrip(b"\r\n"))
        try:
            words = line.rstrip(b"\r\n").decode("utf-8")
        except UnicodeDecodeError:
            return self.refused("500 5.5.2 the line is not UTF-8")
        verb, _, rest = words.partition(" ")
        command = verb.upper()
        if command in _NO_SERVICE:
            return Answer("421 4.7.0 this is a mail server", close=True)
        method = _COMMANDS.get(command)
        if method is None or not self._has(command):
            return self.refused("502 5.5.1 the command is not known here" if command
                                else "500 5.5.2 a command is missing")
        found = method(self, rest.strip())
        return found if isinstance(found, Answer) else self.refused(found)

    def too_long(self, reply: str) -> Answer:
        """The answer to a line that is too long, which also ends AUTH."""
        self._exchange = None
        return self.refused(reply)

    def failed(self, error: Exception) -> Answer:
        """The answer where a command could not be carried out: what the session had done is not
        known, so it ends, and with it the transaction. Its client returns (421)."""
        self._tell_failed("a command", error)
        return Answer("421 4.3.0 an error of this server, try again later", close=True)

    def _tell_failed(self, what: str, error: Exception) -> None:
        self._handler.rated.event(events.SMTP_SESSION_FAILED, WARNING, self._key, peer=self._peer,
                                  reason=f"{what}: {type(error).__name__}: {error}")

    def _has(self, command: str) -> bool:
        if command == "STARTTLS":
            return self._handler.policy.tls is not None
        return command != "AUTH" or self._listener.of_users

    def _on_helo(self, argument: str) -> Answer | str:
        return self._greet(argument, extended=False)

    def _on_ehlo(self, argument: str) -> Answer | str:
        return self._greet(argument, extended=True)

    def _greet(self, argument: str, *, extended: bool) -> Answer | str:
        if not argument:
            return "501 5.5.4 a host name is missing"
        self._forget()
        self._helo, self._extended = argument, extended
        hostname = self._handler.policy.hostname
        if not extended:
            return Answer(f"250 {hostname}")
        offered = [hostname, "PIPELINING", f"SIZE {self.settings.smtp_message_bytes_max}",
                   "8BITMIME", "CHUNKING", "DSN", "ENHANCEDSTATUSCODES", "SMTPUTF8"]
        if self._has("STARTTLS") and self._secured is None:
            offered.append("STARTTLS")
        if self._has("AUTH") and self._secured is not None:
            offered.append(f"AUTH {' '.join(MECHANISMS)}")
        *first, last = offered
        return Answer("\r\n".join([*(f"250-{each}" for each in first), f"250 {last}"]))

    def _on_starttls(self, argument: str) -> Answer | str:
        if argument:
            return "501 5.5.4 STARTTLS has no argument"
        if self._secured is not None:
            return "503 5.5.1 TLS is in use"
        return Answer("220 2.0.0 go on", start_tls=True)

    # AUTH

    def _on_auth(self, argument: str) -> Answer | str:
        mechanism, _, initial = argument.partition(" ")
        if not self._extended:
            return "503 5.5.1 send EHLO first"
        if self._user or self._mail is not None:
            return "503 5.5.1 not again, and not within a mail transaction"
        if self._secured is None:
            return "538 5.7.11 say STARTTLS first"
        if mechanism.upper() not in MECHANISMS:
            return "504 5.5.4 the mechanism is not known here"
        if not self._handler.clients.may_log_in(self._key, self.settings, clock.monotonic_ns()):
            return "454 4.7.0 too many wrong passwords of this client, try again later"
        try:
            self._exchange = exchange(mechanism.upper(), initial.strip())
            return Answer(f"334 {next(self._exchange)}")
        except StopIteration as ended:
            return self._check(ended.value)
        except SaslError as error:
            return self._no_login(str(error), "")

    def _go_on(self, line: bytes) -> Answer:
        assert self._exchange is not None
        try:
            return Answer(f"334 {self._exchange.send(decoded(line))}")
        except StopIteration as ended:
            return self._check(ended.value)
        except SaslError as error:
            return self.refused(self._no_login(str(error), ""))

    def _check(self, given: Credentials) -> Answer:
        self._exchange = None
        return Answer("", work=partial(self._log_in, given))

    async def _log_in(self, given: Credentials) -> Answer:
        handler, users = self._handler, self._handler.policy.users
        # Asked again: many sessions of a client may have come so far at once.
        if users is None or not handler.clients.may_log_in(
                self._key, self.settings, clock.monotonic_ns()):
            return Answer("454 4.7.0 no password is checked now, try again later")
        try:
            known = await asyncio.get_running_loop().run_in_executor(
                handler.checking, users.check, given.name, given.password)
        except Exception as error:  # no guess of the client's: it is not counted as one
            self._tell_failed("AUTH", error)
            return Answer("454 4.7.0 no password can be checked now, try again later")
        if not known:
            return self.refused(self._no_login("535 5.7.8 wrong name or password", given.name))
        self._user = given.name
        handler.log.event(events.SMTP_LOGIN, REPORT, peer=self._peer, user=given.name)
        return Answer("235 2.7.0 welcome")

    def _no_login(self, reply: str, name: str) -> str:
        self._exchange = None
        handler = self._handler
        handler.clients.exceeds(self._key, Act.LOGIN_FAILED, self.settings, clock.monotonic_ns(),
                                own=False)
        handler.rated.event(events.SMTP_LOGIN_FAILED, WARNING, self._key, peer=self._peer,
                            user=fit(name), reason=reply)
        handler.mail_log.write([("smtpd", f"warning: {self._client()}: SASL authentication failed: "
                                          f"{reply}, sasl_username={fit(name)}")])
        return reply

    # what is always the same

    def _on_noop(self, argument: str) -> Answer:
        del argument
        return Answer("250 2.0.0 OK")

    def _on_vrfy(self, argument: str) -> Answer:
        del argument
        return Answer("252 2.1.5 not verified; send mail and it is tried")

    def _on_help(self, argument: str) -> Answer:
        del argument
        return Answer(f"214 2.0.0 commands: {' '.join(filter(self._has, _COMMANDS))}")

    def _on_quit(self, argument: str) -> Answer:
        del argument
        return Answer("221 2.0.0 bye", close=True)


_COMMANDS: Final = {
    "HELO": SmtpCommands._on_helo, "EHLO": SmtpCommands._on_ehlo,
    "STARTTLS": SmtpCommands._on_starttls, "AUTH": SmtpCommands._on_auth,
    "MAIL": SmtpCommands._on_mail, "RCPT": SmtpCommands._on_rcpt, "DATA": SmtpCommands._on_data,
    "BDAT": SmtpCommands._on_bdat,
    "RSET": SmtpCommands._on_rset, "NOOP": SmtpCommands._on_noop, "VRFY": SmtpCommands._on_vrfy,
    "HELP": SmtpCommands._on_help, "QUIT": SmtpCommands._on_quit,
}
