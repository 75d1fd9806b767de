"""omq tls: what became of TLS with the hosts of other domains, as RFC 8460 has it.

    omq tls                        yesterday (UTC), a line of JSON a domain
    omq tls --day 2026-11-28       another day
    omq tls --domain example.org   of one domain
    omq tls --mail                 mails those of the last two days to who asks for them

It reads what the gateways noted of each line (logs/unix.tls.jsonl and the file before it, as far
back as they go); nothing is asked of them, and it works while they are stopped. A report is what
RFC 8460 section 4 describes. `--mail` (services.mail.tls_mailing) does nothing unless
`unix_tls_reports` says so, and may run as often as one likes: nobody gets a report twice.

Where the record has gaps (a full disk, torn lines, a day older than what is kept), a line on stderr
says so, for a count that is too low reassures.

The work is bounded by `unix_tls_sessions_bytes_max`. Errors: BadRequest of a day that is none;
NothingNoted where nothing was noted of that day; with `--mail` those of services.mail.tls_mailing.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from omq.base import clock
from omq.base.config import load_settings
from omq.base.errors import BadRequest, Exit, NothingNoted
from omq.base.names import escape
from omq.base.services_conf import load_services
from omq.base.settings import Settings
from omq.cli.common import existing, print_json, say, tool_parser
from omq.cli.look.gateways import GATEWAY
from omq.services.daemon.options import Location
from omq.services.mail import tls_mailing
from omq.services.mail.mail_host import mail_hostname
from omq.services.mail.tls_sessions import Gaps, read_sessions

NAME: Final = "omq tls"
FAILURES_MAX: Final = 1000
"""Rows of failures in one report; what is beyond them is counted in the summary."""


@dataclass(slots=True)
class _Policy:
    lines: tuple[str, ...]
    kind: str
    domain: str
    succeeded: int = 0
    failed: int = 0
    hosts: set[str] = field(default_factory=set)
    failures: dict[tuple[str, str, str], list[Any]] = field(default_factory=dict)


def main(argv: list[str]) -> int:
    """The command; its exit code."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.mail and (options.day or options.domain):
        parser.error("--mail is of all domains and of the last two days")
    location = existing(options)
    settings = load_settings(location.conf_dir)
    now = datetime.fromtimestamp(clock.wall_ns() / clock.NS_PER_S, UTC)
    if options.mail:
        return _mail(location, settings, now)
    day = _day(options.day) if options.day else now.date() - timedelta(days=1)
    gaps = Gaps()
    found = reports(_rows(location, gaps), day, mail_hostname(settings), settings.postmaster,
                    options.domain.lower())
    count = 0
    for each in found:
        print_json(each)
        count += 1
    if short := gaps.sentence(_begins_ns(day)):
        say(NAME, f"these counts may be too low: {short}")
    if not count:
        raise NothingNoted(day=day.isoformat())
    return Exit.OK


def _rows(location: Location, gaps: Gaps) -> Iterator[dict[str, Any]]:
    return (row for conf in load_services(location.conf_dir).values() if conf.program == GATEWAY
            for row in read_sessions(location.paths.logs, conf.name, gaps))


def _mail(location: Location, settings: Settings, now: datetime) -> int:
    if not settings.unix_tls_reports:
        say(NAME, "no reports are sent: unix_tls_reports of omq.conf is not yes")
        return Exit.OK
    days = [now.date() - timedelta(days=back) for back in (2, 1)]
    host = mail_hostname(settings)
    found = ((day.isoformat(), each["policies"][0]["policy"]["policy-domain"], each)
             for day in days
             for each in reports(_rows(location, Gaps()), day, host, settings.postmaster))
    tls_mailing.send(location.paths, location.conf_dir, settings, found,
                     [day.isoformat() for day in days], now, lambda line: print(line, flush=True))
    return Exit.OK


def reports(rows: Iterable[dict[str, Any]], day: date, host: str, postmaster: str, domain: str = ""
            ) -> Iterator[dict[str, Any]]:
    """A report for each domain that had mail on that day (UTC), by name."""
    begins = datetime(day.year, day.month, day.day, tzinfo=UTC)
    begins_ns = _begins_ns(day)
    ends_ns = begins_ns + 86_400 * clock.NS_PER_S
    policies: dict[str, dict[tuple[str, tuple[str, ...]], _Policy]] = {}
    for row in rows:
        if begins_ns <= row["time_ns"] < ends_ns:
            for each in row["domains"]:
                if each and (not domain or each == domain):
                    _count(policies.setdefault(each, {}), each, row)
    contact = postmaster if "@" in postmaster else f"{postmaster}@{host}"
    ends = begins + timedelta(days=1, seconds=-1)
    for name, of_domain in sorted(policies.items()):
        digest = hashlib.sha256(f"{host} {name} {day}".encode()).hexdigest()[:16]
        yield {
            "organization-name": host,
            "date-range": {"start-datetime": _time(begins), "end-datetime": _time(ends)},
            "contact-info": contact, "report-id": f"{day.isoformat()}-{digest}",
            "policies": [_shown(each) for each in of_domain.values()]}


def _count(policies: dict[tuple[str, tuple[str, ...]], _Policy], domain: str, row: dict[str, Any]
           ) -> None:
    lines = tuple(row["lines"])
    found = policies.setdefault((row["policy"], lines), _Policy(lines, row["policy"], domain))
    if row["host"]:
        found.hosts.add(row["host"])
    if not row["result"]:
        found.succeeded += 1
        return
    found.failed += 1
    key = row["result"], row["host"], str(row.get("address", ""))
    if key in found.failures:
        found.failures[key][0] += 1
    elif len(found.failures) < FAILURES_MAX:
        found.failures[key] = [1, row["reason"]]


def _shown(policy: _Policy) -> dict[str, Any]:
    said: dict[str, Any] = {"policy-type": policy.kind, "policy-domain": policy.domain}
    if policy.lines:
        said["policy-string"] = list(policy.lines)
    patterns = [each.partition(":")[2].strip() for each in policy.lines if each.startswith("mx:")]
    if policy.kind == "sts" and patterns:
        said["mx-host"] = patterns
    elif policy.kind == "tlsa":
        said["mx-host"] = sorted(policy.hosts)
    return {
        "policy": said,
        "summary": {"total-successful-session-count": policy.succeeded,
                    "total-failure-session-count": policy.failed},
        "failure-details": [
            {"result-type": result, "failed-session-count": count,
             "failure-reason-code": reason}
            | ({"receiving-mx-hostname": host} if host else {})
            | ({"receiving-ip": address} if address else {})
            for (result, host, address), (count, reason) in policy.failures.items()]}


def _begins_ns(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * clock.NS_PER_S


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise BadRequest(reason=f"{escape(text)!r} is not a date like 2026-11-28") from error


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(NAME, "What became of TLS with the hosts of other domains, as reports of "
                               "RFC 8460.", """
        omq tls
        omq tls --day 2026-11-28 --domain example.org
        omq tls --mail
        """)
    parser.add_argument("--day", default="", metavar="DAY", help="of this day in UTC, like "
                                                                 "2026-11-28; yesterday by default")
    parser.add_argument("--domain", default="", help="of this domain alone")
    parser.add_argument("--mail", action="store_true",
                        help="mail the reports of the last two days to those who ask for them in "
                             "the DNS and have not had them, if unix_tls_reports says so")
    return parser
