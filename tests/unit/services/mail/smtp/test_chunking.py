"""BDAT (RFC 3030): lengths instead of dots, whatever they say."""

from __future__ import annotations

import signal
from contextlib import closing
from typing import Any

import pytest

BEGIN = b"EHLO c\r\nMAIL FROM:<s@x>\r\nRCPT TO:<a@here.test>\r\n"


def talk(running: Any, data: bytes) -> list[bytes]:
    """The replies behind those to BEGIN."""
    replies = list(running.dialogue(BEGIN + data))
    return replies[replies.index(b"250 2.1.5 OK") + 1 :]


def bdat(data: bytes, *, last: bool = False) -> bytes:
    return b"BDAT %d%s\r\n" % (len(data), b" LAST" if last else b"") + data


def test_it_is_offered(server: Any) -> None:
    assert b"250-CHUNKING" in server().dialogue(b"EHLO c\r\n")


@pytest.mark.parametrize("pieces", [
    [b"Subject: x\r\n\r\n.dot\r\n..\r\n.\r\nmore\r\n"], [b"Subject: x\r", b"\n\r\n.dot\r\n"],
    [b"Subject: x\r\n\r\nno end"], [b"Subject: x\r\n\r\nx", b""], [b"", b"Subject: x\r\n\r\n"],
    [b"Subject: x\r\n\r\nx\r"]])
def test_bytes_arrive_as_they_are(server: Any, pieces: list[bytes]) -> None:
    running = server()
    *first, last = pieces
    replies = talk(running, b"".join(map(bdat, first)) + bdat(last, last=True))
    assert [each[:3] for each in replies] == [b"250"] * len(pieces) + [b"221"]
    (_, body, _, _), = running.manager.puts
    assert body.startswith(b"Received: ")
    assert body.endswith(b"\r\n" + b"".join(pieces))


def test_several_messages_in_one_session(server: Any) -> None:
    running = server()
    again = BEGIN.split(b"\r\n", 1)[1]
    replies = talk(running, bdat(b"A: b\r\n", last=True) + again + b"DATA\r\nC: d\r\n.\r\n"
                   + again + bdat(b"E: f\r\n", last=True))
    assert replies[-1][:3] == b"221"
    assert [each[1][-6:] for each in running.manager.puts] == [
        b"A: b\r\n", b"C: d\r\n", b"E: f\r\n"]


@pytest.mark.parametrize("data", [
    b"EHLO c\r\n" + bdat(b"RSET\r\nQUIT\r\n"),  # no transaction: the chunk is no commands
    b"EHLO c\r\nMAIL FROM:<s@x>\r\n" + bdat(b"QUIT\r\n", last=True)])
def test_a_chunk_that_is_not_wanted_is_read_to_its_end(server: Any, data: bytes) -> None:
    running = server()
    replies = running.dialogue(data + b"NOOP\r\n")
    assert [each[:3] for each in replies[-3:]] == [b"503", b"250", b"221"]
    assert not running.manager.puts


@pytest.mark.parametrize("argument", [b"", b"x", b"-1", b"1 FIRST", b"1 LAST LAST", b"9" * 21])
def test_a_length_that_is_none_ends_the_session(server: Any, argument: bytes) -> None:
    running = server()
    replies = talk(running, b"BDAT " + argument + b"\r\nNOOP\r\n")
    assert [each[:3] for each in replies] == [b"501"]


def test_data_and_recipients_within_chunks_are_refused(server: Any) -> None:
    running = server()
    replies = talk(running, bdat(b"A: b\r\n") + b"DATA\r\nRCPT TO:<a@here.test>\r\n"
                   b"MAIL FROM:<x@y>\r\nRSET\r\n" + bdat(b"C: d\r\n", last=True))
    assert [each[:3] for each in replies] == [b"250", b"503", b"503", b"503", b"250", b"503",
                                              b"221"]
    assert not running.manager.puts


def test_too_large_is_refused_with_the_chunk_and_its_memory_given_back(server: Any) -> None:
    running = server(smtp_message_bytes_max=2000, smtp_memory_bytes_max=8000)
    replies = talk(running, bdat(b"A: b\r\n" * 200) + bdat(b"C: d\r\n" * 200, last=True)
                   + b"NOOP\r\n")
    assert [each[:3] for each in replies] == [b"250", b"552", b"250", b"221"]
    again = talk(running, bdat(b"A: b\r\n" * 200, last=True))
    assert [each[:3] for each in again] == [b"250", b"221"]


def test_a_length_that_is_only_told_takes_no_memory(server: Any) -> None:
    running = server(smtp_message_bytes_max=2000, smtp_memory_bytes_max=8000)
    with closing(running.client()) as client:
        client.ehlo()
        client.mail("s@x")
        client.rcpt("a@here.test")
        client.send(b"BDAT 99999999999999999999\r\n" + b"x" * 5000)
        client.close()
    assert [each[:3] for each in talk(running, bdat(b"A: b\r\n" * 200, last=True))] == [
        b"250", b"221"]


def test_chunks_that_stay_unfinished_give_back_their_memory(server: Any) -> None:
    running = server(smtp_message_bytes_max=2000, smtp_memory_bytes_max=4500)
    for _ in range(5):
        client = running.client()
        client.ehlo()
        client.mail("s@x")
        client.rcpt("a@here.test")
        client.send(bdat(b"A: b\r\n" * 100))
        assert client.getreply()[0] == 250
        client.send(b"QUIT\r\n")
        assert client.getreply()[0] == 221
        client.close()
    with running.client() as client:
        client.ehlo()
        client.mail("s@x")
        client.rcpt("a@here.test")
        client.send(bdat(b"A: b\r\n" * 100))
        assert client.getreply()[0] == 250
        assert client.rset()[0] == 250
    assert [each[:3] for each in talk(running, bdat(b"A: b\r\n" * 200, last=True))] == [
        b"250", b"221"]


def test_a_line_that_is_too_long_over_chunks(server: Any) -> None:
    running = server(smtp_line_bytes_max=1001)
    replies = talk(running, bdat(b"x" * 600) + bdat(b"y" * 600, last=True))
    assert [each[:3] for each in replies] == [b"250", b"500", b"221"]
    fine = talk(running, bdat(b"x" * 600 + b"\r") + bdat(b"\n" + b"y" * 900, last=True))
    assert [each[:3] for each in fine] == [b"250", b"250", b"221"]


def test_a_stop_waits_for_the_last_chunk(server: Any) -> None:
    running = server()
    with closing(running.client()) as client:
        client.ehlo()
        client.mail("s@x")
        client.rcpt("a@here.test")
        client.send(bdat(b"A: b\r\n"))
        client.getreply()
        running.signals.send(signal.SIGTERM)
        client.send(bdat(b"C: d\r\n", last=True))
        assert client.getreply()[0] == 250
    assert len(running.manager.puts) == 1
