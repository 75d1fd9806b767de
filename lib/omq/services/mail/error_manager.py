"""error.manager: the reader of queue ERRMGR; it tells senders which recipients were not reached.

Input: a mail message with `error.to`, `error.status` and `error.reason`
(omq.services.mail.mail_message says how they are in lines); it may be on other queues too, for
its other recipients.

What happens to it: a report (omq.services.mail.delivery_report) is put on ROUTER and the message
leaves ERRMGR, in one atomic operation. What its sender does not want reported (NOTIFY of RFC
3461) is left out. A message with the null sender is itself a report, or must not be answered: it
goes to queue ERROR, where an operator finds it with its reasons, and an event says so.

A site's own words are files of `report_templates`; one that is wrong is an event (1522) at the
start and at a reload, and what is built in is used in its place.

Reports are limited in number (`ReportRate`): those beyond it wait on ERRMGR.

Loop protection: a report has the null sender, so whatever happens to it ends on ERROR, never in a
second report.

Crash argument: the handler has no side effect but the disposition. Killed before it, the message
returns and the same report is built; killed after it, all has happened. Never two reports.

Errors: none leave `handle` but those of reading the body (BodyDamaged, BodyUnavailable).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from omq import Outgoing
from omq.base import clock, events, fault, limits, names
from omq.base.clock import NS_PER_S
from omq.base.event_log import ERROR, REPORT, WARNING
from omq.base.rated_log import NEVER, RatedLog
from omq.services.mail import mail_message as mail
from omq.services.mail.delivery_report import (
    FailedMessage,
    ReportStyle,
    build_report,
    message_id_of,
)
from omq.services.mail.dsn import ENVID, RET, DsnRequest, decoded, dsn_requests_of
from omq.services.mail.mail_host import mail_hostname
from omq.services.mail.mail_log import arrival_ns, made_lines, mail_id, mail_log_of, shown
from omq.services.mail.report_templates import load_templates
from omq.services.mail.routes import language_of
from omq.services.mail.routes_file import load_routes
from omq.services.readers.parent import run_service
from omq.services.readers.service import Defer, Disposition, Done, Message, Move, Service

_RETURNED: Final = {"FULL": True, "HDRS": False}


class ErrorManagerService(Service):
    """One reader process of the Error Manager."""

    title = "Error Manager"

    def open(self) -> None:
        settings = self.context.settings
        self.mail_log = mail_log_of(self.context)
        self.rated = RatedLog(self.context.log, settings.event_burst, settings.event_period_s)
        self.reload()
        self.context.log.event(events.ERRMGR_STARTED, REPORT)

    def reload(self) -> None:
        settings = self.context.settings
        self.rate = ReportRate(settings.reports_per_minute_max, settings.reports_per_sender_max)
        hostname = mail_hostname(settings)
        postmaster = settings.postmaster
        self.style = ReportStyle(
            hostname, postmaster if "@" in postmaster else f"{postmaster}@{hostname}",
            settings.report_original == "full", settings.report_bytes_max,
            settings.mail_header_scan_bytes, load_templates(settings.report_templates))
        for each in self.style.templates.wrong:
            self.context.log.event(events.REPORT_TEMPLATE_WRONG, ERROR, file=str(each.path),
                                   line=each.line, reason=each.reason)
        self.languages = load_routes(self.context.conf_dir).languages

    def close(self) -> None:
        self.rated.flush(NEVER)
        self.mail_log.close()
        self.context.log.event(events.ERRMGR_STOPPED, REPORT)

    def handle(self, message: Message) -> Disposition:
        envelope = mail.Envelope.of(message.properties)
        dsn_requests = dsn_requests_of(message.properties)
        failures = [each for each in mail.failures_of(message.properties)
                    if dsn_requests.get(each.recipient, DsnRequest()).wants(each.action)]
        if not failures:
            self._tell_nobody(message)
            return Done()
        problem = mail.address_problem(envelope.sender, smtputf8=True)
        if problem is not None:
            self._give_up(message, envelope.sender, problem, failures)
            return Move((names.ERROR,))
        wait_s = self.rate.wait_s(envelope.sender, clock.monotonic_ns())
        if wait_s > 0:
            self.rated.event(events.REPORTS_WAIT, WARNING, "reports", to=envelope.sender)
            return Defer(wait_s, "too many reports")
        properties = message.properties
        about = mail_id(properties, message.message_id)
        report = build_report(
            FailedMessage(envelope.sender, message.body, message.message_id,
                          arrival_ns(properties, message.put_time_ns), failures, about,
                          decoded(properties.get(ENVID, "")),
                          {address: wish.original for address, wish in dsn_requests.items()},
                          _RETURNED.get(properties.get(RET, "").upper()),
                          language_of(self.languages, envelope.sender)),
            self.style, clock.wall_ns())
        answer = mail.Envelope("", (envelope.sender,), smtputf8=not envelope.sender.isascii())
        fault.point("errmgr.before_move")
        self.context.log.event(events.ERRMGR_REPORTED, REPORT, to=envelope.sender,
                               failed=len(failures), message_id=message.message_id)
        own = _report_id(message.message_id)
        self.mail_log.write([
            ("bounce", f"{about}: sender non-delivery notification: {own}, "
                       f"to=<{shown(envelope.sender)}>, failed={len(failures)}"),
            *made_lines(own, message_id_of(message.message_id, self.style), len(report))])
        traced = {name: properties[name] for name in names.TRACE_PROPERTIES if name in properties}
        return Move((), (Outgoing(
            report, queues=(names.ROUTER,), priority=message.priority,
            properties=answer.properties() | {mail.ABOUT: about} | traced
            | mail.tracing(own, clock.wall_ns()),
            persistent=True, message_id=bytes.fromhex(own),
            correlation_id=message.correlation_id),))

    def _tell_nobody(self, message: Message) -> None:
        about = mail_id(message.properties, message.message_id)
        self.mail_log.write([("bounce", f"{about}: the sender wants no notification")])

    def _give_up(self, message: Message, sender: str, problem: str,
                 failures: Sequence[mail.Failure]) -> None:
        log = self.context.log
        if not sender:
            log.event(events.ERRMGR_NO_REPORT, REPORT, message_id=message.message_id)
        log.event(events.ERRMGR_UNUSABLE, WARNING, queue=names.ERROR, message_id=message.message_id,
                  reason=f"the sender cannot be told: {problem}" if sender else "null sender",
                  recipients=", ".join(each.recipient for each in failures))


def _report_id(message_id: str) -> str:
    """The id of the report of this message: the same for one that is made twice."""
    return blake2b(b"report " + message_id.encode("ascii"),
                   digest_size=limits.MESSAGE_ID_BYTES).hexdigest()


def main(argv: list[str] | None = None) -> int:
    """The program error.manager; returns its exit code."""
    return run_service("errmgr", ErrorManagerService, argv)


SENDERS_MAX: Final = 10_000
MINUTE_S: Final = 60
HOUR_S: Final = 3600


@dataclass(slots=True)
class _Window:
    began_ns: int
    count: int = 0


class ReportRate:
    """How many reports may be sent: a flood of undeliverable mail with forged senders must not
    become a flood of reports to strangers.

    A limit for all in a minute and one for each sender in an hour, both counted in windows that
    begin with the first report. What is beyond a limit waits until its window is over; nothing is
    dropped. Counts are of this process: auxiliary readers have their own. At most SENDERS_MAX
    senders are remembered; the oldest is forgotten. Times are monotonic ns."""

    def __init__(self, per_minute: int, per_sender: int) -> None:
        self._per_minute = per_minute
        self._per_sender = per_sender
        self._all = _Window(-MINUTE_S * NS_PER_S)
        self._senders: OrderedDict[str, _Window] = OrderedDict()

    def wait_s(self, sender: str, now_ns: int) -> float:
        """Seconds until a report to this sender may be sent; 0: now, and it is counted."""
        if now_ns - self._all.began_ns >= MINUTE_S * NS_PER_S:
            self._all = _Window(now_ns)
        key = sender.casefold()
        window = self._senders.get(key)
        if window is None or now_ns - window.began_ns >= HOUR_S * NS_PER_S:
            self._senders.pop(key, None)
            while len(self._senders) >= SENDERS_MAX:
                self._senders.popitem(last=False)
            window = self._senders[key] = _Window(now_ns)
        waits = [_left_s(self._all, self._per_minute, MINUTE_S, now_ns),
                 _left_s(window, self._per_sender, HOUR_S, now_ns)]
        if not any(waits):
            self._all.count += 1
            window.count += 1
        return max(waits)


def _left_s(window: _Window, limit: int, period_s: int, now_ns: int) -> float:
    if window.count < limit:
        return 0.0
    return max(1.0, period_s - (now_ns - window.began_ns) / NS_PER_S)
