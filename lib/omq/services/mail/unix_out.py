"""unix.out: the reader of queue UNIX; it hands mail to other hosts over SMTP.

Each recipient of `mail.to.UNIX` goes to the peer that routes.conf names for its domain, else to
`unix_smarthost`. Connections stay open over the messages of a backlog and close when it is worked
off.

What becomes of the message, in one atomic operation after all peers were asked:
* delivered everywhere: done;
* refused for good (5yz, no peer, time over): one new message to ERRMGR for these recipients;
* refused for now (4yz, no connection): where ALL recipients were, the message is deferred; where
  some were, a new message with only these takes its place on this queue. It carries the tries so
  far, the time of the first, and `unix.not_before`, until which it is deferred unseen;
* the n-th retry comes n * `unix_retry_step_s` after the one before it, at most `unix_retry_max_s`;
  after `unix_retry_expiry_s` since the first, what is left is refused for good (4.4.7).

A peer that could not be reached is left alone, longer after each failure, by all processes of the
service (omq.services.mail.peer_states): its messages are deferred at once, so that its time-outs do
not hold up the mail of the others. After that time one process tries it. A reload tries all now.

Crash argument: killed between the peer's 250 and the disposition, the message comes again and is
sent again: the peer gets it twice (inherent in SMTP, RFC 1047; the Message-ID is the same). Killed
before the 250, nothing has happened. Never lost: it leaves the queue only with every recipient
accounted for.

Errors: none leave `handle` but those of reading the body (BodyDamaged, BodyUnavailable).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from omq import Outgoing
from omq.base import clock, events, names
from omq.base.errors import OmqError
from omq.base.event_log import REPORT, WARNING
from omq.services.mail import mail_message as mail
from omq.services.mail.mail_host import mail_hostname
from omq.services.mail.mail_log import delay_s, delivery, mail_id, mail_log_of
from omq.services.mail.mail_retry import RETRY_PROPERTIES, Retry
from omq.services.mail.peer_states import PeerStates
from omq.services.mail.routes import Peer, peer_of
from omq.services.mail.routes_file import load_routes
from omq.services.mail.smtp_client import ClientLimits, Mail, SmtpConnection
from omq.services.mail.smtp_reply import Result, Verdict
from omq.services.readers.parent import run_service
from omq.services.readers.service import Defer, Disposition, Done, Message, Move, Service

UNSETTLED_MAX: Final = 1000
"""Messages that are sent and whose end the manager refused (ERRMGR full): remembered, each once
more sent if this process ends first."""


class UnixOutService(Service):
    """One reader process of the Internet Mail Gateway."""

    title = "Internet Mail Gateway"

    def open(self) -> None:
        self._connections: OrderedDict[Peer, SmtpConnection] = OrderedDict()
        self._decided: dict[str, Disposition] = {}  # of the message in hand
        self._unsettled: dict[str, Disposition] = {}  # refused by the manager
        self.mail_log = mail_log_of(self.context)
        self._configure()
        self.context.log.event(events.GATEWAY_STARTED, REPORT)

    def reload(self) -> None:
        self.idle()
        self._configure()
        self._peers.forget()

    def idle(self) -> None:
        while self._connections:
            self._connections.popitem()[1].close()

    def close(self) -> None:
        self.idle()
        self.mail_log.close()
        self.context.log.event(events.GATEWAY_STOPPED, REPORT)

    def handle(self, message: Message) -> Disposition:
        decided = self._unsettled.pop(message.message_id, None)
        if decided is not None:
            self._decided = {message.message_id: decided}
            return decided
        settings = self.context.settings
        retry = Retry.of(message, clock.wall_ns())
        early_s = retry.early_s(settings.unix_retry_max_s)
        if early_s > 0:
            return Defer(early_s, message.properties.get(mail.ERROR_REASON, "not yet"))
        results = self._send(message, mail.Envelope.of(message.properties))
        expired = retry.expired(settings.unix_retry_expiry_s)
        if expired:
            results = [_give_up(each) for each in results]
        self._log(message, results, expired=expired)
        pause_s = retry.pause_s(settings.unix_retry_step_s, settings.unix_retry_max_s)
        found = disposition(message, self.queue, results, retry, pause_s)
        self._decided = {message.message_id: found}
        return found

    def _configure(self) -> None:
        settings = self.context.settings
        self._routes = load_routes(self.context.conf_dir)
        self._smarthost = peer_of(settings.unix_smarthost) if settings.unix_smarthost else None
        self._hostname = mail_hostname(settings)
        conf, run = self.context.conf, self.context.paths.run
        self._peers = PeerStates(
            run / f"{conf.name}.peers.json", settings.unix_retry_step_s, settings.unix_retry_max_s,
            settings.unix_connect_timeout_s + settings.unix_reply_timeout_s)
        self._limits = ClientLimits(
            settings.unix_connect_timeout_s, settings.unix_reply_timeout_s,
            settings.unix_data_timeout_s, settings.unix_connection_messages_max)

    def _send(self, message: Message, envelope: mail.Envelope) -> list[Result]:
        own = message.properties.get(mail.to_name(self.queue), "")
        recipients = tuple(dict.fromkeys(mail.lines(own))) or envelope.recipients
        problems = {each: mail.address_problem(each, smtputf8=True) for each in recipients}
        if envelope.sender and mail.address_problem(envelope.sender, smtputf8=True):
            problems = dict.fromkeys(recipients, "the sender is no address")
        by_peer: dict[Peer | None, list[str]] = {}
        for recipient in recipients:
            if problems[recipient] is None:
                by_peer.setdefault(self._peer(recipient), []).append(recipient)
        results = [_refused(each, "5.1.3", why) for each, why in problems.items() if why]
        for peer, group in by_peer.items():
            if peer is None:
                results += [_refused(each, "5.4.4", "no host is configured for this domain")
                            for each in group]
                continue
            results += self._send_to(peer, group, message, envelope)
        return results

    def _send_to(self, peer: Peer, recipients: Sequence[str], message: Message,
                 envelope: mail.Envelope) -> list[Result]:
        results = list[Result]()
        limit = self.context.settings.unix_recipients_max
        for start in range(0, len(recipients), limit):
            group = recipients[start : start + limit]
            down = self._peers.waits(str(peer), clock.wall_ns())
            if down:
                reason = f"{peer} was not reached lately: {down}"
                results += [Result(each, Verdict.TEMPORARY, "4.4.1", reason) for each in group]
                continue
            connection = self._connection(peer)
            results += [replace(each, mta=peer.host) for each in connection.send(
                Mail(envelope.sender, group, message.body, envelope.smtputf8))]
            if connection.reached:
                self._peers.reached(str(peer))
            else:
                reason = results[-1].text
                pause_s = self._peers.failed(str(peer), clock.wall_ns(), reason)
                self.context.log.event(events.GATEWAY_NO_PEER, WARNING, peer=str(peer),
                                       reason=reason, pause_s=pause_s)
        return results

    def _peer(self, recipient: str) -> Peer | None:
        peer = self._routes.peer(mail.split_address(recipient)[1]) or self._smarthost
        if peer is not None and not peer.port:
            peer = Peer(peer.host, self.context.settings.unix_port)
        return peer

    def _connection(self, peer: Peer) -> SmtpConnection:
        connection = self._connections.get(peer)
        if connection is None:
            while len(self._connections) >= self.context.settings.unix_connections_max:
                self._connections.popitem(last=False)[1].close()
            connection = SmtpConnection(peer, self._hostname, self._limits)
            self._connections[peer] = connection
        self._connections.move_to_end(peer)
        return connection

    def refused(self, message: Message, error: OmqError) -> Disposition | None:
        """What was sent is sent: the same is to become of it at the next hand-out, unsent."""
        if len(self._unsettled) < UNSETTLED_MAX and message.message_id in self._decided:
            self._unsettled[message.message_id] = self._decided[message.message_id]
        return None

    def _tell(self, message: Message, results: Sequence[Result]) -> None:
        first = mail_id(message.properties, message.message_id)
        since = delay_s(message.properties, message.put_time_ns)
        self.mail_log.write(
            ("smtp", delivery(first, each.recipient, each.mta or "none", since, each.status,
                              _STATUS[each.verdict], each.text)) for each in results)

    def _log(self, message: Message, results: Sequence[Result], *, expired: bool) -> None:
        self._tell(message, results)
        kinds = {Verdict.DELIVERED: (events.GATEWAY_SENT, REPORT),
                 Verdict.TEMPORARY: (events.GATEWAY_DEFERRED, WARNING),
                 Verdict.PERMANENT: (events.GATEWAY_EXPIRED if expired
                                     else events.GATEWAY_REJECTED, WARNING)}
        for verdict, (event, level) in kinds.items():
            these = [each for each in results if each.verdict is verdict]
            if these:
                self.context.log.event(event, level, message_id=message.message_id,
                                       recipients=" ".join(each.recipient for each in these),
                                       answer=these[0].text)


_STATUS = {Verdict.DELIVERED: "sent", Verdict.TEMPORARY: "deferred", Verdict.PERMANENT: "bounced"}


def disposition(message: Message, queue: str, results: Sequence[Result], retry: Retry,
                pause_s: float) -> Disposition:
    """What becomes of the message, given what happened to each recipient."""
    later = [each for each in results if each.verdict is Verdict.TEMPORARY]
    failed = [each for each in results if each.verdict is Verdict.PERMANENT]
    if later and len(later) == len(results):
        return Defer(pause_s, later[0].text)
    new: list[Outgoing] = []
    kept = {name: value for name, value in mail.without_routing(message.properties).items()
            if name not in RETRY_PROPERTIES}
    if not results:
        failed = [_refused("(no recipient)", "5.1.3", "the message has no recipient")]
    if failed:
        written = _originals(message, queue)
        failures = [mail.Failure(written.get(each.recipient, each.recipient), each.status,
                                 each.text, each.mta) for each in failed]
        new.append(_copy(message, names.ERRMGR, kept | mail.error_properties(failures)))
    if later:
        written = _originals(message, queue)
        properties = {
            mail.to_name(queue): "\n".join(each.recipient for each in later),
            mail.original_name(queue): "\n".join(
                written.get(each.recipient, each.recipient) for each in later),
            mail.ERROR_REASON: later[0].text}
        new.append(_copy(message, queue, kept | properties | retry.properties(pause_s)))
    return Move((), tuple(new)) if new else Done()


def _originals(message: Message, queue: str) -> dict[str, str]:
    """The address that the sender wrote, for each recipient."""
    addresses = mail.lines(message.properties.get(mail.to_name(queue), ""))
    written = mail.lines(message.properties.get(mail.original_name(queue), ""))
    return dict(zip(addresses, written, strict=True)) if len(addresses) == len(written) else {}


def _copy(message: Message, queue: str, properties: dict[str, str]) -> Outgoing:
    return Outgoing(message.body, queues=(queue,), priority=message.priority,
                    properties=properties, persistent=True, correlation_id=message.correlation_id)


def _refused(recipient: str, status: str, text: str) -> Result:
    return Result(recipient, Verdict.PERMANENT, status, text)


def _give_up(result: Result) -> Result:
    if result.verdict is not Verdict.TEMPORARY:
        return result
    return replace(result, verdict=Verdict.PERMANENT, status="4.4.7",
                   text=f"{result.text} (given up: not delivered in time)")


def main(argv: list[str] | None = None) -> int:
    """The program unix.out; returns its exit code."""
    return run_service("unix", UnixOutService, argv)
