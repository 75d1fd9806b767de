"""A mail message on a queue: its envelope as properties, its header read without parsing it all.

The body of a queue message is the RFC 5322 text exactly as it was accepted (lines end in CRLF where
the submitter sent CRLF). Everything else travels in properties, named here and nowhere else:

    mail.from        sender, empty = the null sender       mail.peer, mail.helo   who submitted it
    mail.to          recipients as submitted, one a line   mail.body              7BIT or 8BITMIME
    mail.smtputf8    "1" or absent
    mail.id          of the mail: that of the   mail.arrival   when that one came, wall clock,
                     first message made for it                 ns since 1970
    mail.about       of a report: mail.id of what it is about; mail.held: why a filter set it aside
    mail.tls         "optional" or absent: its sender said so (TLS-Required: No, RFC 8689)
    mail.to.QUEUE    recipients for the reader of QUEUE    mail.orig.QUEUE        same order: the
                     (on LOCAL: mailbox names)                                    address submitted
    error.to, error.status, error.reason    failed recipients, same order, one a line; a single
                     status or reason stands for all       error.mta   who refused each, "-": we
    error.action     failed (absent: all), delayed, delivered or relayed, one a line
    mail.ret, mail.envid, mail.dsn    what the sender wants to be told (omq.services.mail.dsn)

Invariants: 1. an address never holds a line feed, so lists of lines are safe (`address_problem`
is asked before an address enters); 2. no function here raises on any bytes: mail is hostile;
3. the header is scanned to a limit that the caller gives, never the whole of a large body.

The header ends at the first empty line or at the first line that is not a header field, which is
how readers of mail see it too; so the text of a message without header is never taken for one.

Sources: RFC 5321 (envelope), RFC 5322 section 2.2 (fields, folding), RFC 2156 (Priority).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.utils import getaddresses

from omq.base.limits import PRIORITY_LOW, PRIORITY_NORMAL, PRIORITY_URGENT

FROM = "mail.from"
TO = "mail.to"
BODY = "mail.body"
SMTPUTF8 = "mail.smtputf8"
PEER = "mail.peer"
HELO = "mail.helo"
ID = "mail.id"
ARRIVAL = "mail.arrival"
ABOUT = "mail.about"
HELD = "mail.held"
TLS = "mail.tls"
TLS_OPTIONAL = "optional"
ERROR_TO = "error.to"
ERROR_STATUS = "error.status"
ERROR_REASON = "error.reason"
ERROR_MTA = "error.mta"
ERROR_ACTION = "error.action"
ADDRESS_BYTES_MAX = 320  # RFC 5321 4.5.3.1: 64 for the local part, "@", 255 for the domain
REASON_CHARS_MAX = 500  # a reply of RFC 5321 has lines of 512 bytes; more tells a sender nothing

_FIELD = re.compile(rb"([\x21-\x39\x3b-\x7e]+)[ \t]*:")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]+")
_JOINERS = dict.fromkeys((0x200C, 0x200D))  # words of some languages need them
_LEVELS = {
    b"priority": {b"urgent": PRIORITY_URGENT, b"normal": PRIORITY_NORMAL,
                  b"non-urgent": PRIORITY_LOW},
    b"x-priority": {b"1": PRIORITY_URGENT, b"2": PRIORITY_URGENT, b"3": PRIORITY_NORMAL,
                    b"4": PRIORITY_LOW, b"5": PRIORITY_LOW},
    b"importance": {b"high": PRIORITY_URGENT, b"normal": PRIORITY_NORMAL, b"low": PRIORITY_LOW},
}
_RANKING = frozenset(_LEVELS)

Fields = Sequence[tuple[bytes, int, int]]
"""What `header_fields` found."""


def to_name(queue: str) -> str:
    """Name of the property that holds the recipients for the reader of `queue`."""
    return f"{TO}.{queue}"


def original_name(queue: str) -> str:
    """Name of the property that holds the submitted addresses behind `to_name(queue)`."""
    return f"mail.orig.{queue}"


def lines(text: str) -> tuple[str, ...]:
    """The entries of a list property (only LF separates them: addresses may hold U+2028)."""
    return tuple(entry for entry in text.split("\n") if entry)


@dataclass(frozen=True, slots=True)
class Envelope:
    """Who sends a message to whom; the recipients as they were submitted."""

    sender: str
    recipients: tuple[str, ...]
    eight_bit: bool = False
    smtputf8: bool = False
    peer: str = ""
    helo: str = ""

    def properties(self) -> dict[str, str]:
        """The envelope as queue message properties."""
        found = {FROM: self.sender, TO: "\n".join(self.recipients),
                 BODY: "8BITMIME" if self.eight_bit else "7BIT"}
        if self.smtputf8:
            found[SMTPUTF8] = "1"
        if self.peer:
            found[PEER] = self.peer
        if self.helo:
            found[HELO] = self.helo
        return found

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Envelope:
        """The envelope in these properties; what is missing is empty, never an error."""
        return cls(one_line(properties.get(FROM, "")), lines(properties.get(TO, "")),
                   properties.get(BODY, "") == "8BITMIME", properties.get(SMTPUTF8, "") == "1",
                   properties.get(PEER, ""), properties.get(HELO, ""))


@dataclass(frozen=True, slots=True)
class Failure:
    """A recipient that cannot be reached: RFC 3463 status and the reason in words; `mta` is the
    host that said so, empty where we did."""

    recipient: str
    status: str
    reason: str
    mta: str = ""
    action: str = "failed"  # of RFC 3464 2.3.3: a sender may be told of other ends, too


_NO_MTA = "-"


def error_properties(failures: Iterable[Failure]) -> dict[str, str]:
    """Failures as the properties that the Error Manager reads."""
    listed = tuple(failures)
    found = {ERROR_TO: "\n".join(one_line(each.recipient) for each in listed),
             ERROR_STATUS: "\n".join(each.status for each in listed),
             ERROR_REASON: "\n".join(one_line(each.reason) or "refused" for each in listed)}
    if any(each.mta for each in listed):
        found[ERROR_MTA] = "\n".join(one_line(each.mta) or _NO_MTA for each in listed)
    if any(each.action != "failed" for each in listed):
        found[ERROR_ACTION] = "\n".join(each.action for each in listed)
    return found


def failures_of(properties: Mapping[str, str]) -> tuple[Failure, ...]:
    """The failures in these properties; a missing status or reason has a general one instead."""
    recipients = lines(properties.get(ERROR_TO, "")) or lines(properties.get(TO, ""))
    statuses = lines(properties.get(ERROR_STATUS, "")) or ("5.0.0",)
    reasons = lines(properties.get(ERROR_REASON, "")) or ("no reason was given",)
    mtas = lines(properties.get(ERROR_MTA, "")) or (_NO_MTA,)
    actions = lines(properties.get(ERROR_ACTION, "")) or ("failed",)

    def at(listed: tuple[str, ...], number: int) -> str:
        return listed[min(number, len(listed) - 1)]

    return tuple(Failure(recipient, at(statuses, n), at(reasons, n),
                         "" if at(mtas, n) == _NO_MTA else at(mtas, n), at(actions, n))
                 for n, recipient in enumerate(recipients))


def tracing(mail_id: str, arrival_ns: int) -> dict[str, str]:
    """By what all messages that are made of a mail are known; wall clock ns."""
    return {ID: mail_id, ARRIVAL: str(arrival_ns)}


def without_routing(properties: Mapping[str, str]) -> dict[str, str]:
    """Properties that a message made from this one keeps: no recipients, no earlier errors."""
    return {name: value for name, value in properties.items()
            if name != TO and not name.startswith((f"{TO}.", "mail.orig.", "error."))}


def one_line(text: str) -> str:
    """Foreign text made fit for one header line or property line: no controls, bounded."""
    if text.isascii() and text.isprintable():
        return text.strip()[:REASON_CHARS_MAX]
    cleaned = _UNSAFE.sub(" ", text).encode("utf-8", "replace").decode("utf-8")
    return cleaned.strip()[:REASON_CHARS_MAX]


def address_problem(address: str, *, smtputf8: bool) -> str | None:
    """Why an address may not enter the queues, None when it may. The null address is not asked."""
    try:
        size = len(address.encode("utf-8"))
    except UnicodeEncodeError:
        return "it is not UTF-8"
    if not address or size > ADDRESS_BYTES_MAX:
        return f"it has {size} bytes, allowed are 1 to {ADDRESS_BYTES_MAX}"
    if _UNSAFE.search(address) or "<" in address or ">" in address:
        return "it has a control character or an angle bracket"
    if not smtputf8 and not address.isascii():
        return "it is not ASCII and SMTPUTF8 was not asked for"
    if not (address.isascii() or address.translate(_JOINERS).isprintable()):
        return "it has a character that is not seen"
    if address.startswith("@") or address.endswith("@"):
        return "its local part or domain is empty"
    return None


def split_address(address: str) -> tuple[str, str]:
    """(local part, domain in lower case); the domain is empty for a bare name."""
    local, at, domain = address.rpartition("@")
    return (local, domain.lower().rstrip(".")) if at else (domain, "")


def header_fields(body: bytes, scan_bytes: int, at: int = 0) -> Iterator[tuple[bytes, int, int]]:
    """(name in lower case, start, end) of each field with its folded lines and line end, of the
    header that begins at `at`."""
    name, start = b"", at
    limit = min(len(body), at + scan_bytes)
    while at < limit:
        line_end = body.find(b"\n", at, limit) + 1 or limit
        if body[at] in b" \t" and name:
            at = line_end
            continue
        if name:
            yield name, start, at
        field = _FIELD.match(body, at, line_end)
        if field is None:
            return
        name, start, at = field[1].lower(), at, line_end
    if name:
        yield name, start, at


def tls_is_optional(body: bytes, scan_bytes: int) -> bool:
    """Whether the sender would rather have it delivered than encrypted (RFC 8689 section 4.2)."""
    if b"tls-required" not in body[:scan_bytes].lower():  # nearly all
        return False
    said = [body[start:end].partition(b":")[2].strip().lower()
            for name, start, end in header_fields(body, scan_bytes) if name == b"tls-required"]
    return said == [b"no"]


def header_end(body: bytes, scan_bytes: int) -> int:
    """Length of the header, without the empty line after it."""
    return max((end for _, _, end in header_fields(body, scan_bytes)), default=0)


def header_ends(body: bytes, scan_bytes: int) -> bool:
    """Whether all of the header lies within the scan."""
    if len(body) <= scan_bytes:
        return True
    return body.find(b"\n", header_end(body, scan_bytes), scan_bytes) >= 0


def field_values(body: bytes, names: frozenset[bytes], fields: Iterable[tuple[bytes, int, int]]
                 ) -> list[tuple[bytes, str]]:
    """(name, unfolded value) of the fields with these names, in order."""
    return [(name, _value(body[start:end])) for name, start, end in fields if name in names]


def _value(field: bytes) -> str:
    text = field.partition(b":")[2].decode("utf-8", "replace")
    return re.sub(r"\r?\n(?=[ \t])", "", text).strip()


def without_fields(body: bytes, names: frozenset[bytes], fields: Fields) -> bytes:
    """The body without the fields of these names; the very same object when there are none."""
    cuts = [(start, end) for name, start, end in fields if name in names]
    if not cuts:
        return body
    view, pieces, at = memoryview(body), [], 0
    for start, end in cuts:
        pieces.append(view[at:start])
        at = end
    return b"".join((*pieces, view[at:]))


def hops(fields: Fields) -> int:
    """How many Received fields the header has (RFC 5321 section 6.3: loop detection)."""
    return sum(name == b"received" for name, _, _ in fields)


def priority_of(body: bytes, fields: Iterable[tuple[bytes, int, int]]) -> int:
    """Queue priority from Priority, X-Priority or Importance, in this order of weight."""
    found: dict[bytes, int] = {}
    for name, value in field_values(body, _RANKING, fields):
        word = re.match(r"[a-z0-9-]+", value.lower())
        level = _LEVELS[name].get(word[0].encode()) if word else None
        if level is not None:
            found.setdefault(name, level)
    return next((found[name] for name in _LEVELS if name in found), PRIORITY_NORMAL)


def named_recipients(body: bytes, fields: Fields) -> frozenset[str]:
    """Addresses in To and Cc (and Resent-), case folded. A field that nobody can parse names none:
    its recipients then count as blind ones, which costs a copy each and discloses nothing."""
    found: set[str] = set()
    for name, start, end in fields:
        if name not in _VISIBLE:
            continue
        value = _value(body[start:end])
        plain = [_PLAIN.fullmatch(part.strip()) for part in value.split(",")]
        if all(plain):  # most are so, and the parser below takes many times as long
            found.update((each[1] or each[2]).casefold() for each in plain if each)
            continue
        try:
            found.update(address.casefold() for _, address in getaddresses([value]) if address)
        except (RecursionError, ValueError, IndexError):  # a comment nested a thousand deep
            continue
    return frozenset(found)


_ATOM = r"[^\s\"(),.:;<>@\\\[\]]+"
_ADDRESS = rf"({_ATOM}(?:\.{_ATOM})*@{_ATOM}(?:\.{_ATOM})*)"
_PLAIN = re.compile(rf"{_ADDRESS}|[^\"(),.:;<>@\\\[\]]*<{_ADDRESS}>")
"""An address of plain atoms, alone or behind plain words; linear on anything."""
_VISIBLE = frozenset((b"to", b"cc", b"resent-to", b"resent-cc"))
BLIND_FIELDS = frozenset((b"bcc", b"resent-bcc"))
