"""xport.out, the sendmail interface: the reader of queue XPORT; it gives each mail to a command.

The command is `xport_command` of omq.conf, mostly a sendmail program. It has the mail on its
standard input, header first, its lines ended as on this system. Mail comes here by [queues] of
routes.conf (`* = XPORT`); the recipients are those of `mail.to.XPORT`, all of them with one run.

Rules:
1. No shell: the command is a list of words. `{sender}` in a word is the sender's address (`<>` for
   a report), the word `{recipients}` all recipients, a word each. What a sendmail program would
   take for an option, a file or a program is refused (5.1.3, 5.1.7), before anything runs.
2. The environment, the directory and the descriptors are those of omq.services.mail.pipe_channel,
   the rights those of this service. After `xport_timeout_s` its process group is killed; one that
   has ended keeps the children that it left behind, which may be delivering.
3. `xport_wait` (the seed's "wait until each message is processed by sendmail before sending the
   next one"): a reader runs one command at a time. Without it one runs for each message of its
   batch (services.conf), side by side, and the batch is finished when all have ended.
4. The exit code is one of sysexits.h: 0 it has the mail; 71 to 75, a signal, a command that cannot
   be started or does not end: the message waits, by the times of unix.out (`unix_retry_step_s`
   ...); any other: its sender gets a report, with the command's own words.

Crash argument: the message leaves its queue only after exit code 0, or with a report. Killed while
the command runs, or after it and before the disposition, the mail returns and the command has
it twice, with the same Message-ID. Where ERRMGR takes no report of a mail that was given away, the
report alone waits on this queue (`unix.ended`): nothing is given away again for it.

Errors: those of reading the body (BodyDamaged, BodyUnavailable), which cost it an attempt.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from omq.base import clock, events, names
from omq.base.amounts import duration
from omq.base.errors import OmqError
from omq.base.event_log import REPORT, WARNING
from omq.services.mail import mail_message as mail
from omq.services.mail.mail_log import delay_s, delivery, mail_id, mail_log_of
from omq.services.mail.mail_retry import Retry
from omq.services.mail.pipe_channel import OUTCOMES, outcome, run
from omq.services.mail.smtp_reply import STATUS_WORDS, Result, Verdict
from omq.services.mail.unix_out_settling import (
    ENDED,
    copy_of,
    disposition,
    given_up,
    refused,
    report_later,
    softened,
    warned,
)
from omq.services.readers.parent import run_service
from omq.services.readers.service import Disposition, Message, Move, Service

SENDER: Final = "{sender}"
RECIPIENTS: Final = "{recipients}"
NOBODY: Final = "<>"
"""The null sender, as every sendmail program takes it."""
MEANINGS: Final = {**OUTCOMES, **dict.fromkeys((72, 73), (Verdict.TEMPORARY, "4.3.0"))}
"""As of a command of [pipes], but for EX_OSFILE and EX_CANTCREAT: the files that a sendmail program
cannot read or make are its own, those of its queue, so that is for now."""
_SPECIAL: Final = ("-", "/", "|", ":", '"|', '"/')
"""How an address begins that would be an option, a file, a program or a list of addresses."""


@dataclass(frozen=True, slots=True)
class _Job:
    """A message, read; `words` are empty where nothing is to run."""

    message: Message
    properties: Mapping[str, str]
    recipients: tuple[str, ...]  # whom the command is run for
    refused: tuple[Result, ...]
    words: tuple[str, ...]
    text: bytes


class XportOutService(Service):
    """One reader process of the sendmail interface."""

    title = "Sendmail Interface"

    def open(self) -> None:
        self.mail_log = mail_log_of(self.context)
        self._given = dict[str, Disposition]()
        self.context.log.event(events.XPORT_STARTED, REPORT)

    def close(self) -> None:
        self.mail_log.close()
        self.context.log.event(events.XPORT_STOPPED, REPORT)

    def handle(self, message: Message) -> Disposition:
        self._given.clear()
        job = self._read(message)
        return job if not isinstance(job, _Job) else self._end(job, self._run(job))

    def handle_many(self, messages: Sequence[Message]) -> Sequence[Disposition] | None:
        if self.context.settings.xport_wait:
            return None
        self._given.clear()
        read = [self._read(message) for message in messages]
        jobs = [each for each in read if isinstance(each, _Job)]
        with ThreadPoolExecutor(len(messages)) as pool:
            ended = dict(zip(map(id, jobs), pool.map(self._run, jobs), strict=True))
        return [self._end(each, ended[id(each)]) if isinstance(each, _Job) else each
                for each in read]

    def refused(self, message: Message, error: OmqError) -> Disposition | None:
        given = self._given.get(message.message_id)
        retry_s = float(self.context.settings.reader_refused_retry_s)
        return None if given is None else report_later(given, message, self.queue, retry_s)

    def _read(self, message: Message) -> _Job | Disposition:
        """What is to be run for a message."""
        properties = message.properties
        if ENDED in properties:
            kept = {name: text for name, text in properties.items() if name != ENDED}
            return Move((), (copy_of(message, names.ERRMGR, kept),))
        envelope = mail.Envelope.of(properties)
        own = properties.get(mail.to_name(self.queue), "")
        everybody = tuple(dict.fromkeys(mail.lines(own))) or envelope.recipients
        wrong = problem_of(envelope.sender) if envelope.sender else ""
        status = "5.1.7" if wrong else "5.1.3"
        problems = {each: f"the sender: {wrong}" if wrong else problem_of(each)
                    for each in everybody}
        taken = tuple(each for each in everybody if not problems[each])
        return _Job(message, properties, taken,
                    tuple(refused(each, status, text) for each, text in problems.items() if text),
                    words_of(self.context.settings.xport_command, envelope.sender, taken),
                    message.body.replace(b"\r\n", b"\n"))

    def _run(self, job: _Job) -> tuple[Result, ...]:
        """What became of each recipient; in any thread."""
        if not job.recipients:
            return job.refused
        program, timeout_s = job.words[0], float(self.context.settings.xport_timeout_s)
        try:
            code, said = run(job.words, "", job.text, timeout_s, children_stay=True)
            found = outcome("", code, said, MEANINGS)
        except TimeoutError:  # an OSError, too
            found = Result("", Verdict.TEMPORARY, "4.3.0",
                           f"{program} did not end in {duration(timeout_s)}")
        except (OSError, subprocess.SubprocessError) as error:
            found = Result("", Verdict.TEMPORARY, "4.3.5", mail.one_line(f"{program}: {error}"))
        return (*job.refused, *(Result(each, found.verdict, found.status, found.text, program)
                                for each in job.recipients))

    def _end(self, job: _Job, results: Sequence[Result]) -> Disposition:
        """What happens to the message."""
        message, settings = job.message, self.context.settings
        retry = Retry.of(message, clock.wall_ns())
        expired = not settings.soft_bounce and retry.expired(settings.unix_retry_expiry_s)
        if settings.soft_bounce:
            results = [softened(each) for each in results]
        if expired:
            results = [given_up(each) for each in results]
        self._tell(job, results, expired=expired)
        pause_s = retry.pause_s(settings.unix_retry_step_s, settings.unix_retry_max_s)
        warn_s = settings.delay_warning_s
        decided = None
        if warn_s and not expired and retry.now_ns - retry.since_ns > warn_s * clock.NS_PER_S:
            decided = warned(message, self.queue, results, retry, pause_s)
        if decided is None:
            decided = disposition(message, self.queue, results, retry, pause_s)
        if any(each.verdict is Verdict.DELIVERED for each in results):
            self._given[message.message_id] = decided
        return decided

    def _tell(self, job: _Job, results: Sequence[Result], *, expired: bool) -> None:
        message = job.message
        first = mail_id(job.properties, message.message_id)
        since = delay_s(job.properties, message.put_time_ns)
        self.mail_log.write(
            ("xport", delivery(first, each.recipient, each.mta or "none", since, each.status,
                               STATUS_WORDS[each.verdict], each.text)) for each in results)
        kinds = {Verdict.DELIVERED: (events.XPORT_GIVEN, REPORT),
                 Verdict.TEMPORARY: (events.XPORT_DEFERRED, WARNING),
                 Verdict.PERMANENT: (events.XPORT_EXPIRED if expired
                                     else events.XPORT_REFUSED, WARNING)}
        for verdict, (event, level) in kinds.items():
            these = [each for each in results if each.verdict is verdict]
            if these:
                self.context.log.event(event, level, message_id=message.message_id,
                                       recipients=" ".join(each.recipient for each in these),
                                       answer=these[0].text)


def problem_of(address: str) -> str:
    """Why an address is not given to the command; empty: it is."""
    if address.startswith(_SPECIAL):
        return f"an address that begins with {address[0]!r} means something else to the command"
    return mail.address_problem(address, smtputf8=True) or ""


def words_of(command: str, sender: str, recipients: Sequence[str]) -> tuple[str, ...]:
    """The command for these addresses: each is one word, or a part of one."""
    words: list[str] = []
    for word in command.split():
        if word == RECIPIENTS:
            words.extend(recipients)
        else:
            words.append(word.replace(SENDER, sender or NOBODY))
    return tuple(words)


def main(argv: list[str] | None = None) -> int:
    """The program xport.out; returns its exit code."""
    return run_service("xport", XportOutService, argv)
