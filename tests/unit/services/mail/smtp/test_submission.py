"""The ports for mail programs: who says who he is may send anywhere, nobody else anything."""

from __future__ import annotations

import base64
import os
import smtplib
import socket
import sys
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest

from omq.base import events
from omq.base.errors import ConfigError
from omq.services.mail.routes_file import load_routes
from omq.services.mail.smtp_handler import Listener
from omq.services.network.password_file import load_users

TEXT = b"Subject: x\r\nBcc: c@x\r\n\r\nhello\r\n"
TIMEOUT_S = 120


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.fixture
def client(users: Any, certificates: Any) -> Iterator[Any]:
    """A client at the port, over TLS unless told otherwise."""
    opened: list[smtplib.SMTP] = []

    def make(*, secure: bool = True, **settings: Any) -> Any:
        running = users(**settings) if not opened else opened[0].running  # type: ignore[attr-defined]
        made = smtplib.SMTP("127.0.0.1", running.port_of(Listener.SUBMISSION), timeout=TIMEOUT_S)
        made.running = running  # type: ignore[attr-defined]
        made.ehlo()
        if secure:
            made.starttls(context=certificates.client(check_hostname=False))
            made.ehlo()
        opened.append(made)
        return made

    yield make
    for each in opened:
        each.close()


@pytest.mark.parametrize(("mechanism", "initial"), [
    ("PLAIN", True), ("PLAIN", False), ("LOGIN", True), ("LOGIN", False)])
def test_who_says_who_he_is_may_send_anywhere(client: Any, mechanism: str, *, initial: bool
                                              ) -> None:
    made = client()
    made.user, made.password = "bob@here.test", "geheim"
    method = made.auth_plain if mechanism == "PLAIN" else made.auth_login
    assert made.auth(mechanism, method, initial_response_ok=initial)[0] == 235
    made.sendmail("bob@here.test", ["a@far.test"], TEXT, mail_options=["AUTH=<>"])
    made.quit()
    running = made.running
    (_, body, priority, _), = running.manager.puts
    assert b" with ESMTPSA id " in body
    assert priority == 4
    log = (running.context.paths.logs / "mail.log").read_text()
    assert ", sasl_username=bob@here.test\n" in log
    assert "geheim" not in log
    assert b64("geheim") not in log


def test_nothing_before_tls_and_nothing_before_auth(client: Any) -> None:
    plain = client(secure=False)
    assert not plain.has_extn("auth")
    assert plain.has_extn("starttls")
    assert plain.mail("s@x") == (530, b"5.7.0 say STARTTLS first")
    assert plain.docmd("AUTH", "PLAIN " + b64("\0alice\0secret"))[0] == 538
    made = client()
    assert made.esmtp_features["auth"].strip() == "PLAIN LOGIN"
    assert made.mail("s@x") == (530, b"5.7.0 say AUTH first")
    assert made.docmd("RCPT", "TO:<a@here.test>")[0] == 503


@pytest.mark.parametrize(("words", "code"), [
    ("CRAM-MD5", 504), ("", 504), ("PLAIN !!!", 501), ("PLAIN =", 501),
    ("PLAIN " + b64("\0alice\0wrong"), 535), ("PLAIN " + b64("\0nobody\0secret"), 535),
    ("PLAIN " + b64("bob@here.test\0alice\0secret"), 535), ("PLAIN " + b64("a\0b"), 501),
    ("PLAIN " + base64.b64encode(b"\0\xff\0x").decode(), 501),
    ("PLAIN " + b64("\0alice\0secret"), 235), ("plain " + b64("alice\0alice\0secret"), 235)])
def test_replies_to_auth(client: Any, words: str, code: int) -> None:
    made = client()
    assert made.docmd("AUTH", words)[0] == code
    again = made.docmd("AUTH", "PLAIN " + b64("\0alice\0secret"))[0]
    assert again == (503 if code == 235 else 235)


@pytest.mark.parametrize(("answers", "codes"), [
    (["*"], [501]), (["QUIT!"], [501]), ([b64("alice"), b64("secret")], [334, 235]),
    ([b64("alice"), "*"], [334, 501]), ([b64("alice"), ""], [334, 535]),
    (["", b64("secret")], [334, 501]), (["A" * 3000], [500])])
def test_an_exchange_of_login(client: Any, answers: list[str], codes: list[int]) -> None:
    made = client()
    assert made.docmd("AUTH", "LOGIN") == (334, b"VXNlcm5hbWU6")
    assert [made.docmd(each)[0] for each in answers] == codes
    assert made.noop()[0] == 250


def test_not_within_a_transaction_and_not_before_ehlo(client: Any, certificates: Any) -> None:
    made = client()
    made.login("alice", "secret")
    made.mail("s@x")
    assert made.docmd("AUTH", "PLAIN x")[0] == 503
    made = client(secure=False)
    made.starttls(context=certificates.client(check_hostname=False))
    assert made.docmd("AUTH", "PLAIN x")[0] == 503


