"""What one client may take: sessions, acts in a period, time; and who is kept a place."""

from __future__ import annotations

import contextlib
import smtplib
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from omq.base.settings import Settings
from omq.services.mail.smtp_clients import CLIENTS_MAX, Act, Clients, Places
from omq.services.mail.smtp_handler import Listener

TEXT = b"Subject: x\r\n\r\nhello\r\n"
STRANGER = {"smtp_relay_networks": "192.0.2.0/24"}
S = 1_000_000_000
PORT = Places("smtp.port")


def test_the_last_sessions_are_for_clients_that_have_none() -> None:
    settings = Settings(smtp_sessions_max=8, smtp_sessions_reserved=2)
    clients = Clients()
    for _ in range(6):
        assert not clients.refusal(PORT, "a", settings, 0, own=True)
        clients.begin(PORT, "a", 0)
    assert clients.refusal(PORT, "a", settings, 0, own=True) == "too many sessions"
    for key in ("b", "c"):
        assert not clients.refusal(PORT, key, settings, 0, own=False)
        clients.begin(PORT, key, 0)
    assert clients.refusal(PORT, "d", settings, 0, own=False) == "too many sessions"
    clients.end(PORT, "b")
    assert not clients.refusal(PORT, "d", settings, 0, own=False)


def test_a_flood_at_one_port_takes_no_place_of_another(users: Callable[..., Any]) -> None:
    """Strangers at 25 took the places of those who have a password, at 587."""
    running = users(smtp_sessions_max=2, smtp_sessions_reserved=0, submission_sessions_max=1)
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(running.client())
        with pytest.raises(smtplib.SMTPConnectError):
            running.client()
        for listener in (Listener.SUBMISSION, Listener.SUBMISSIONS):
            port = running.port_of(listener)
            first = stack.enter_context(socket.create_connection(("127.0.0.1", port), 60))
            if listener is Listener.SUBMISSION:
                assert first.recv(4) == b"220 "
        more = socket.create_connection(("127.0.0.1", running.port_of(Listener.SUBMISSION)), 60)
        assert stack.enter_context(more).recv(4) == b"421 "


def test_acts_are_counted_in_a_period() -> None:
    settings = Settings(smtp_client_messages_max=2, smtp_client_period_s=10)
    clients = Clients()
    counted = [clients.exceeds("a", Act.MESSAGE, settings, at * S, own=False)
               for at in (0, 1, 2, 9, 11, 12, 13)]
    assert counted == [False, False, True, True, False, False, True]
    assert not clients.exceeds("a", Act.MESSAGE, settings, 13 * S, own=True)
    unlimited = replace(settings, smtp_client_messages_max=0)
    assert not clients.exceeds("a", Act.MESSAGE, unlimited, 13 * S, own=False)


def test_a_flood_of_addresses_has_bounded_memory() -> None:
    settings, clients = Settings(), Clients()
    clients.begin(PORT, "first", 0)
    for number in range(CLIENTS_MAX + 10):
        clients.exceeds(f"a{number}", Act.ERROR, settings, 0, own=False)
    assert len(clients._clients) == CLIENTS_MAX
    assert "first" in clients._clients


def test_sessions_of_a_stranger(server: Callable[..., Any]) -> None:
    running = server(smtp_client_sessions_max=2, **STRANGER)
    with running.client(), running.client():
        with pytest.raises(smtplib.SMTPConnectError) as raised:
            running.client()
        assert raised.value.smtp_code == 421


@pytest.mark.parametrize(("limit", "counted"), [
    ({"smtp_client_messages_max": 2}, [250, 250, 450]),
    ({"smtp_client_connections_max": 2}, [250, 250, 421]),
])
def test_rates_of_a_stranger(server: Callable[..., Any], limit: dict[str, int],
                             counted: list[int]) -> None:
    running = server(**limit, **STRANGER)
    codes = []
    for _ in range(3):
        try:
            with running.client() as client:
                client.sendmail("s@x", ["a@here.test"], TEXT)
                codes.append(250)
        except (smtplib.SMTPSenderRefused, smtplib.SMTPConnectError) as error:
            codes.append(error.smtp_code)
    assert codes == counted
    assert len(running.manager.puts) == 2


