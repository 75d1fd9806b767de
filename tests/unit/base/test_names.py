"""Names: what is allowed, what is refused, and that hostile text cannot reach a terminal."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omq.base import names
from omq.base.errors import BadName, BadPriority, BadProperty, BadRequest, OmqError


@pytest.mark.parametrize(
    "name", ["ROUTER", "A", "A.B_9", "X" * 16, names.IDEL_NAME, names.POISON_NAME])
def test_queue_names(name: str) -> None:
    assert names.check_queue_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "router", "X" * 17, ".", "..", "A-B", "A B", "A\n", "A/B", "Ä", "A\x00"]
)
def test_bad_queue_names(name: str) -> None:
    with pytest.raises(BadName) as caught:
        names.check_queue_name(name)
    assert names.QUEUE_RULE in str(caught.value)


@pytest.mark.parametrize(
    ("check", "good", "bad", "error"),
    [
        (names.check_service_name, "service.router", "-x", BadName),
        (names.check_service_name, "r", "..", BadName),
        (names.check_instance_name, "test-2", "../x", BadName),
        (names.check_instance_name, "2", "A", BadName),
        (names.check_client_name, "omsend", "a b", BadName),
        (names.check_client_name, "x" * 16, "\x1b[2J", BadName),
        (names.check_property_name, "mail.to.LOCAL", ".x", BadProperty),
        (names.check_property_name, "k" * 64, "k" * 65, BadProperty),
    ],
)
def test_other_names(
    check: Callable[[str], str], good: str, bad: str, error: type[OmqError]
) -> None:
    assert check(good) == good
    with pytest.raises(error):
        check(bad)


@pytest.mark.parametrize(
    ("text", "priority"), [("urgent", 7), ("Normal", 4), ("low", 1), ("0", 0), (" 9 ", 9)]
)
def test_priorities(text: str, priority: int) -> None:
    assert names.parse_priority(text) == priority
    assert names.check_priority(priority) == priority


@pytest.mark.parametrize("text", ["", "10", "-1", "high", "٣", "4.0"])
def test_bad_priority_words(text: str) -> None:
    with pytest.raises(BadPriority):
        names.parse_priority(text)


@pytest.mark.parametrize("priority", [-1, 10])
def test_bad_priorities(priority: int) -> None:
    with pytest.raises(BadPriority):
        names.check_priority(priority)


@given(st.binary(min_size=24, max_size=24))
def test_message_id_text_and_back(message_id: bytes) -> None:
    text = names.message_id_text(message_id)
    assert len(text) == 48 or text.encode() == message_id.rstrip(b"\0")
    assert names.parse_message_id(text) == message_id


@pytest.mark.parametrize("text", ["", "00" * 23, "00" * 25, "zz" * 24, " " + "0" * 47])
def test_bad_message_ids(text: str) -> None:
    with pytest.raises(BadRequest):
        names.parse_message_id(text)


@given(st.one_of(st.text(max_size=40), st.binary(max_size=40)))
def test_escaped_text_is_printable_and_bounded(text: str | bytes) -> None:
    shown = names.escape(text, 20)
    assert shown.isprintable()
    assert len(shown) <= 20 * 10 + 3


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text é", "plain text é"),
        ("\x1b[31m", "\\x1b[31m"),
        ("a\r\nb\x7f", "a\\x0d\\x0ab\\x7f"),
        ("\u202eevil", "\\u202eevil"),
        (b"\xff\xfe", "\\xff\\xfe"),
        ("\U000e0001", "\\U000e0001"),
        ("x" * 300, "x" * 256 + "..."),
    ],
)
def test_escape(text: str | bytes, shown: str) -> None:
    assert names.escape(text) == shown