def test_who_guesses_is_not_heard_any_more(client: Any, logged: Any) -> None:
    made = client(smtp_client_logins_max=3)
    wrong, right = (f"PLAIN {b64(f'{chr(0)}alice{chr(0)}{each}')}" for each in ("no", "secret"))
    assert [made.docmd("AUTH", wrong)[0] for _ in range(4)] == [535, 535, 535, 454]
    assert made.docmd("AUTH", right)[0] == 454
    other = client()  # a new session does not help
    assert other.docmd("AUTH", right)[0] == 454
    assert logged().count(events.SMTP_LOGIN_FAILED.number) == 3


class Another(smtplib.SMTP):
    """A client of another account of this host."""

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        made = socket.socket()
        os.fchown(made.fileno(), 1, -1)  # the kernel tells who owns the socket
        made.settimeout(timeout)
        made.connect((host, port))
        return made


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_guesses_of_another_account_of_the_host_keep_nobody_out(
        client: Any, certificates: Any, logged: Any) -> None:
    made = client(smtp_client_logins_max=3)
    other = Another("127.0.0.1", made.running.port_of(Listener.SUBMISSION), timeout=TIMEOUT_S)
    with other:
        other.ehlo()
        other.starttls(context=certificates.client(check_hostname=False))
        other.ehlo()
        wrong, right = (f"PLAIN {b64(f'{chr(0)}alice{chr(0)}{each}')}" for each in ("no", "secret"))
        assert [other.docmd("AUTH", wrong)[0] for _ in range(4)] == [535, 535, 535, 454]
    assert made.docmd("AUTH", right)[0] == 235
    assert logged().count(events.SMTP_LOGIN_FAILED.number) == 3


def test_guesses_sent_at_once_are_counted_too(client: Any) -> None:
    made = client(smtp_client_logins_max=2)
    line = f"AUTH PLAIN {b64(f'{chr(0)}alice{chr(0)}no')}\r\n"
    made.send(line * 5)
    assert [made.getreply()[0] for _ in range(5)] == [535, 535, 454, 454, 454]


def test_other_hosts_port_knows_no_auth(users: Any, certificates: Any) -> None:
    with users().client() as client:
        client.starttls(context=certificates.client(check_hostname=False))
        client.ehlo()
        assert not client.has_extn("auth")
        assert client.docmd("AUTH", "PLAIN x")[0] == 502
        with pytest.raises(smtplib.SMTPSenderRefused):
            client.sendmail("s@x", ["a@here.test"], TEXT, mail_options=["AUTH=<>"])


@pytest.mark.parametrize(("given", "added"), [
    (b"Subject: x\r\n\r\nx\r\n", {"date", "message-id"}),
    (b"Date: Mon, 1 Jan 2024 00:00:00 +0000\r\n\r\nx\r\n", {"message-id"}),
    (b"DATE: x\r\nMessage-Id: <y@z>\r\n\r\nx\r\n", set()),
    (b"no header\r\n\r\nDate: x\r\n", {"date", "message-id"})])
def test_date_and_message_id_at_submission_alone(client: Any, given: bytes, added: set[str]
                                                 ) -> None:
    made = client()
    made.login("alice", "secret")
    made.sendmail("alice@here.test", ["a@far.test"], given)
    with made.running.client() as other:
        other.sendmail("alice@here.test", ["a@here.test"], given)
    mine, plain = (body for _, body, _, _ in made.running.manager.puts)
    assert mine.endswith(given)
    assert plain.endswith(given)
    found = message_from_bytes(mine[: len(mine) - len(given)])
    assert {each.lower() for each in found} == {"received", *added}
    if "message-id" in added:
        assert found["message-id"].endswith("@mx.test>")
    assert mine.startswith(b"Received: ")
    assert "date" not in {each.lower() for each in
                          message_from_bytes(plain[: len(plain) - len(given)])}


# the file


@pytest.mark.parametrize(("text", "mode"), [
    ("", 0o600), ("# nobody\n", 0o600), ("alice:secret\n", 0o600), ("alice\n", 0o600),
    (":{}\n", 0o600), ("a:{}\na:{}\n", 0o600), ("a:{}\n", 0o644), ("a:{}\n", 0o660)])
def test_a_wrong_file_is_refused(text: str, mode: int, tmp_path: Path, conf_dir: Path) -> None:
    path = tmp_path / "users"
    path.write_text(text.replace("{}", HASH))
    path.chmod(mode)
    with pytest.raises(ConfigError):
        load_users(conf_dir, str(path))


def test_a_missing_package_is_said_at_the_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                                conf_dir: Path) -> None:
    monkeypatch.setitem(sys.modules, "argon2", None)
    with pytest.raises(ConfigError, match="argon2-cffi"):
        load_users(conf_dir, str(tmp_path))


