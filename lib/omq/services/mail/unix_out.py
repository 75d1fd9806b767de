"""unix.out: the reader of queue UNIX; it hands mail to other hosts over SMTP.

Each recipient of `mail.to.UNIX` goes to the peer that routes.conf names for its domain, else to
`unix_smarthost`, else, with `unix_mx`, to a host that the DNS names: then a plan begins with
looking up the domains that are not known, on a channel of its own, and goes on when that has ended.
A mail for several peers is shared out at once, one message a peer, in one atomic operation: each is
sent, deferred, reported by itself. Where the copies would exceed `unix_split_bytes_max`, several
peers share a message; its ends are collected, and only a crash in between sends it again to those
that had it.

Which message goes when, by which process, is the scheduler's matter (omq.services.delivery): a peer
that is slow, silent or dead holds up nobody else's mail.

What happens to a message, in one atomic operation after its peers were asked:
* delivered everywhere: done;
* refused for good (5yz, no peer, time over): one new message to ERRMGR for these recipients;
* refused for now (4yz): where ALL recipients were, the message is deferred; where some were, a new,
  delayed message with only these takes its place, with the tries so far and the time of the first;
* the n-th retry comes n * `unix_retry_step_s` after the one before it, at most `unix_retry_max_s`;
  after `unix_retry_expiry_s` since the first, what is left is refused for good (4.4.7);
* its peer could not be reached: it is deferred until the peer is tried again.

Where ERRMGR takes nothing, the report that is due waits on this queue, in a message with
`unix.ended`: nothing is sent again for it.

Crash argument: killed between the peer's 250 and the disposition, the message returns and is
sent again: the peer gets it twice (inherent in SMTP, RFC 1047; the Message-ID is the same). Killed
before the 250, nothing has happened. Never lost: it leaves the queue only with every recipient
accounted for.

Errors: those of reading a message (BodyDamaged, BodyUnavailable), which cost it an attempt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from omq import Outgoing
from omq.base import clock, events, fault, names
from omq.base.errors import OmqError
from omq.base.event_log import REPORT, WARNING
from omq.services.delivery.dispatcher import Dispatcher
from omq.services.delivery.mlist import Mlist, Wait
from omq.services.delivery.rules import PeerLimit
from omq.services.delivery.service import ChannelService, Group, Plan
from omq.services.delivery.worker import Worker
from omq.services.mail import mail_message as mail
from omq.services.mail.channel_names import LMTP, NAMES, PIPE
from omq.services.mail.mail_log import delay_s, delivery, mail_id, mail_log_of
from omq.services.mail.mail_retry import Retry
from omq.services.mail.mx_lookup import NamesWorker, check_names
from omq.services.mail.next_hop import LookUp, NextHops, Way
from omq.services.mail.peer_security import load_security, sts_context
from omq.services.mail.pipe_channel import PipeChannel
from omq.services.mail.routes import Peer
from omq.services.mail.routes_file import load_routes
from omq.services.mail.smtp_channel import (
    ADDRESSES,
    POLICIES,
    SENDER,
    SMTPUTF8,
    SmtpChannel,
    result_of,
)
from omq.services.mail.smtp_reply import STATUS_WORDS, Result, Verdict
from omq.services.mail.sts_domains import sts_domains
from omq.services.mail.tls_sessions import TlsSessions
from omq.services.mail.unix_out_settling import (
    ENDED,
    copy_of,
    disposition,
    given_up,
    refused,
    report_later,
    rest_of,
    softened,
    told_of,
    warned,
)
from omq.services.readers.parent import run_service
from omq.services.readers.service import Defer, Disposition, Message, Move

SHARED: Final = "unix.shared"
"""Of a message whose peers were too many for a copy each: it is not shared out again."""


class UnixOutService(ChannelService):
    """The Internet Mail Gateway."""

    title = "Internet Mail Gateway"

    def open(self) -> None:
        self.mail_log = mail_log_of(self.context)
        self._tls_sessions = TlsSessions.of(self.context)
        self._configure()
        self.context.log.event(events.GATEWAY_STARTED, REPORT)

    def reload(self) -> None:
        before = self.routes
        self._configure()
        before.close()

    def close(self) -> None:
        self.routes.close()
        self.mail_log.close()
        self._tls_sessions.close()
        self.context.log.event(events.GATEWAY_STOPPED, REPORT)

    def _configure(self) -> None:
        """All of it or nothing: a reload that is refused in the middle changes nothing."""
        settings, conf_dir = self.context.settings, self.context.conf_dir
        routes = load_routes(conf_dir)
        security = load_security(settings, conf_dir, routes)
        check_names(settings, conf_dir)
        sts = sts_context(settings, conf_dir)
        ways = NextHops(settings, routes, self._tls_sessions.note)
        self.routes, self._security, self._ways, self._sts = routes, security, ways, sts

    def limit_of(self, peer: str) -> PeerLimit | None:
        return self._ways.limit_of(peer)

    def worker(self, channel: str) -> Worker:
        if channel == NAMES:
            return NamesWorker(self.context.settings, self.routes,
                               sts_domains(self.context, self._sts))
        if channel == PIPE:
            return PipeChannel(self.context.settings, self.routes.pipes)
        return SmtpChannel(self.context, self._security, lmtp=channel == LMTP,
                           rewriting=self.routes.rewriting)

    @contextmanager
    def together(self) -> Iterator[None]:
        with super().together(), self.mail_log.together():
            yield

    def needs_text(self, channel: str) -> bool:
        return channel != NAMES

    def plan(self, message: Message) -> Plan | Disposition:
        properties = message.properties
        if ENDED in properties:
            kept = {name: text for name, text in properties.items() if name != ENDED}
            return Move((), (copy_of(message, names.ERRMGR, kept),))
        return self._plan(message, ())

    def _plan(self, message: Message, known: Sequence[Result]) -> Plan | Disposition:
        """What is to be done for those whose result is not `known` yet."""
        properties = message.properties
        envelope = mail.Envelope.of(properties)
        own = properties.get(mail.to_name(self.queue), "")
        recipients = tuple(dict.fromkeys(mail.lines(own))) or envelope.recipients
        problems = {each: mail.address_problem(each, smtputf8=True) for each in recipients}
        if envelope.sender and mail.address_problem(envelope.sender, smtputf8=True):
            problems = dict.fromkeys(recipients, "the sender is not an address")
        ways: dict[str, Way] = {each.recipient: each for each in known}
        for each in recipients:
            if each not in ways:
                problem = problems[each]
                ways[each] = refused(each, "5.1.3", problem) if problem else (
                    self._ways.of(each, envelope.sender,
                                  tls_optional=properties.get(mail.TLS) == mail.TLS_OPTIONAL))
        results = [each for each in ways.values() if isinstance(each, Result)]
        unknown = _by_way(ways, LookUp)
        if unknown:
            return Plan(tuple(Group(NAMES, domain.domain, tuple(group))
                              for domain, group in unknown.items()), tuple(results), {})
        by_peer = _by_way(ways, Peer)
        if len(by_peer) > 1 and SHARED not in properties and not known:
            groups = [*by_peer.values()]
            groups[0] = [*(each.recipient for each in results), *groups[0]]
            shared = self._shared_out(message, groups)
            if shared:
                fault.point("channel.split")
                return Move((), shared)
        return Plan(tuple(Group(peer.channel, str(peer), tuple(group))
                          for peer, group in by_peer.items()),
                    tuple(results), {SENDER: envelope.sender, SMTPUTF8: envelope.smtputf8,
                                     ADDRESSES: self._ways.addresses(by_peer),
                                     POLICIES: self._ways.policies(by_peer)}
                    | told_of(message, self.queue, recipients))

    def _shared_out(self, message: Message, groups: Sequence[list[str]]) -> tuple[Outgoing, ...]:
        """A message for each group; for several where the copies would be too much; () for one."""
        allowed = self.context.settings.unix_split_bytes_max // max(1, message.size)
        each_takes = -(-len(groups) // max(1, allowed))
        if each_takes >= len(groups):
            return ()
        carried = Retry.of(message, clock.wall_ns()).properties(tries=0)
        mark = {SHARED: "1"} if each_takes > 1 else {}
        return tuple(
            rest_of(message, self.queue, [each for group in groups[start : start + each_takes]
                                           for each in group], carried | mark)
            for start in range(0, len(groups), each_takes))

    def untried(self, mlist: Mlist, wait: Wait) -> Sequence[Any]:
        if wait.down:
            self._ways.failed(mlist.peer, wait.seconds)
        return [[each, Verdict.TEMPORARY.value, "4.4.1", wait.reason, ""]
                for each in mlist.recipients]

    def ended(self, message: Message, results: Sequence[Any], wait: Wait | None
              ) -> Plan | Disposition:
        looked_up = [each for each in results if isinstance(each, dict)]
        found = [result_of(each) if isinstance(each, list) else each for each in results
                 if not isinstance(each, dict)]
        if wait is not None and wait.down:
            self._ways.unreached((each.mta for each in found if each.mta
                                  and each.verdict is Verdict.TEMPORARY), wait.seconds)
        sender = mail.Envelope.of(message.properties).sender
        again = self._ways.with_another(found, sender) if (
            wait is not None and wait.down) else set()
        if looked_up or again:
            self._ways.learn(looked_up)
            return self._plan(message, [each for each in found if each.recipient not in again])
        settings, retry = self.context.settings, Retry.of(message, clock.wall_ns())
        if wait is not None and not wait.down and all(
                each.verdict is Verdict.TEMPORARY and not each.mta for each in found):
            return Defer(wait.seconds, wait.reason)
        if settings.soft_bounce:
            found = [softened(each) for each in found]
        expired = not settings.soft_bounce and retry.expired(settings.unix_retry_expiry_s) and (
            wait is None or wait.down)
        if expired:
            found = [given_up(each) for each in found]
        self._log(message, found, expired=expired)
        pause_s = wait.seconds if wait is not None else retry.pause_s(
            settings.unix_retry_step_s, settings.unix_retry_max_s)
        warn_s = settings.delay_warning_s
        if warn_s and not expired and retry.now_ns - retry.since_ns > warn_s * clock.NS_PER_S:
            message_warned = warned(message, self.queue, found, retry, pause_s)
            if message_warned is not None:
                return message_warned
        return disposition(message, self.queue, found, retry, pause_s)

    def instead(self, disposition: Disposition, message: Message, error: OmqError
                ) -> Disposition | None:
        retry_s = float(self.context.settings.reader_refused_retry_s)
        return report_later(disposition, message, self.queue, retry_s)

    def _tell(self, message: Message, results: Sequence[Result]) -> None:
        first = mail_id(message.properties, message.message_id)
        since = delay_s(message.properties, message.put_time_ns)
        self.mail_log.write(
            ("smtp", delivery(first, each.recipient, each.mta or "none", since, each.status,
                              STATUS_WORDS[each.verdict], each.text)) for each in results)

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


_Kind = TypeVar("_Kind", Peer, LookUp)


def _by_way(ways: Mapping[str, Way], kind: type[_Kind]) -> dict[_Kind, list[str]]:
    """The recipients of each way of this kind."""
    found: dict[_Kind, list[str]] = {}
    for recipient, way in ways.items():
        if isinstance(way, kind):
            found.setdefault(way, []).append(recipient)
    return found


def main(argv: list[str] | None = None) -> int:
    """The program unix.out; returns its exit code."""
    return run_service("unix", UnixOutService, argv, Dispatcher)