def test_recipients_of_a_stranger(server: Callable[..., Any]) -> None:
    running = server(smtp_client_recipients_max=3, **STRANGER)
    with running.client() as client:
        refused = client.sendmail("s@x", [f"u{n}@here.test" for n in range(5)], TEXT)
    assert {code for code, _ in refused.values()} == {450}
    assert len(refused) == 2


def test_too_many_errors_end_a_session_and_then_keep_the_client_out(
        server: Callable[..., Any]) -> None:
    running = server(smtp_session_errors_max=3, smtp_client_errors_max=5, **STRANGER)
    guess = b"EHLO c\r\nMAIL FROM:<s@x>\r\n" + b"RCPT TO:<x@far.test>\r\n" * 10
    for _ in range(2):
        replies = running.dialogue(guess)
        assert [each[:3] for each in replies[-4:]] == [b"550", b"550", b"550", b"421"]
    assert running.dialogue(b"")[-1].startswith(b"421 4.7.0 too many errors")


def test_our_own_clients_have_no_rates(server: Callable[..., Any]) -> None:
    running = server(smtp_client_messages_max=1, smtp_client_sessions_max=1,
                     smtp_client_connections_max=1)
    with running.client() as one, running.client() as two:
        for client in (one, two, one):
            client.sendmail("s@x", ["a@here.test"], TEXT)
    assert len(running.manager.puts) == 3


def closed(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while more := connection.recv(4096):
            got += more
    return got


@pytest.mark.parametrize("begin", [b"", b"EHLO c\r\n", b"EHLO c\r\nMAIL FROM:<s@x>\r\n"
                                   b"RCPT TO:<a@here.test>\r\nDATA\r\nSubject: slow\r\n"])
def test_single_bytes_hold_no_session(server: Callable[..., Any], begin: bytes) -> None:
    running = server(smtp_idle_timeout_s=1, smtp_text_bytes_s_min=1_000_000)
    with socket.create_connection(("127.0.0.1", running.port), 10) as peer:
        peer.sendall(begin)
        peer.settimeout(0.05)
        got = b""
        with contextlib.suppress(OSError):
            for _ in range(400):  # 20 s of single bytes, were it not closed
                peer.sendall(b"N")
                with contextlib.suppress(TimeoutError):
                    more = peer.recv(4096)
                    got += more
                    if not more:
                        break
    assert b"421 4.4.2" in got
    running.stop()


def test_a_session_has_an_end(server: Callable[..., Any]) -> None:
    running = server(smtp_session_s_max=1)
    with socket.create_connection(("127.0.0.1", running.port), 10) as peer:
        peer.sendall(b"EHLO c\r\n" + b"NOOP\r\n" * 10)
        assert closed(peer).split(b"\r\n")[-2].startswith(b"421 4.4.2")


def test_a_half_closed_client_has_its_answer(server: Callable[..., Any]) -> None:
    running = server()
    with socket.create_connection(("127.0.0.1", running.port), 10) as peer:
        peer.sendall(b"EHLO c\r\nMAIL FROM:<s@x>\r\nRCPT TO:<a@here.test>\r\nDATA\r\n"
                     + TEXT + b".\r\n")
        peer.shutdown(socket.SHUT_WR)
        replies = closed(peer).split(b"\r\n")
    assert replies[-2].startswith(b"250 2.0.0 OK")
    assert len(running.manager.puts) == 1


def test_half_a_text_is_no_message(server: Callable[..., Any]) -> None:
    running = server()
    with socket.create_connection(("127.0.0.1", running.port), 10) as peer:
        peer.sendall(b"EHLO c\r\nMAIL FROM:<s@x>\r\nRCPT TO:<a@here.test>\r\nDATA\r\nSubject: x")
        peer.shutdown(socket.SHUT_WR)
        assert closed(peer).split(b"\r\n")[-2].startswith(b"354")
    assert running.manager.puts == []