HASH = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$Xw4Hqe3wK0qPoH0V7iDcJQ"


SENDERS = """\
[local]
domains = here.test
delimiter = +
[aliases]
office = alice, bob
boss@there.test = alice
[senders]
bob@here.test = list@else.test, @many.test
* = "no\\reply"@here.test
"""


@pytest.mark.parametrize(("user", "password", "sender", "code"), [
    ("alice", "secret", "alice@here.test", 250), ("alice", "secret", "ALICE+x@here.test", 250),
    ("alice", "secret", '"al\\ice"@here.test', 250), ("alice", "secret", "", 250),
    ("alice", "secret", "office@here.test", 250), ("alice", "secret", "boss@there.test", 250),
    ("alice", "secret", "alice", 250), ("alice", "secret", "noreply@here.test", 250),
    ("alice", "secret", "bob@here.test", 553), ("alice", "secret", "x@many.test", 553),
    ("alice", "secret", "alice@far.test", 553), ("alice", "secret", "ceo@bank.test", 553),
    ("bob@here.test", "geheim", "bob@here.test", 250),
    ("bob@here.test", "geheim", "list@else.test", 250),
    ("bob@here.test", "geheim", "anybody@many.test", 250),
    ("bob@here.test", "geheim", "x@else.test", 553),
    ("bob@here.test", "geheim", "boss@there.test", 553),
])
def test_who_has_logged_in_sends_as_himself(client: Any, conf_dir: Path, user: str, password: str,
                                            sender: str, code: int) -> None:
    (conf_dir / "routes.conf").write_text(SENDERS)
    made = client()
    made.login(user, password)
    got, text = made.mail(sender)
    assert (got, text[:5]) == (code, b"2.1.0" if code == 250 else b"5.7.1")


def test_any_sender_may_be_allowed(client: Any, conf_dir: Path) -> None:
    (conf_dir / "routes.conf").write_text("[senders]\nalice = *\n")
    made = client()
    made.login("alice", "secret")
    assert made.mail("ceo@bank.test")[0] == 250


@pytest.mark.parametrize("line", ["alice = nobody", "alice = ,", "alice = a b@c"])
def test_what_is_no_sender_is_named_with_its_line(conf_dir: Path, line: str) -> None:
    (conf_dir / "routes.conf").write_text(f"[senders]\n{line}\n")
    with pytest.raises(ConfigError) as raised:
        load_routes(conf_dir)
    assert raised.value.fields["line"] == 2


def logged_in(client: Any, name: str = "alice", password: str = "secret", **settings: Any) -> Any:
    made = client(**settings)
    made.login(name, password)
    return made


def test_a_rate_is_a_users_wherever_he_comes_from(client: Any) -> None:
    """Of messages and of recipients, refused ones, too; another user has his own."""
    first = logged_in(client, smtp_login_messages_max=2, smtp_login_recipients_max=4)
    first.sendmail("alice@here.test", ["a@far.test"], TEXT)
    second = logged_in(client)
    assert second.mail("alice@here.test")[0] == 250
    assert [second.rcpt(f"r{number}@far.test")[0] for number in range(4)] == [250, 250, 250, 450]
    assert second.data(TEXT)[0] == 250
    assert first.mail("alice@here.test") == (450, b"4.7.1 too many messages of this user")
    other = logged_in(client, "bob@here.test", "geheim")
    other.sendmail("bob@here.test", ["a@far.test"], TEXT)
    assert len(first.running.manager.puts) == 3


def test_a_rate_of_the_domain_of_senders(client: Any, conf_dir: Path) -> None:
    """All users together, not strangers, who could name anybody's."""
    alice = logged_in(client, smtp_sender_domain_messages_max=2,
                      smtp_relay_networks="192.0.2.0/24")
    with alice.running.client() as stranger:
        for _ in range(5):
            stranger.sendmail("x@here.test", ["a@here.test"], TEXT)
    alice.sendmail("alice@here.test", ["a@far.test"], TEXT)
    bob = logged_in(client, "bob@here.test", "geheim")
    bob.sendmail("bob@HERE.test", ["a@far.test"], TEXT)
    assert alice.mail("alice@here.test") == (
        450, b"4.7.1 too many messages of this sender's domain")
    alice.rset()
    assert alice.mail("")[0] == 250, "reports have no domain"


def test_a_rate_is_over_with_its_time(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from omq.base import clock

    alice = logged_in(client, smtp_login_messages_max=1)
    alice.sendmail("alice@here.test", ["a@far.test"], TEXT)
    assert alice.mail("alice@here.test")[0] == 450
    now = clock.monotonic_ns()
    monkeypatch.setattr(clock, "monotonic_ns", lambda: now + 61 * clock.NS_PER_S)
    assert alice.mail("alice@here.test")[0] == 250
