"""The non-delivery report: what a sender gets when a message did not reach everybody.

A multipart/report of three parts (RFC 6522, RFC 3464): a text for people, in the words of a
template (omq.services.mail.report_templates), the machine-readable
delivery status with one block per recipient, and the returned message: its header alone or, by the
setting, all of it while it is small. The report is an ordinary message with the null sender, so
that no report can ever cause another one (RFC 5321 section 4.5.5), and says Auto-Submitted (RFC
3834).

Invariants: 1. no text of the failed message or of a foreign server reaches a header line of the
report unescaped; 2. what the returned part holds is limited; 3. the Message-ID is derived from the
queue message, so a report made twice can be told to be the same.

No errors: whatever the message is made of, a report results.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email import encoders
from email.generator import BytesGenerator
from email.message import Message as MimePart
from email.mime.multipart import MIMEMultipart
from email.mime.nonmultipart import MIMENonMultipart
from email.mime.text import MIMEText
from email.policy import Compat32
from email.utils import format_datetime
from io import BytesIO

from omq.base.clock import NS_PER_S
from omq.services.mail.dsn import FAILED
from omq.services.mail.mail_message import Failure, header_end, one_line
from omq.services.mail.report_templates import ACTIONS, Templates, subject_field

_LINE_BYTES_MAX = 998  # RFC 5322 2.1.1; a longer line travels encoded
_REPLY = re.compile(r"[245]\d\d(?:\s|-|$)")
_POLICY = Compat32(linesep="\r\n")


@dataclass(frozen=True, slots=True)
class ReportStyle:
    """What is the same in all reports of this host."""

    hostname: str
    postmaster: str
    full: bool  # return the whole message while it is within `original_bytes_max`
    original_bytes_max: int
    scan_bytes: int
    templates: Templates = field(default_factory=Templates)


@dataclass(frozen=True, slots=True)
class FailedMessage:
    """The message that the report is about."""

    sender: str
    body: bytes
    message_id: str
    arrival_ns: int
    failures: Sequence[Failure]
    envelope_id: str = ""  # the mail's, as its sender's host was told it
    sender_id: str = ""  # the sender's own (RFC 3461 ENVID), decoded
    originals: Mapping[str, str] = field(default_factory=dict)  # ORCPT by recipient, decoded
    full: bool | None = None  # return all of it, or its header; None: as the style says
    language: str = ""  # of the sender, as far as it is known


def _action(failed: FailedMessage) -> str:
    """Of the report as a whole: the worst of its recipients'."""
    actions = {each.action for each in failed.failures}
    return next((each for each in ACTIONS if each in actions), FAILED)


def message_id_of(message_id: str, style: ReportStyle) -> str:
    """The Message-ID of the report of this queue message."""
    return f"<{message_id}.report@{style.hostname}>"


def build_report(failed: FailedMessage, style: ReportStyle, now_ns: int) -> bytes:
    """The report as RFC 5322 bytes with CRLF."""
    template = style.templates.chosen(_action(failed), failed.language)
    subject, text = template.filled(_values(failed, style))
    report = MIMEMultipart("report")
    report.set_param("report-type", "delivery-status")
    report.attach(_explanation(text, template.language))
    report.attach(_status(failed, style))
    report.attach(_returned(failed, style))
    del report["MIME-Version"]  # stands among the fields below, which the package must not fold
    return _fields(failed, style, now_ns, subject) + _as_bytes(report)


def _fields(failed: FailedMessage, style: ReportStyle, now_ns: int, subject: str) -> bytes:
    lines = (
        f"Date: {_date(now_ns)}",
        f"From: Mail Delivery System <MAILER-DAEMON@{style.hostname}>",
        f"To: <{one_line(failed.sender)}>",
        f"Subject: {subject_field(subject)}",
        f"Message-ID: {message_id_of(failed.message_id, style)}",
        "Auto-Submitted: auto-replied",
        "MIME-Version: 1.0",
    )
    return "".join(f"{line}\r\n" for line in lines).encode("utf-8", "replace")


def _values(failed: FailedMessage, style: ReportStyle) -> dict[str, str]:
    """What a template's fields stand for; none holds a line end but the recipients."""
    described = "\n\n".join(
        f"<{one_line(each.recipient)}>: {each.status}\n    {_by(each)}{each.reason}"
        for each in failed.failures)
    return {"host": style.hostname, "postmaster": style.postmaster, "recipients": described,
            "sender": one_line(failed.sender), "count": str(len(failed.failures)),
            "id": one_line(failed.envelope_id or failed.message_id),
            "arrival": _date(failed.arrival_ns)}


