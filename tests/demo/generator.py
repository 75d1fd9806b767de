"""A generator of realistic mail, repeatable from its seed.

Message k depends on the seed and on k alone, so any single message can be made again. Kinds: plain
text, multipart/alternative, base64 attachments (200 bytes to 60 KiB, a few to 400 KiB, so that
bodies travel both inside the journal and as container files), 8-bit text, lines of the largest
allowed length, lines that begin with dots or "From ", an empty body, no body at all, and headers in
raw UTF-8 (RFC 6532).

The messages are put together by hand and not by the email package: its boundaries are random, and
the odd shapes above are exactly what it would tidy away.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.header import Header
from email.utils import formatdate

from tests.demo.envelopes import Envelope, draw_envelope
from tests.demo.mails import ID_HEADER, LINE_MAX, Mail

_EPOCH_S = 1_700_000_000  # the first message's Date; fixed, so that runs are repeatable
_STEP_S = 37
_ATTACHMENT_BYTES_MIN = 200
_ATTACHMENT_BYTES_USUAL = 60 * 1024
_ATTACHMENT_BYTES_MAX = 400 * 1024
_LARGE_SHARE = 0.05  # of the attachments
# Of the messages with Bcc recipients: some mail programs leave the field in what they submit.
_BCC_FIELD_SHARE = 0.3
_WORDS = (
    "the", "of", "to", "and", "queue", "message", "order", "invoice", "meeting", "please", "find",
    "attached", "we", "will", "send", "report", "draft", "Monday", "Friday", "before", "after",
    "project", "customer", "budget", "version", "plan", "review", "answer", "question", "number",
    "delivery", "contract", "server", "disk", "printer", "thanks", "regards", "today", "agreed",
)  # fmt: skip
_FOREIGN = (
    "Grüße aus Köln", "Réunion à Besançon", "Señalización", "Příští týden", "Žluťoučký kůň",
    "会議の議事録", "Отчёт за квартал", "Ελληνικά νέα", "Zażółć gęślą jaźń",
)  # fmt: skip
_NAMES = ("A. Miller", "Berta Fröhlich", "C. Dubois", "Jürgen Groß", "Łukasz Nowak", "佐藤 花子")


@dataclass(frozen=True, slots=True)
class _Content:
    """The MIME header lines and the body of one message; `body` None means there is no body."""

    headers: tuple[str, ...]
    body: bytes | None
    raw_utf8: bool = False


_Maker = Callable[[random.Random], _Content]


def generate(seed: int, count: int, first: int = 0) -> Iterator[Mail]:
    """Messages number `first` to `first + count - 1` of this seed."""
    for number in range(first, first + count):
        yield make_mail(seed, number)


def make_mail(seed: int, number: int) -> Mail:
    """Message `number` of this seed."""
    rng = random.Random(f"omq demo {seed} {number}")
    makers = [maker for maker, _ in _KINDS]
    maker = rng.choices(makers, [weight for _, weight in _KINDS])[0]
    envelope = draw_envelope(rng)
    content = maker(rng)
    demo_id = f"g{seed}-{number:06d}"
    lines = [f"{ID_HEADER.decode()}: {demo_id}", *_headers(rng, number, demo_id, envelope, content)]
    head = "\r\n".join(lines).encode("utf-8") + b"\r\n"
    data = head if content.body is None else head + b"\r\n" + content.body
    return Mail(
        demo_id=demo_id,
        sender=envelope.sender,
        recipients=envelope.recipients,
        hidden=envelope.hidden,
        data=data,
        origin=maker.__name__.strip("_"),
        smtputf8=content.raw_utf8,
    )


def _headers(
    rng: random.Random, number: int, demo_id: str, envelope: Envelope, content: _Content
) -> Iterator[str]:
    author = envelope.sender or "mailer-daemon@omq.test"
    yield f"Date: {formatdate(_EPOCH_S + number * _STEP_S)}"
    yield f"From: {_display_name(rng, content)} <{author}>"
    cut = rng.randint(1, len(envelope.visible)) if envelope.visible else 0
    yield f"To: {_address_list(envelope.visible[:cut])}"
    if envelope.visible[cut:]:
        yield f"Cc: {_address_list(envelope.visible[cut:])}"
    if envelope.hidden and rng.random() < _BCC_FIELD_SHARE:
        yield f"Bcc: {_address_list(envelope.hidden)}"
    yield f"Message-ID: <{demo_id}.{rng.getrandbits(48):012x}@demo.omq.test>"
    yield f"Subject: {_subject(rng, content)}"
    priority = rng.choices(("urgent", "normal", "non-urgent", None), (8, 5, 8, 79))[0]
    if priority is not None:
        yield f"Priority: {priority}"
    yield from content.headers


def _display_name(rng: random.Random, content: _Content) -> str:
    name = rng.choice(_NAMES)
    return f'"{name}"' if name.isascii() or content.raw_utf8 else Header(name, "utf-8").encode()


def _subject(rng: random.Random, content: _Content) -> str:
    if content.raw_utf8:
        return rng.choice(_FOREIGN)
    if rng.random() < 0.2:
        return Header(rng.choice(_FOREIGN), "utf-8").encode()
    return _sentence(rng)


def _address_list(addresses: tuple[str, ...]) -> str:
    """The addresses folded one a line; the usual phrase when there are none."""
    return ",\r\n ".join(addresses) or "undisclosed-recipients:;"


def _sentence(rng: random.Random) -> str:
    return " ".join(rng.choices(_WORDS, k=rng.randint(3, 9))).capitalize()


def _text(rng: random.Random) -> str:
    lines = [_sentence(rng) + "." for _ in range(rng.randint(1, 40))]
    return "\r\n".join(lines) + "\r\n"


def _text_headers(charset: str, encoding: str) -> tuple[str, ...]:
    return (
        "MIME-Version: 1.0",
        f"Content-Type: text/plain; charset={charset}",
        f"Content-Transfer-Encoding: {encoding}",
    )


def _plain(rng: random.Random) -> _Content:
    return _Content((), _text(rng).encode("ascii"))


def _eight_bit(rng: random.Random) -> _Content:
    text = _text(rng) + "\r\n".join(rng.choices(_FOREIGN, k=5)) + "\r\n"
    return _Content(_text_headers("utf-8", "8bit"), text.encode("utf-8"))


def _raw_utf8_headers(rng: random.Random) -> _Content:
    return _Content(_text_headers("utf-8", "8bit"), _text(rng).encode("utf-8"), raw_utf8=True)


def _long_lines(rng: random.Random) -> _Content:
    lines = [bytes(rng.choices(b"abcdefgh .", k=LINE_MAX - 1)) + b"." for _ in range(4)]
    lines.insert(rng.randrange(5), b"." + b"x" * (LINE_MAX - 1))
    return _Content((), b"\r\n".join(lines) + b"\r\n")


def _dots(rng: random.Random) -> _Content:
    lines = [".", "..", ". ", "...and so on", ".\t", "From here on", ">From there", "", "   ", "a."]
    rng.shuffle(lines)
    return _Content((), "\r\n".join([*lines, rng.choice((".", "..", "end"))]).encode() + b"\r\n")


def _empty_body(rng: random.Random) -> _Content:
    return _Content((), rng.choice((b"", b"\r\n", b"\r\n\r\n")))


def _no_body(rng: random.Random) -> _Content:
    del rng
    return _Content((), None)


def _multipart(kind: str, boundary: str, parts: list[tuple[str, bytes]]) -> _Content:
    header = f'Content-Type: multipart/{kind}; boundary="{boundary}"'
    body = b"This is a message in several parts.\r\n"
    for headers, content in parts:
        body += b"--" + boundary.encode() + b"\r\n" + headers.encode() + b"\r\n\r\n" + content
    return _Content(("MIME-Version: 1.0", header), body + b"--" + boundary.encode() + b"--\r\n")


def _alternative(rng: random.Random) -> _Content:
    text = _text(rng)
    html = "<html><body>\r\n<p>" + text.replace(".\r\n", ".</p>\r\n<p>") + "</p></body></html>\r\n"
    parts = [
        ("Content-Type: text/plain; charset=us-ascii", text.encode("ascii")),
        ("Content-Type: text/html; charset=us-ascii", html.encode("ascii")),
    ]
    return _multipart("alternative", f"=_alt_{rng.getrandbits(64):016x}", parts)


def _attachment(rng: random.Random) -> _Content:
    largest = _ATTACHMENT_BYTES_USUAL
    if rng.random() < _LARGE_SHARE:
        size = rng.randint(largest, _ATTACHMENT_BYTES_MAX)
    else:
        # Evenly spread over the orders of magnitude: many small ones, few large ones.
        size = int(_ATTACHMENT_BYTES_MIN * (largest / _ATTACHMENT_BYTES_MIN) ** rng.random())
    encoded = base64.encodebytes(rng.randbytes(size)).replace(b"\n", b"\r\n")
    header = (
        "Content-Type: application/octet-stream\r\nContent-Transfer-Encoding: base64\r\n"
        f'Content-Disposition: attachment; filename="data{size}.bin"'
    )
    text = ("Content-Type: text/plain; charset=us-ascii", _text(rng).encode("ascii"))
    return _multipart("mixed", f"=_mix_{rng.getrandbits(64):016x}", [text, (header, encoded)])


# What share of the messages is of which kind, in percent.
_KINDS: tuple[tuple[_Maker, int], ...] = (
    (_plain, 40),
    (_alternative, 15),
    (_attachment, 25),
    (_eight_bit, 7),
    (_long_lines, 3),
    (_dots, 4),
    (_empty_body, 2),
    (_no_body, 1),
    (_raw_utf8_headers, 3),
)
