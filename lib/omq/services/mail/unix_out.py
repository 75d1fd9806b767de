"""unix.out: the reader of queue UNIX; it hands mail to other hosts over SMTP.

Each recipient of `mail.to.UNIX` goes to the peer that routes.conf names for its domain, else to
`unix_smarthost`. A mail for several peers is shared out at once, one message a peer, in one atomic
operation: each is sent, deferred, reported by itself. Where the copies would exceed
`unix_split_bytes_max`, several peers share a message; its ends are collected, and only a crash in
between sends it again to those that had it.

Which message goes when, by which process, is the scheduler's matter (omq.services.channels): a peer
that is slow, silent or dead holds up nobody else's mail.

What becomes of a message, in one atomic operation after its peers were asked:
* delivered everywhere: done;
* refused for good (5yz, no peer, time over): one new message to ERRMGR for these recipients;
* refused for now (4yz): where ALL recipients were, the message is deferred; where some were, a new,
  delayed message with only these takes its place, with the tries so far and the time of the first;
* the n-th retry comes n * `unix_retry_step_s` after the one before it, at most `unix_retry_max_s`;
  after `unix_retry_expiry_s` since the first, what is left is refused for good (4.4.7);
* its peer could not be reached: it is deferred until the peer is tried again.

Where ERRMGR takes nothing, the report that is due waits on this queue, in a message with
`unix.ended`: nothing is sent again for it.

Crash argument: killed between the peer's 250 and the disposition, the message comes again and is
sent again: the peer gets it twice (inherent in SMTP, RFC 1047; the Message-ID is the same). Killed
before the 250, nothing has happened. Never lost: it leaves the queue only with every recipient
accounted for.

Errors: those of reading a message (BodyDamaged, BodyUnavailable), which cost it an attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from omq import Outgoing
from omq.base import clock, events, fault, names
from omq.base.errors import OmqError
from omq.base.event_log import REPORT, WARNING
from omq.services.channels.dispatcher import Dispatcher
from omq.services.channels.mlist import Mlist
from omq.services.channels.service import ChannelService, Group, Plan, Wait
from omq.services.channels.worker import Worker
from omq.services.mail import mail_message as mail
from omq.services.mail.mail_log import arrival_ns, delay_s, delivery, mail_id, mail_log_of
from omq.services.mail.mail_retry import RETRY_PROPERTIES, Retry
from omq.services.mail.routes import Peer, peer_of
from omq.services.mail.routes_file import load_routes
from omq.services.mail.smtp_channel import SENDER, SMTPUTF8, SmtpChannel, result_of
from omq.services.mail.smtp_reply import Result, Verdict
from omq.services.readers.parent import run_service
from omq.services.readers.service import Defer, Disposition, Done, Message, Move

CHANNEL: Final = "smtp"
SHARED: Final = "unix.shared"
"""Of a message whose peers were too many for a copy each: it is not shared out again."""
ENDED: Final = "unix.ended"
"""Of a message that was sent: only its report is due."""


class UnixOutService(ChannelService):
    """The Internet Mail Gateway."""

    title = "Internet Mail Gateway"

    def open(self) -> None:
        self.mail_log = mail_log_of(self.context)
        self._configure()
        self.context.log.event(events.GATEWAY_STARTED, REPORT)

    def reload(self) -> None:
        self._configure()

    def close(self) -> None:
        self.mail_log.close()
        self.context.log.event(events.GATEWAY_STOPPED, REPORT)

    def _configure(self) -> None:
        settings = self.context.settings
        self._routes = load_routes(self.context.conf_dir)
        self._smarthost = peer_of(settings.unix_smarthost) if settings.unix_smarthost else None

    def worker(self, channel: str) -> Worker:
        return SmtpChannel(self.context.settings)

    def plan(self, message: Message) -> Plan | Disposition:
        properties = message.properties
        if ENDED in properties:
            kept = {name: text for name, text in properties.items() if name != ENDED}
            return Move((), (_copy(message, names.ERRMGR, kept),))
        envelope = mail.Envelope.of(properties)
        own = properties.get(mail.to_name(self.queue), "")
        recipients = tuple(dict.fromkeys(mail.lines(own))) or envelope.recipients
        problems = {each: mail.address_problem(each, smtputf8=True) for each in recipients}
        if envelope.sender and mail.address_problem(envelope.sender, smtputf8=True):
            problems = dict.fromkeys(recipients, "the sender is no address")
        results = [_refused(each, "5.1.3", why) for each, why in problems.items() if why]
        by_peer: dict[Peer, list[str]] = {}
        for recipient in recipients:
            if problems[recipient] is None:
                peer = self._peer(recipient)
                if peer is None:
                    results.append(_refused(recipient, "5.4.4",
                                            "no host is configured for this domain"))
                else:
                    by_peer.setdefault(peer, []).append(recipient)
        if len(by_peer) > 1 and SHARED not in properties:
            groups = [*by_peer.values()]
            groups[0] = [*(each.recipient for each in results), *groups[0]]
            shared = self._shared_out(message, groups)
            if shared:
                fault.point("channel.split")
                return Move((), shared)
        return Plan(tuple(Group(CHANNEL, str(peer), tuple(group))
                          for peer, group in by_peer.items()),
                    tuple(results), {SENDER: envelope.sender, SMTPUTF8: envelope.smtputf8})

    def _shared_out(self, message: Message, groups: Sequence[list[str]]) -> tuple[Outgoing, ...]:
        """A message for each group; for several where the copies would be too much; () for one."""
        allowed = self.context.settings.unix_split_bytes_max // max(1, message.size)
        each_takes = -(-len(groups) // max(1, allowed))
        if each_takes >= len(groups):
            return ()
        carried = Retry.of(message, clock.wall_ns()).properties(tries=0)
        mark = {SHARED: "1"} if each_takes > 1 else {}
        return tuple(
            _rest_of(message, self.queue, [each for group in groups[start : start + each_takes]
                                           for each in group], carried | mark)
            for start in range(0, len(groups), each_takes))

    def _peer(self, recipient: str) -> Peer | None:
        peer = self._routes.peer(mail.split_address(recipient)[1]) or self._smarthost
        if peer is not None and not peer.port:
            peer = Peer(peer.host, self.context.settings.unix_port)
        return peer

    def untried(self, mlist: Mlist, wait: Wait) -> Sequence[Any]:
        return [[each, Verdict.TEMPORARY.value, "4.4.1", wait.reason, ""]
                for each in mlist.recipients]

    def ended(self, message: Message, results: Sequence[Any], wait: Wait | None) -> Disposition:
        found = [result_of(each) if isinstance(each, list) else each for each in results]
        settings, retry = self.context.settings, Retry.of(message, clock.wall_ns())
        if wait is not None and not wait.down and all(
                each.verdict is Verdict.TEMPORARY and not each.mta for each in found):
            return Defer(wait.seconds, wait.reason)
        expired = retry.expired(settings.unix_retry_expiry_s) and (wait is None or wait.down)
        if expired:
            found = [_give_up(each) for each in found]
        self._log(message, found, expired=expired)
        pause_s = wait.seconds if wait is not None else retry.pause_s(
            settings.unix_retry_step_s, settings.unix_retry_max_s)
        return disposition(message, self.queue, found, retry, pause_s)

    def instead(self, disposition: Disposition, message: Message, error: OmqError
                ) -> Disposition | None:
        if not isinstance(disposition, Move) or ENDED in message.properties:
            return None
        retry_s = float(self.context.settings.reader_refused_retry_s)
        return Move((), tuple(
            replace(each, queues=(self.queue,), properties={**each.properties, ENDED: "1"},
                    delay_s=retry_s) if each.queues == (names.ERRMGR,) else each
            for each in disposition.new))

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
    if not results:
        failed = [_refused("(no recipient)", "5.1.3", "the message has no recipient")]
    if failed:
        written = _originals(message, queue)
        failures = [mail.Failure(written.get(each.recipient, each.recipient), each.status,
                                 each.text, each.mta) for each in failed]
        new.append(_copy(message, names.ERRMGR, _kept(message) | mail.error_properties(failures)))
    if later:
        more = retry.properties() | {mail.ERROR_REASON: later[0].text}
        new.append(_rest_of(message, queue, [each.recipient for each in later], more, pause_s))
    return Move((), tuple(new)) if new else Done()


def _rest_of(message: Message, queue: str, recipients: Sequence[str], more: dict[str, str],
             pause_s: float = 0.0) -> Outgoing:
    """The message for these recipients alone."""
    written = _originals(message, queue)
    properties = {
        mail.to_name(queue): "\n".join(recipients),
        mail.original_name(queue): "\n".join(written.get(each, each) for each in recipients)}
    first = mail.tracing(mail_id(message.properties, message.message_id),
                         arrival_ns(message.properties, message.put_time_ns))
    return _copy(message, queue, _kept(message) | first | properties | more, pause_s)


def _kept(message: Message) -> dict[str, str]:
    return {name: value for name, value in mail.without_routing(message.properties).items()
            if name not in RETRY_PROPERTIES}


def _originals(message: Message, queue: str) -> dict[str, str]:
    """The address that the sender wrote, for each recipient."""
    addresses = mail.lines(message.properties.get(mail.to_name(queue), ""))
    written = mail.lines(message.properties.get(mail.original_name(queue), ""))
    return dict(zip(addresses, written, strict=True)) if len(addresses) == len(written) else {}


def _copy(message: Message, queue: str, properties: dict[str, str], pause_s: float = 0.0
          ) -> Outgoing:
    return Outgoing(message.body, queues=(queue,), priority=message.priority,
                    properties=properties, persistent=True, delay_s=pause_s,
                    correlation_id=message.correlation_id)


def _refused(recipient: str, status: str, text: str) -> Result:
    return Result(recipient, Verdict.PERMANENT, status, text)


def _give_up(result: Result) -> Result:
    if result.verdict is not Verdict.TEMPORARY:
        return result
    return replace(result, verdict=Verdict.PERMANENT, status="4.4.7",
                   text=f"{result.text} (given up: not delivered in time)")


def main(argv: list[str] | None = None) -> int:
    """The program unix.out; returns its exit code."""
    return run_service("unix", UnixOutService, argv, Dispatcher)
