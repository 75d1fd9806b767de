"""Reports of TLS by mail (RFC 8460): to whom a domain wants them, and the mail that carries one.

    _smtp._tls.example.org TXT   v=TLSRPTv1; rua=mailto:tls@example.org,https://example.org/tls

The header says `TLS-Required: No` (RFC 8689): a report must arrive where TLS does not work (section
3), and unix.out does not let the domain's policy stop it. The same report makes the same bytes, but
for its Date.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable
from datetime import datetime
from email.mime.application import MIMEApplication
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText
from email.utils import format_datetime
from typing import Any, Final
from urllib.parse import unquote

from omq.services.mail.mail_message import address_problem

RECORD: Final = "_smtp._tls."
ADDRESSES_MAX: Final = 10
"""Of one domain; what else it names is not written to."""
_VERSION: Final = b"v=TLSRPTv1"
_MAILTO: Final = "mailto:"
_PLAIN: Final = re.compile(r"[!-~]+@[A-Za-z0-9.-]+", re.ASCII)


def addresses(texts: Iterable[bytes]) -> tuple[list[str], int]:
    """The addresses that the TXT records of a domain name, and how many other places (https) they
    name. Not exactly one record of this version means that no reports are wanted (section 3)."""
    found = [each for each in texts if each.split(b";")[0].strip() == _VERSION]
    if len(found) != 1:
        return [], 0
    told: list[str] = []
    others = 0
    for part in found[0].decode("ascii", "replace").split(";")[1:]:
        name, _, value = part.partition("=")
        if name.strip() != "rua":
            continue
        for place in value.split(","):
            text = place.strip()
            address = unquote(text[len(_MAILTO):].partition("?")[0])
            if text[: len(_MAILTO)].lower() != _MAILTO or not _PLAIN.fullmatch(address) or (
                    address_problem(address, smtputf8=False)):
                others += bool(text)
            elif address not in told:
                told.append(address)
    return told[:ADDRESSES_MAX], others + len(told[ADDRESSES_MAX:])


def mail_of(report: dict[str, Any], domain: str, to: str, now: datetime) -> bytes:
    """The mail that carries a report (section 5.3), with CRLF."""
    host, number = report["organization-name"], report["report-id"]
    begins, ends = (_seconds(report["date-range"][f"{each}-datetime"]) for each in ("start", "end"))
    data = gzip.compress(json.dumps(report, separators=(",", ":")).encode("ascii"), mtime=0)
    whole = MIMEMultipart("report", f"=_{number}", report_type="tlsrpt")
    whole["From"], whole["To"] = report["contact-info"], to
    whole["Date"] = format_datetime(now)
    whole["Message-ID"] = f"<{number}.{_token(domain)}@{host}>"
    whole["Subject"] = f"Report Domain: {domain} Submitter: {host} Report-ID: <{number}@{host}>"
    whole["TLS-Report-Domain"], whole["TLS-Report-Submitter"] = domain, host
    whole["TLS-Required"] = "No"
    whole["Auto-Submitted"] = "auto-generated"
    whole.attach(MIMEText(
        f"This is a report of TLS, as RFC 8460 describes it, of mail from {host} for {domain},\n"
        f"{report['date-range']['start-datetime']} to {report['date-range']['end-datetime']}.\n"))
    part = MIMEApplication(data, "tlsrpt+gzip")
    part.add_header("Content-Disposition", "attachment",
                    filename=f"{host}!{domain}!{begins}!{ends}!{number}.json.gz")
    whole.attach(part)
    return whole.as_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def _seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def _token(domain: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "-", domain)[:100]