def _explanation(text: str, language: str) -> MimePart:
    part = MIMEText(text, "plain", "us-ascii" if text.isascii() else "utf-8")
    if language:
        part["Content-Language"] = language
    return part


def _said(failure: Failure) -> bool:
    """Whether the reason is the reply of another host, and not what we make of it."""
    return bool(failure.mta and _REPLY.match(failure.reason))


def _by(failure: Failure) -> str:
    return f"{failure.mta}{' said' if _said(failure) else ''}: " if failure.mta else ""


def _status(failed: FailedMessage, style: ReportStyle) -> MimePart:
    whole = MimePart()
    if failed.sender_id:
        whole["Original-Envelope-Id"] = _ascii(failed.sender_id)
    whole["Reporting-MTA"] = f"dns; {style.hostname}"
    whole["X-Omq-Queue-ID"] = failed.envelope_id or failed.message_id
    whole["Arrival-Date"] = _date(failed.arrival_ns)
    blocks: list[MimePart | str] = [whole]
    for failure in failed.failures:
        block = MimePart()
        if original := failed.originals.get(failure.recipient):
            block["Original-Recipient"] = _ascii(original)
        block["Final-Recipient"] = _typed_address(failure.recipient)
        block["Action"] = _ascii(failure.action)
        block["Status"] = failure.status
        if failure.mta:
            block["Remote-MTA"] = f"dns; {_host(failure.mta)}"
        kind = "smtp" if _said(failure) else "x-omq"
        block["Diagnostic-Code"] = f"{kind}; {_ascii(failure.reason)}"
        blocks.append(block)
    part = MIMENonMultipart("message", "delivery-status")
    part.set_payload(blocks)
    return part


def _returned(failed: FailedMessage, style: ReportStyle) -> MimePart:
    # message/rfc822 may not be encoded (RFC 2046 5.2.1): only what travels as it is goes whole.
    full = style.full if failed.full is None else failed.full
    if full and len(failed.body) <= style.original_bytes_max and _plain(failed.body):
        whole = MIMENonMultipart("application", "octet-stream")
        whole.replace_header("Content-Type", "message/rfc822")
        whole.set_payload(failed.body.decode("ascii"))  # the generator writes it unchanged
        return whole
    end = header_end(failed.body, style.scan_bytes)
    header = failed.body[: min(end, style.original_bytes_max)]
    part = MIMENonMultipart("text", "rfc822-headers")
    if _plain(header):
        part.set_payload(header.decode("ascii").replace("\r\n", "\n"))
    else:
        part.set_param("charset", "utf-8")
        part.set_payload(header)
        encoders.encode_base64(part)
    return part


def _plain(data: bytes) -> bool:
    """Whether every line may travel as it is: ASCII, short, ended by CRLF."""
    if not data.isascii() or b"\0" in data or re.search(rb"\r(?!\n)|(?<!\r)\n", data):
        return False
    return all(len(line) <= _LINE_BYTES_MAX for line in data.split(b"\r\n"))


def _typed_address(address: str) -> str:
    """RFC 3464 2.3.2, or RFC 6533 section 3 for an address that is not ASCII."""
    cleaned = one_line(address)
    if cleaned.isascii():
        return f"rfc822; {cleaned}"
    quoted = (each if each.isascii() else f"\\x{{{ord(each):X}}}" for each in cleaned)
    return f"utf-8; {''.join(quoted)}"


def _host(mta: str) -> str:
    """RFC 3464 2.3.5: a name, or an address in brackets."""
    try:
        return f"[{ipaddress.ip_address(mta)}]"
    except ValueError:
        return _ascii(mta)


def _ascii(text: str) -> str:
    return one_line(text).encode("ascii", "backslashreplace").decode("ascii")


def _date(wall_ns: int) -> str:
    return format_datetime(datetime.fromtimestamp(wall_ns // NS_PER_S, UTC))


def _as_bytes(part: MimePart) -> bytes:
    # From_ lines must stay as they are: the returned header is evidence.
    out = BytesIO()
    BytesGenerator(out, mangle_from_=False, policy=_POLICY).flatten(part)
    return out.getvalue()
