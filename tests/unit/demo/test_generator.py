"""The generator: repeatable, valid, and with the variety that the demo promises."""

from __future__ import annotations

import re
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.utils import getaddresses

import pytest

from tests.demo.generator import generate, make_mail
from tests.demo.mails import LINE_MAX, Mail, as_delivered, header_fields, is_local, is_unknown

COUNT = 900


@pytest.fixture(scope="module")
def mails() -> list[Mail]:
    made = list(generate(7, COUNT))
    assert len(made) == COUNT
    return made


def parsed(mail: Mail) -> EmailMessage:
    message = message_from_bytes(mail.data, policy=policy.SMTPUTF8)
    assert isinstance(message, EmailMessage)
    return message


def test_same_seed_same_messages() -> None:
    assert list(generate(3, 50)) == list(generate(3, 50))
    assert list(generate(3, 50)) != list(generate(4, 50))


def test_a_message_depends_on_its_number_alone() -> None:
    assert list(generate(3, 30))[20:] == list(generate(3, 10, first=20))
    assert make_mail(3, 25) == next(generate(3, 1, first=25))


def test_ids_are_unique_and_on_top(mails: list[Mail]) -> None:
    assert len({mail.demo_id for mail in mails}) == COUNT
    for mail in mails:
        assert mail.data.startswith(b"X-Demo-Id: " + mail.demo_id.encode() + b"\r\n")


def test_lines_fit_smtp(mails: list[Mail]) -> None:
    for mail in mails:
        lines = mail.data.split(b"\r\n")
        assert lines.pop() == b""
        assert not any(b"\r" in line or b"\n" in line or b"\0" in line for line in lines)
        assert max(map(len, lines)) <= LINE_MAX


def test_messages_parse_without_defect(mails: list[Mail]) -> None:
    for mail in mails:
        if mail.origin == "no_body":  # a header without the empty line is such a defect
            continue
        message = parsed(mail)
        assert message.defects == []
        assert message["Subject"] and message["Date"].datetime and message["Message-ID"]
        for part in message.walk():
            assert part.defects == [], mail.demo_id
            if not part.is_multipart():
                part.get_content()


def test_envelopes(mails: list[Mail]) -> None:
    for mail in mails:
        assert 1 <= len(mail.recipients) == len(set(mail.recipients)) <= 12
        message = parsed(mail)
        lists = [str(message[name]) for name in ("To", "Cc") if message[name] is not None]
        named = {address for _, address in getaddresses(lists) if "@" in address}
        assert named == set(mail.recipients) - set(mail.hidden)
        if message["Bcc"] is not None:
            assert {each for _, each in getaddresses([message["Bcc"]])} == set(mail.hidden)
        assert mail.smtputf8 or mail.data.partition(b"\r\n\r\n")[0].isascii()


def test_variety(mails: list[Mail]) -> None:
    assert len({mail.origin for mail in mails}) == 9
    assert {len(mail.recipients) for mail in mails} >= {1, 2, 3, 5, 8}
    assert any(not mail.sender for mail in mails)
    assert any(is_unknown(name) for mail in mails for name in mail.recipients)
    mixed = [mail for mail in mails if len({is_local(name) for name in mail.recipients}) == 2]
    assert len(mixed) > COUNT / 10
    hidden = sum(bool(mail.hidden) for mail in mails)
    assert COUNT * 0.07 < hidden < COUNT * 0.13
    priorities = {str(parsed(mail)["Priority"]) for mail in mails}
    assert priorities == {"urgent", "normal", "non-urgent", "None"}
    assert any(re.search(rb"\r\n\.\r\n", mail.data) for mail in mails)
    assert any(mail.data.endswith(b"\r\n\r\n") for mail in mails)
    assert max(len(mail.data) for mail in mails) > 300 * 1024
    assert any(b"\r\nBcc: " in mail.data for mail in mails)


def test_as_delivered_removes_the_field_and_nothing_else(mails: list[Mail]) -> None:
    for mail in mails:
        rest = as_delivered(mail.data)
        names = [name for name, _, _ in header_fields(rest)]
        assert b"bcc" not in names
        if b"\r\nBcc:" not in mail.data:
            assert rest == mail.data
        else:
            start = mail.data.index(b"\r\nBcc:") + 2
            end = len(mail.data) - len(rest) + start
            assert mail.data[:start] + mail.data[end:] == rest
            assert mail.data[start:end].count(b"@") == len(mail.hidden)
