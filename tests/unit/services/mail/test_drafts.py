"""From a draft to a mail: recipients, fields that are added and removed, nothing else changed."""

from __future__ import annotations

import getpass
import os
from dataclasses import replace
from email import message_from_bytes
from email.policy import SMTP

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from omq.base.errors import BadRequest
from omq.base.settings import Settings
from omq.services.mail.drafts import Author, Submission, submission

SETTINGS = Settings(hostname="mx.test")
AUTHOR = Author("omsend", os.getuid())


def _submit(draft: bytes, *addresses: str, sender: str | None = "me@mx.test") -> Submission:
    return submission(draft, addresses, sender, SETTINGS, AUTHOR)


def _fields(mail: Submission) -> list[str]:
    return [name.lower() for name, _ in message_from_bytes(mail.body, policy=SMTP).items()]


def test_recipients_of_all_fields_once_each() -> None:
    draft = b"To: bob,\n Al <al@x.test>\nCc: bob, al@x.test\nBcc: Cy <cy@y.test>\nX: z@z.test\n\n"
    mail = _submit(draft, "dee@d.test, Ed <ed@e.test>")
    assert mail.envelope.recipients == ("dee@d.test", "ed@e.test", "bob", "al@x.test", "cy@y.test")


def test_resent_recipients_take_the_place_of_the_first_ones() -> None:
    draft = b"To: old@x.test\nResent-To: new@x.test\nResent-Bcc: blind@x.test\nBcc: older\n\n"
    mail = _submit(draft)
    assert mail.envelope.recipients == ("new@x.test", "blind@x.test")
    assert b"cc:" not in mail.body.lower()
    assert b"To: old@x.test" in mail.body


def test_missing_fields_are_added_and_present_ones_kept() -> None:
    assert _fields(_submit(b"To: bob\n\n")) == ["received", "from", "date", "message-id", "to"]
    whole = b"Message-Id: <1@x>\nDate: then\nFrom: you\nTo: bob\n\n"
    assert _fields(_submit(whole)) == ["received", "message-id", "date", "from", "to"]


@pytest.mark.parametrize(
    ("given_sender", "envelope", "header"),
    [
        ("a@b.test", "a@b.test", b"From: a@b.test\r\n"),
        ("<a@b.test>", "a@b.test", b"From: a@b.test\r\n"),
        ("", "", b"From: MAILER-DAEMON@mx.test\r\n"),
        ("<>", "", b"From: MAILER-DAEMON@mx.test\r\n"),
        (None, f"{getpass.getuser()}@mx.test", b"@mx.test\r\n"),
    ],
)
def test_sender(given_sender: str | None, envelope: str, header: bytes) -> None:
    mail = _submit(b"To: bob\n\n", sender=given_sender)
    assert mail.envelope.sender == envelope
    assert header in mail.body


@pytest.mark.parametrize(
    "draft",
    [
        b"To: bob\n\nText\r\nmore\n",
        b"To: bob\r\n\r\nText\r\nmore\n",
        b"From bob Mon Jan  1 00:00:00 2024\nTo: bob\n\nText\nmore\n",
        b"To: bob\nText\nmore\n",  # no empty line: the header ends where the fields end
    ],
)
def test_text_keeps_its_lines(draft: bytes) -> None:
    assert _submit(draft).body.split(b"\r\n\r\n", 1)[1] == b"Text\r\nmore\r\n"


def test_text_without_a_header_gets_one() -> None:
    mail = _submit(b"just words\n", "bob")
    assert mail.body.endswith(b"\r\n\r\njust words\r\n")
    assert _fields(mail) == ["received", "from", "date", "message-id"]


def test_eight_bit_and_international_addresses_are_told() -> None:
    plain, eight = _submit(b"To: bob\n\nx"), _submit("To: bob\n\nü".encode())
    assert (plain.envelope.eight_bit, plain.envelope.smtputf8) == (False, False)
    assert (eight.envelope.eight_bit, eight.envelope.smtputf8) == (True, False)
    assert _submit("To: jürg@x.test\n\n".encode()).envelope.smtputf8


@pytest.mark.parametrize(
    ("draft", "addresses"),
    [
        (b"", ()),
        (b"To: undisclosed-recipients:;\n\n", ()),
        (b"To: bob\n\n", ("@x.test",)),
        (b"To: " + b"b" * 400 + b"\n\n", ()),
        (b"Subject: s\n\nTo: bob\n", ()),
    ],
)
def test_refused(draft: bytes, addresses: tuple[str, ...]) -> None:
    with pytest.raises(BadRequest):
        _submit(draft, *addresses)


def test_limits() -> None:
    few = replace(SETTINGS, smtp_recipients_max=2)
    with pytest.raises(BadRequest, match="3 recipients"):
        submission(b"To: a, b, c\n\n", (), None, few, AUTHOR)
    short = replace(SETTINGS, mail_header_scan_bytes=64)
    with pytest.raises(BadRequest, match="header has more than 64"):
        submission(b"To: a\n" + b"X: y\n" * 20 + b"Bcc: b\n\n", (), None, short, AUTHOR)
    assert submission(b"To: a\n\n" + b"x\n" * 100, (), None, short, AUTHOR).body.endswith(b"x\r\nx\r\n")


@given(st.binary(max_size=200))
@example(b"Bcc: a\n b\nbcc : c\nBCC:d\n\n")
@example(b"Bcc: a\n\rBcc: b\n")
@example(b"\nBcc: a\n")
def test_any_bytes_make_a_mail_that_names_no_blind_recipient(data: bytes) -> None:
    try:
        mail = _submit(data, "bob")
    except BadRequest:
        return  # an address in it is wrong
    header = mail.body.split(b"\r\n\r\n", 1)[0]
    assert not any(line.lower().startswith((b"bcc:", b"bcc :")) for line in header.split(b"\r\n"))
    assert b"\n" not in mail.body.replace(b"\r\n", b"")
