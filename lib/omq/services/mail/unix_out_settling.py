"""What happens to a mail of unix.out when its peers were asked: one operation of the manager.

Besides what fails, a sender may ask for reports of other ends (omq.services.mail.dsn): of a delay,
once, after `delay_warning_s`; and, where he asked for it, that a mail was passed on to a host that
does not tell (it has no DSN extension; one that has it was given the wish).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from omq import Outgoing
from omq.base import names
from omq.services.mail import mail_message as mail
from omq.services.mail.dsn import DELAYED, RELAYED, DsnRequest, dsn_requests_of, sender_parameters
from omq.services.mail.mail_log import arrival_ns, mail_id
from omq.services.mail.mail_retry import RETRY_PROPERTIES, Retry
from omq.services.mail.smtp_channel import PARAMETERS, WISHES
from omq.services.mail.smtp_reply import Result, Verdict
from omq.services.readers.service import Defer, Disposition, Done, Message, Move

ENDED: Final = "unix.ended"
"""Of a message that was sent: only its report is due."""
WARNED: Final = "unix.warned"
"""Of a message whose sender was told that it is late."""


def disposition(message: Message, queue: str, results: Sequence[Result], retry: Retry,
                pause_s: float) -> Disposition:
    """What happens to the message, given what happened to each recipient."""
    later = [each for each in results if each.verdict is Verdict.TEMPORARY]
    failed = [each for each in results if each.verdict is Verdict.PERMANENT]
    if later and len(later) == len(results):
        return Defer(pause_s, later[0].text)
    new: list[Outgoing] = []
    passed_on = _relayed(message, queue, results)
    if passed_on:
        new.append(report_of(message, passed_on))
    if not results:
        failed = [refused("(no recipient)", "5.1.3", "the message has no recipient")]
    if failed:
        written = _originals(message, queue)
        failures = [mail.Failure(written.get(each.recipient, each.recipient), each.status,
                                 each.text, each.mta) for each in failed]
        new.append(report_of(message, failures))
    if later:
        more = retry.properties() | {mail.ERROR_REASON: later[0].text}
        new.append(rest_of(message, queue, [each.recipient for each in later], more, pause_s))
    return Move((), tuple(new)) if new else Done()


def rest_of(message: Message, queue: str, recipients: Sequence[str], more: dict[str, str],
             pause_s: float = 0.0) -> Outgoing:
    """The message for these recipients alone."""
    written = _originals(message, queue)
    properties = {
        mail.to_name(queue): "\n".join(recipients),
        mail.original_name(queue): "\n".join(written.get(each, each) for each in recipients)}
    first = mail.tracing(mail_id(message.properties, message.message_id),
                         arrival_ns(message.properties, message.put_time_ns))
    return copy_of(message, queue, _kept(message) | first | properties | more, pause_s)


def _kept(message: Message) -> dict[str, str]:
    return {name: value for name, value in mail.without_routing(message.properties).items()
            if name not in RETRY_PROPERTIES}


def _originals(message: Message, queue: str) -> dict[str, str]:
    """The address that the sender wrote, for each recipient."""
    addresses = mail.lines(message.properties.get(mail.to_name(queue), ""))
    written = mail.lines(message.properties.get(mail.original_name(queue), ""))
    return dict(zip(addresses, written, strict=True)) if len(addresses) == len(written) else {}


def copy_of(message: Message, queue: str, properties: dict[str, str], pause_s: float = 0.0
          ) -> Outgoing:
    return Outgoing(message.body, queues=(queue,), priority=message.priority,
                    properties=properties, persistent=True, delay_s=pause_s,
                    correlation_id=message.correlation_id)


def refused(recipient: str, status: str, text: str) -> Result:
    return Result(recipient, Verdict.PERMANENT, status, text)


def given_up(result: Result) -> Result:
    if result.verdict is not Verdict.TEMPORARY:
        return result
    return replace(result, verdict=Verdict.PERMANENT, status="4.4.7",
                   text=f"{result.text} (given up: not delivered in time)")


def softened(result: Result) -> Result:
    """With `soft_bounce`: what was refused for good is, for now."""
    if result.verdict is not Verdict.PERMANENT:
        return result
    return replace(result, verdict=Verdict.TEMPORARY, status=f"4{result.status[1:]}")


def report_of(message: Message, failures: Iterable[mail.Failure]) -> Outgoing:
    """What ERRMGR tells the sender."""
    return copy_of(message, names.ERRMGR, _kept(message) | mail.error_properties(failures))


def report_later(decided: Disposition, message: Message, queue: str, retry_s: float
                 ) -> Disposition | None:
    """What takes the place of a disposition that was refused, so that nothing is sent again: the
    report waits on this queue. None where there is none."""
    if not isinstance(decided, Move) or ENDED in message.properties:
        return None
    return Move((), tuple(
        replace(each, queues=(queue,), properties={**each.properties, ENDED: "1"},
                delay_s=retry_s) if each.queues == (names.ERRMGR,) else each
        for each in decided.new))


def warned(message: Message, queue: str, results: Sequence[Result], retry: Retry, pause_s: float
           ) -> Disposition | None:
    """The mail waits for all recipients, and its sender is to be told now; None: not so."""
    if (WARNED in message.properties or not message.properties.get(mail.FROM)
            or any(each.verdict is not Verdict.TEMPORARY for each in results)):
        return None
    written, dsn_requests = _originals(message, queue), dsn_requests_of(message.properties)
    late = [mail.Failure(written.get(each.recipient, each.recipient), each.status, each.text,
                         each.mta, DELAYED) for each in results]
    wanted = [each for each in late
              if dsn_requests.get(each.recipient, DsnRequest()).wants(DELAYED)]
    if not wanted:
        return None
    more = retry.properties() | {mail.ERROR_REASON: results[0].text, WARNED: "1"}
    return Move((), (report_of(message, wanted), rest_of(
        message, queue, [each.recipient for each in results], more, pause_s)))


def _relayed(message: Message, queue: str, results: Sequence[Result]) -> list[mail.Failure]:
    """Recipients whose mail was passed on, and whose sender wants to know."""
    if not message.properties.get(mail.FROM):
        return []
    written, dsn_requests = _originals(message, queue), dsn_requests_of(message.properties)
    found = []
    for each in results:
        address = written.get(each.recipient, each.recipient)
        if each.verdict is Verdict.DELIVERED and not each.tells and address in dsn_requests and (
                dsn_requests[address].wants(RELAYED)):
            found.append(mail.Failure(address, "2.0.0", each.text or "taken", each.mta, RELAYED))
    return found


def told_of(message: Message, queue: str, recipients: Sequence[str]) -> dict[str, Any]:
    """What a peer with the DSN extension gets of the DSN requests of the sender."""
    written, dsn_requests = _originals(message, queue), dsn_requests_of(message.properties)
    by_recipient = {each: dsn_requests[written.get(each, each)].parameters() for each in recipients
                    if written.get(each, each) in dsn_requests}
    parameters = sender_parameters(message.properties)
    return ({WISHES: by_recipient} if by_recipient else {}) | (
        {PARAMETERS: parameters} if parameters else {})
