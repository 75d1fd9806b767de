"""The worker of a channel process of unix.out: it hands one mail after the other to SMTP peers.

Connections stay open from one mail to the next, to several peers, until nothing comes for
`unix_connection_idle_s`. Whatever a peer or a network does, each recipient has a result.

Results travel as rows of texts (omq.services.delivery.packet): `row_of`, `result_of`.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from omq.base import events
from omq.base.event_log import WARNING
from omq.services.delivery.worker import PEER, RECIPIENTS, Report
from omq.services.mail.mail_host import mail_hostname
from omq.services.mail.mail_log import mail_log_of
from omq.services.mail.mail_message import one_line, split_address
from omq.services.mail.map_errors import MapFailed
from omq.services.mail.peer_line import Security
from omq.services.mail.rewriting import header_addresses, with_addresses
from omq.services.mail.routes import Peer, peer_named
from omq.services.mail.smtp_client import ClientLimits, Mail, SmtpConnection
from omq.services.mail.smtp_reply import Result, Verdict
from omq.services.mail.tls_policy import UNCOUNTED, LinePolicy, of_row
from omq.services.mail.tls_sessions import TlsSession, TlsSessions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omq.services.mail.rewriting import Rewriting
    from omq.services.readers.service import ServiceContext

SENDER = "sender"
SMTPUTF8 = "smtputf8"
PARAMETERS = "parameters"  # of MAIL
WISHES = "wishes"  # of recipients
ADDRESSES = "addresses"  # of peers whose names were looked up
POLICIES = "policies"  # what lines to peers need, by peer and domain


class SmtpChannel:
    """One process."""

    def __init__(self, context: ServiceContext, security: Security, *, lmtp: bool = False,
                 rewriting: Rewriting | None = None) -> None:
        settings = context.settings
        self._log, self._mail_log = context.log, mail_log_of(context)
        self._security = replace(security, tell=self._tell, note=self._note)
        self._lmtp = lmtp
        self._rewriting, self._scan_bytes = rewriting, settings.mail_header_scan_bytes
        self._sessions = TlsSessions.of(context)
        self._policies: dict[str, LinePolicy] = {}  # by domain, of the mail that is being sent
        self._connections: OrderedDict[Peer, SmtpConnection] = OrderedDict()
        self._connections_max = settings.unix_connections_max
        self._recipients_max = settings.unix_recipients_max
        self._hostname = mail_hostname(settings)
        self._limits = ClientLimits(
            settings.unix_connect_timeout_s, settings.unix_reply_timeout_s,
            settings.unix_data_timeout_s, settings.unix_connection_messages_max)

    def send(self, head: dict[str, Any], body: bytes) -> Report:
        """One mail to one peer, in as many transactions as its recipients need."""
        peer = peer_named(head[PEER])
        assert peer is not None, "the scheduler names peers as str(Peer) does"
        recipients, results = head[RECIPIENTS], list[Result]()
        rows = head.get(POLICIES, {}).get(head[PEER], {})
        self._policies = {domain: of_row(peer.tls, rows.get(domain)) for domain in
                          dict.fromkeys(split_address(each)[1] for each in recipients)}
        tlsa = next((each.tlsa for each in self._policies.values() if each.tlsa), ())
        try:
            sender, names, body = self._outside(head[SENDER], recipients, body)
        except MapFailed as error:
            return Report([row_of(Result(each, Verdict.TEMPORARY, "4.3.0", one_line(str(error))),
                                  peer) for each in recipients])
        wishes = {names[each]: wish for each, wish in head.get(WISHES, {}).items()
                  if each in names}  # others are other peers'
        for start in range(0, len(recipients), self._recipients_max):
            group = recipients[start : start + self._recipients_max]
            connection = self._connection(peer)
            told = [*dict.fromkeys(names[each] for each in group)]
            answers = {each.recipient: each for each in connection.send(Mail(
                sender, told, body, head[SMTPUTF8], head.get(PARAMETERS, ""), wishes,
                head.get(ADDRESSES, {}).get(head[PEER], ()), tlsa=tlsa))}
            results += [replace(answers[names[each]], recipient=each) for each in group]
            if not connection.reached:
                reason = results[-1].text
                results += [replace(results[-1], recipient=each)
                            for each in recipients[start + len(group) :]]
                return Report([row_of(each, peer) for each in results], reached=False,
                              reason=reason)
        return Report([row_of(each, peer) for each in results])

    def _outside(self, sender: str, recipients: Sequence[str], body: bytes
                 ) -> tuple[str, dict[str, str], bytes]:
        """Sender, recipients by what they are called here, and text as other hosts see them
        ([generic_maps]). MapFailed."""
        rewriting = self._rewriting
        if rewriting is None or rewriting.generic is None or self._lmtp:
            return sender, {each: each for each in recipients}, body
        scan_bytes = self._scan_bytes
        answers = {(kind, address): rewriting.outside(address)
                   for kind, address in header_addresses(body, scan_bytes)}
        return (rewriting.outside(sender), {each: rewriting.outside(each) for each in recipients},
                with_addresses(body, answers, scan_bytes))

    def idle(self) -> None:
        """Say goodbye to all peers."""
        while self._connections:
            self._connections.popitem()[1].close()

    def close(self) -> None:
        """The process ends."""
        self.idle()
        self._mail_log.close()
        self._sessions.close()

    def _tell(self, text: str, *, failed: bool) -> None:
        self._mail_log.write([("smtp", text)])
        if failed:
            self._log.event(events.GATEWAY_TLS_FAILED, WARNING, reason=text)

    def _note(self, session: TlsSession) -> None:
        """For each kind of policy that the domains of this mail have: once."""
        alike: dict[LinePolicy, list[str]] = {}
        for domain, policy in self._policies.items():
            if policy.kind == UNCOUNTED:
                continue
            alike.setdefault(policy, []).append(domain)
        for policy, domains in alike.items():
            seen = session if session.result or not policy.noted else replace(
                session, result="validation-failure", reason=policy.noted)
            self._sessions.note(seen, domains, policy.kind, policy.lines)

    def _connection(self, peer: Peer) -> SmtpConnection:
        connection = self._connections.get(peer)
        if connection is None:
            while len(self._connections) >= self._connections_max:
                self._connections.popitem(last=False)[1].close()
            connection = SmtpConnection(peer, self._hostname, self._limits, self._security,
                                        lmtp=self._lmtp)
            self._connections[peer] = connection
        self._connections.move_to_end(peer)
        return connection


def row_of(result: Result, peer: Peer) -> list[str]:
    """A result as it travels; `peer` said so."""
    tells = ["tells"] if result.tells else []
    return [result.recipient, result.verdict.value, result.status, result.text, peer.host, *tells]


def result_of(row: list[str]) -> Result:
    """The other way."""
    recipient, verdict, status, text, mta, *tells = row
    return Result(recipient, Verdict(verdict), status, text, mta, bool(tells))
