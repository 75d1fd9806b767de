"""`omq tls --mail`: reports of TLS (RFC 8460) go to those who ask for them in the DNS.

unix.tls-reports.json in the spool says who has which: {"2026-11-28": [["a.test", "tls@a.test"]]},
of the days that are still sent (yesterday and the day before, in UTC).

Reports go by SMTP to this host's own smtp.server, whose milters sign them (section 3 wants DKIM).

In the middle of a crash: what smtp.server has answered with 250 is on its queue. A death before the
list is written sends that report again, with the same report-id and Message-ID; so does a list that
cannot be read, which its output says. One run at a time (a lock).

Invariant: a report is listed after the 250 alone, and the list is on the disk before the next mail.

Errors: ConfigError, ServerAway, SpoolLocked, SpoolFull, DiskError; TlsReportsWait when some could
not be sent now: the next run tries them.
"""

from __future__ import annotations

import json
import os
import smtplib
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from omq.base import side_files
from omq.base.errors import ServerAway, TlsReportsWait
from omq.services.mail.mx_lookup import NamesWorker, check_names
from omq.services.mail.routes_file import load_routes
from omq.services.mail.tls_report_mail import RECORD, addresses, mail_of
from omq.services.network.secret_file import wrong
from omq.storage import durable
from omq.storage.files import create_file
from omq.storage.spool import lock

if TYPE_CHECKING:
    from omq.base.paths import SpoolPaths
    from omq.base.settings import Settings

NAME: Final = "unix.tls-reports"
TIMEOUT_S: Final = 120.0
Report = tuple[str, str, dict[str, Any]]
"""Its day, its domain, and what RFC 8460 describes."""


class Mailed:
    """The list. `days`: those of which it is kept."""

    def __init__(self, path: Path, days: Iterable[str], tell: Callable[[str], None]) -> None:
        self._path = path
        data = side_files.read(path)
        known = _decoded(data or b"")
        if known is None:
            if data is not None or side_files.seen(path) is not None:
                tell(f"{path} cannot be read: it is begun anew, and reports that were sent already "
                     "are sent again, with the same ids")
            known = {}
        self._sent = {day: known.get(day, set()) for day in days}

    def has(self, day: str, domain: str, to: str) -> bool:
        """Whether it was sent."""
        return (domain, to) in self._sent[day]

    def note(self, day: str, domain: str, to: str) -> None:
        """It was taken: on the disk when this returns."""
        self._sent[day].add((domain, to))
        text = json.dumps({each: sorted(pairs) for each, pairs in self._sent.items()})
        new = self._path.with_suffix(".new")
        file = create_file(new, replace=True)
        try:
            _given_to_owner(file.fd, self._path.parent)
            file.write([text.encode("ascii") + b"\n"], 0, new=True)
            file.sync_all(new=True)
            durable.rename(new, self._path, new=True)
        finally:
            file.close()


def _given_to_owner(fd: int, spool: Path) -> None:
    """What root makes by hand the timer has to write."""
    if os.geteuid() == 0:
        owner = os.stat(spool)
        os.fchown(fd, owner.st_uid, owner.st_gid)


def _decoded(data: bytes) -> dict[str, set[tuple[str, str]]] | None:
    """None: it is not such a list."""
    with suppress(ValueError, RecursionError, TypeError, AttributeError):
        return {day: {(str(domain), str(to)) for domain, to in pairs}
                for day, pairs in json.loads(data).items()}
    return None


def check(settings: Settings, conf_dir: Path) -> None:
    """Whether reports are to be sent, and can be. ConfigError."""
    if not settings.unix_mx:
        raise wrong(conf_dir, "unix_tls_reports", "without unix_mx nobody is asked who wants "
                    "reports", "no, or unix_mx = yes")
    check_names(settings, conf_dir)


def send(paths: SpoolPaths, conf_dir: Path, settings: Settings, reports: Iterable[Report],
         days: Iterable[str], now: datetime, tell: Callable[[str], None]) -> int:
    """How many were sent. TlsReportsWait and others, see the module."""
    check(settings, conf_dir)
    with closing(lock(paths.root / f"{NAME}.lock", "omq tls --mail")) as held:
        _given_to_owner(held.fd, paths.root)
        routes = load_routes(conf_dir)
        names = NamesWorker(settings, routes)
        try:
            return _Run(paths, names, Mailed(paths.root / f"{NAME}.json", days, tell),
                        now, tell).all_of(reports)
        finally:
            names.close()
            routes.close()


class _Run:
    """One run."""

    def __init__(self, paths: SpoolPaths, names: NamesWorker, mailed: Mailed, now: datetime,
                 tell: Callable[[str], None]) -> None:
        self._port_file = paths.run / "smtp.port"
        self._names, self._mailed, self._now, self._tell = names, mailed, now, tell
        self._wanted: dict[str, list[str] | None] = {}
        self._line: smtplib.SMTP | None = None

    def all_of(self, reports: Iterable[Report]) -> int:
        """See `send`."""
        sent = waiting = 0
        reason = ""
        try:
            for day, domain, report in reports:
                wanted = self._who(domain)
                if wanted is None:
                    waiting, reason = waiting + 1, f"the DNS does not answer who wants {domain}'s"
                    continue
                for to in wanted:
                    if self._mailed.has(day, domain, to):
                        continue
                    problem = self._send(mail_of(report, domain, to, self._now),
                                         report["contact-info"], to)
                    if problem:
                        waiting, reason = waiting + 1, f"{to}: {problem}"
                        continue
                    self._mailed.note(day, domain, to)
                    self._tell(f"{day} {domain}: {to}")
                    sent += 1
        finally:
            self._close()
        if waiting:
            raise TlsReportsWait(count=waiting, reason=reason)
        return sent

    def _who(self, domain: str) -> list[str] | None:
        """Who wants the reports of a domain; None: there is no answer now."""
        if domain not in self._wanted:
            texts = self._names.texts(f"{RECORD}{domain}")
            told, others = addresses(texts) if texts is not None else (None, 0)
            if others:
                self._tell(f"{domain}: {others} of the places that it names are no addresses of "
                           "mail, or too many: they get nothing")
            self._wanted[domain] = told
        return self._wanted[domain]

    def _send(self, data: bytes, sender: str, to: str) -> str:
        """Why it was refused; empty: smtp.server has it. ServerAway."""
        try:
            if self._line is None:
                host, _, port = self._port_file.read_text("ascii").strip().rpartition(" ")
                self._line = smtplib.SMTP(_HERE.get(host, host), int(port), timeout=TIMEOUT_S)
            self._line.sendmail(sender, [to], data)
        except smtplib.SMTPRecipientsRefused as error:
            ((code, text),) = error.recipients.values()
            return _said(code, text)
        except smtplib.SMTPResponseException as error:
            return _said(error.smtp_code, error.smtp_error)
        except (OSError, ValueError) as error:
            raise ServerAway(server="smtp.server", reason=str(error)) from error
        return ""

    def _close(self) -> None:
        if self._line is not None:
            with suppress(OSError):
                self._line.quit()


def _said(code: int, text: bytes | str) -> str:
    """A reply of smtp.server."""
    words = text.decode("ascii", "replace") if isinstance(text, bytes) else text
    return f"{code} {words}"


_HERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
