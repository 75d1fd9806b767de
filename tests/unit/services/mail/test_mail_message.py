"""Envelope and header: what enters comes out, hostile bytes never raise."""

from __future__ import annotations

from email.utils import getaddresses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omq.services.mail import mail_message as mail

SCAN = 1 << 20


def fields(body: bytes) -> mail.Fields:
    return list(mail.header_fields(body, SCAN))


def test_envelope_survives_its_properties() -> None:
    envelope = mail.Envelope("a@b", ("c@d", "ü@é"), eight_bit=True, smtputf8=True,
                             peer="127.0.0.1", helo="host")
    assert mail.Envelope.of(envelope.properties()) == envelope
    null = mail.Envelope("", ("x",))
    assert mail.Envelope.of(null.properties()) == null
    assert mail.SMTPUTF8 not in null.properties()
    assert mail.Envelope.of({}) == mail.Envelope("", ())


def test_failures_survive_and_one_reason_stands_for_all() -> None:
    failures = (mail.Failure("a@b", "5.1.1", "no"), mail.Failure("c@d", "4.4.7", "late"))
    assert mail.failures_of(mail.error_properties(failures)) == failures
    shared = mail.failures_of({"error.to": "a\nb", "error.status": "5.1.1", "error.reason": "why"})
    assert [each.reason for each in shared] == ["why", "why"]
    assert mail.failures_of({"mail.to": "a"})[0].status == "5.0.0"


@pytest.mark.parametrize(("header", "level"), [
    (b"Priority: urgent", 7), (b"priority: Non-Urgent", 1), (b"X-Priority: 1 (Highest)", 7),
    (b"X-Priority: 5", 1), (b"X-Priority: 3", 4), (b"Importance: high", 7), (b"Importance: LOW", 1),
    (b"Priority: sometime", 4), (b"Importance: low\r\nPriority: urgent", 7), (b"Subject: x", 4),
    (b"X-Priority: 99\r\nImportance: low", 1), (b"Priority:", 4),
])
def test_priority(header: bytes, level: int) -> None:
    body = header + b"\r\n\r\nPriority: urgent\r\n"
    assert mail.priority_of(body, fields(body)) == level


def test_header_ends_at_the_first_line_that_is_no_field() -> None:
    assert mail.header_end(b"A: b\r\nhello\r\nBcc: x\r\n\r\n", SCAN) == len(b"A: b\r\n")
    assert mail.header_end(b"A: b\n c\n\nB: x\n", SCAN) == len(b"A: b\n c\n")
    assert mail.header_end(b"", SCAN) == 0
    assert mail.header_end(b" folded first\r\nA: b\r\n", SCAN) == 0


def test_fields_are_removed_with_their_folds_and_nothing_else() -> None:
    body = b"A: b\r\nBCC: x,\r\n y\r\nTo: z\r\nBcc:\r\n\r\nBcc: text\r\n"
    left = mail.without_fields(body, mail.BLIND_FIELDS, fields(body))
    assert left == b"A: b\r\nTo: z\r\n\r\nBcc: text\r\n"
    assert mail.without_fields(left, mail.BLIND_FIELDS, fields(left)) is left


def test_named_recipients() -> None:
    body = (b'To: "A, B" <A@Example.com>, group: x@y, z@y;\r\nCc: (c) q@r\r\nCc: s@t\r\n'
            b"Bcc: hidden@x\r\n\r\nTo: no@no\r\n")
    assert mail.named_recipients(body, fields(body)) == {
        "a@example.com", "x@y", "z@y", "q@r", "s@t"}


@given(st.lists(st.sampled_from(
    ["a@b.c", "A.B@c", "<x@y>", "Some One <s@t>", "\"q, r\" <u@v>", "(c) w@x", "a@b c", "<a@b",
     "a..b@c", ".a@b", "g: h@i;", "", " ", "ü@x", "a@[1.2.3.4]", "a@@b", "x <y> z@w"]), max_size=4))
def test_plain_addresses_are_those_that_the_parser_finds(parts: list[str]) -> None:
    value = ", ".join(parts)
    body = f"To: {value}\r\n\r\n".encode()
    parsed = {address.casefold() for _, address in getaddresses([value.strip()]) if address}
    assert mail.named_recipients(body, fields(body)) == parsed


def test_nothing_raises_on_nasty_messages(nasty: bytes) -> None:
    mail.named_recipients(nasty, fields(nasty))
    assert mail.hops(fields(nasty)) in (0, 20)
    assert mail.priority_of(nasty, fields(nasty)) == 4
    assert mail.header_end(nasty, SCAN) <= len(nasty)
    assert mail.without_fields(nasty, mail.BLIND_FIELDS, fields(nasty)) == nasty


@given(st.binary(max_size=300) | st.text("ABbc: \r\n\t.", max_size=80).map(str.encode))
def test_fields_lie_one_behind_the_other(body: bytes) -> None:
    at = 0
    for name, start, end in mail.header_fields(body, SCAN):
        assert start == at < end <= len(body)
        assert name == name.lower()
        at = end


def test_scan_is_bounded() -> None:
    body = b"A: b\r\n" * 100
    assert mail.header_end(body, 10) <= 10


@pytest.mark.parametrize("address", [
    "a\nb@c", "a\r@c", "a\x00@c", "", "<>", "a>b@c", "x" * 321, "@c", "a@", "\udcff@c", "é@c",
])
def test_addresses_that_may_not_enter(address: str) -> None:
    assert mail.address_problem(address, smtputf8=False) is not None


def test_addresses_that_may_enter() -> None:
    for address in ("a@b", "postmaster", '"a b"@c', "a@[127.0.0.1]"):
        assert mail.address_problem(address, smtputf8=False) is None
    assert mail.address_problem("é@ü", smtputf8=True) is None
    assert mail.address_problem("\u0645\u06cc\u200c\u062e\u0648@c", smtputf8=True) is None


@pytest.mark.parametrize("hidden", ["\u202e", "\u200b", "\ufeff", "\u2066", "\u00ad", "\u00a0",
                                    "\ue000", "\U000e0041"])
def test_addresses_do_not_look_like_others(hidden: str) -> None:
    assert mail.address_problem(f"a{hidden}é@c", smtputf8=True) is not None


def test_lines_do_not_change_their_direction() -> None:
    assert mail.one_line("a\u202eb\u2066c\u200fd") == "a b c d"


@given(st.text(max_size=600))
def test_one_line_is_one_line(text: str) -> None:
    cleaned = mail.one_line(text)
    assert len(cleaned.splitlines()) <= 1
    cleaned.encode("utf-8")
