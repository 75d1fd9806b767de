"""Policy services: each action, wrong and absent ones; postgrey and policyd-spf."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from omq.services.mail.policy_service import PolicyFailed, action, question
from tests.unit.services.mail.real import found
from tests.unit.services.mail.smtp.conftest import TIMEOUT_S, Running
from tests.unit.services.mail.smtp.milters import TestMilter, packet
from tests.unit.services.mail.smtp.test_milter import TEXT, send
from tests.waiting import listens, until

STRANGERS = {"smtp_relay_networks": "192.0.2.0/24", "smtp_straight": False}


class Service:
    """Answers with `answers` in turn, the last one for ever; raw bytes."""

    def __init__(self, *answers: bytes) -> None:
        self.answers, self.asked = list(answers), list[dict[str, str]]()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.place = f"inet:127.0.0.1:{self._listener.getsockname()[1]}"
        self._held: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._held.append(connection)
            with suppress(OSError):
                text = b""
                while not text.endswith(b"\n\n"):
                    text += connection.recv(65536)
                self.asked.append(dict(
                    line.split("=", 1) for line in text.decode().splitlines() if line))
                answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
                connection.sendall(answer)
                if answer:  # else it is silent
                    connection.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._held:
            each.close()
        self._thread.join(60)
        assert not self._thread.is_alive()


Ask = Callable[..., tuple[Running, list[Service]]]


@pytest.fixture
def asking(server: Callable[..., Running]) -> Iterator[Ask]:
    made: list[Service] = []

    def start(*answers: bytes, **settings: Any) -> tuple[Running, list[Service]]:
        made.extend(Service(b"action=" + each + b"\n\n" if each and not each.startswith(b"!")
                            else each[1:]) for each in answers)
        return server(**{"smtp_policy_services": " ".join(each.place for each in made),
                         **STRANGERS, **settings}), made

    yield start
    for each in made:
        each.close()


def test_what_is_asked(asking: Ask) -> None:
    running, (service,) = asking(b"DUNNO")
    assert send(running, "a@here.test", "b@here.test") == "250"
    first, second = service.asked
    assert first | {"instance": "", "size": ""} == {
        "request": "smtpd_access_policy", "protocol_state": "RCPT", "protocol_name": "ESMTP",
        "helo_name": "client.test", "queue_id": "", "sender": "s@x.test",
        "recipient": "a@here.test", "recipient_count": "0", "client_address": "127.0.0.1",
        "client_name": "unknown", "reverse_client_name": "unknown", "instance": "",
        "sasl_method": "", "sasl_username": "", "sasl_sender": "", "size": "",
        "ccert_subject": "", "ccert_issuer": "", "ccert_fingerprint": "",
        "encryption_protocol": "", "encryption_cipher": "", "encryption_keysize": "0",
        "etrn_domain": "", "stress": "", "policy_context": ""}
    assert second["recipient"] == "b@here.test" and second["instance"] == first["instance"]
    assert running.manager.puts[0][3]["mail.id"] == first["instance"]


@pytest.mark.parametrize(("answer", "said"), [
    (b"OK", "250"), (b"dunno", "250"), (b"1", "250"), (b"REJECT", "554 5.7.1 access denied"),
    (b"REJECT 5.1.8 who is that", "554 5.1.8 who is that"), (b"DEFER busy", "450 4.7.1 busy"),
    (b"DEFER_IF_PERMIT 4.2.0 Greylisted", "450 4.2.0 Greylisted"), (b"DEFER_IF_REJECT x", "250"),
    (b"521 5.3.2 go away", "521 5.3.2 go away"), (b"450 later", "450 4.7.1 later"),
    (b"REJECT a\r\n250 OK", "554 5.7.1 a"), (b"WARN seen", "250"), (b"INFO seen", "250")])
def test_actions(asking: Ask, answer: bytes, said: str) -> None:
    running, _ = asking(answer)
    assert send(running).startswith(said)
    assert bool(running.manager.puts) == (said == "250")


def test_what_an_action_does_to_the_mail(asking: Ask) -> None:
    running, _ = asking(b"PREPEND X-Greylist: yes", b"BCC copy@here.test", b"HOLD look at it")
    assert send(running, "a@here.test", "b@here.test") == "250"
    ((queue, text, _, properties),) = running.manager.puts
    assert text.endswith(b"X-Greylist: yes\r\n" + TEXT) and text.count(b"X-Greylist") == 1
    assert queue == "DEFER" and properties["mail.held"] == "look at it"
    assert properties["mail.to"] == "a@here.test\nb@here.test\ncopy@here.test"


def test_redirect_and_discard(asking: Ask) -> None:
    running, (service,) = asking(b"REDIRECT only@here.test")
    assert send(running, "a@here.test", "b@here.test") == "250"
    assert running.manager.puts[0][3]["mail.to"] == "only@here.test"
    service.answers[:] = [b"action=DISCARD\n\n"]
    assert send(running) == "250" and len(running.manager.puts) == 1


def test_they_are_asked_in_order(asking: Ask) -> None:
    running, (first, second) = asking(b"DEFER_IF_PERMIT later", b"REJECT never")
    assert send(running).startswith("554"), "for good counts more than later"
    second.answers[:] = [b"action=DUNNO\n\n"]
    assert send(running).startswith("450")
    first.answers[:] = [b"action=OK\n\n"]
    before = len(second.asked)
    assert send(running) == "250" and len(second.asked) == before


def test_about_whom(asking: Ask) -> None:
    running, (service,) = asking(b"REJECT", smtp_relay_networks="127.0.0.0/8")
    assert send(running) == "250" and not service.asked


def test_about_all(asking: Ask) -> None:
    running, _ = asking(b"REJECT", smtp_relay_networks="127.0.0.0/8", smtp_policy_for="all")
    assert send(running).startswith("554")


def test_a_milter_is_asked_after_them(asking: Ask) -> None:
    milter = TestMilter(says={b"R": packet(b"r")})
    try:
        running, (service,) = asking(b"REJECT", smtp_milters=milter.place)
        assert send(running).startswith("554 5.7.1 access denied") and not milter.told(b"R")
        service.answers[:] = [b"action=DUNNO\n\n"]
        assert send(running).startswith("550 5.7.1 refused by a filter")
    finally:
        milter.close()


@pytest.mark.parametrize(("default", "said"), [("tempfail", "451 4.3.5"), ("accept", "250")])
@pytest.mark.parametrize("answer", [
    b"FILTER smtp:x", b"PREPEND no field", b"PREPEND X: y\x00", b"REDIRECT a b", b"BCC",
    b"\xff\xfe", b"!\n\n", b"!nothing", b"!" + b"x" * 100_000, b""])
def test_what_is_no_action(asking: Ask, answer: bytes, default: str, said: str) -> None:
    running, (service,) = asking(answer, smtp_policy_default=default, smtp_policy_timeout_s=1)
    if answer == b"PREPEND X: y\x00":  # a control is a mark of it, and the field is one line
        said = "250"
    assert send(running).startswith(said)
    if said != "250":
        log = running.context.paths.event_log.read_text()
        assert "1520" in log and service.place in log and "\"event\": 1007" not in log


def test_one_that_is_away(server: Callable[..., Running]) -> None:
    assert send(server(smtp_policy_services="unix:/nowhere", **STRANGERS)).startswith("451 4.3.5")


def test_lines_of_a_question_and_an_answer() -> None:
    asked = question({"helo_name": "a\nsender=b\r\n\nc", "sender": "x" * 5000})
    assert asked.count(b"\n") == 4 and asked.endswith(b"\n\n")
    assert b"helo_name=a?sender=b???c" in asked
    with pytest.raises(PolicyFailed):
        action(b"actions=OK\n\n")


# Real ones.


def test_postgrey(server: Callable[..., Running], tmp_path: Path) -> None:
    """Refused at first; taken when its time is over."""
    program = found("usr/sbin/postgrey", "postgrey")
    if os.geteuid():
        pytest.skip("postgrey becomes another user: it must be started as root")
    (tmp_path / "none").touch()
    place, log = tmp_path / "socket", tmp_path / "log"
    with log.open("wb") as output:
        service = subprocess.Popen(
            [program, f"--unix={place}", f"--dbdir={tmp_path}", "--delay=1", "--user=root",
             "--group=root", f"--whitelist-clients={tmp_path}/none",
             f"--whitelist-recipients={tmp_path}/none", "--greylist-text=come again"],
            stdout=output, stderr=output)
    try:
        until(partial(listens, place), log.read_text)
        running = server(smtp_policy_services=f"unix:{place}", **STRANGERS)
        said = send(running)
        assert said.startswith("450 4.") and "come again" in said
        until(lambda: send(running) == "250")
        assert b"X-Greylist: delayed" in running.manager.puts[0][1]
    finally:
        service.kill()
        service.wait(TIMEOUT_S)


SPAWN = """\
import socket, subprocess, sys
listener = socket.socket(fileno=int(sys.argv[1]))
while True:
    connection, _ = listener.accept()
    subprocess.run(sys.argv[2:], stdin=connection, stdout=connection)
    connection.close()
"""
"""As Postfix's spawn(8), or a socket unit with Accept=yes, starts a service of one connection."""


def test_policyd_spf(server: Callable[..., Running], tmp_path: Path) -> None:
    """Without a name server it cannot say more than an error; that comes as a field."""
    program = found("usr/bin/policyd-spf", "postfix-policyd-spf-python")
    conf = tmp_path / "spf.conf"
    conf.write_text("debugLevel = 0\nTestOnly = 1\nHELO_reject = False\nMail_From_reject = Fail\n"
                    "PermError_reject = False\nTempError_Defer = False\n"
                    "skip_addresses = 192.0.2.1\nLookup_Time = 1\n")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = f"inet:127.0.0.1:{listener.getsockname()[1]}"
        service = subprocess.Popen([sys.executable, "-c", SPAWN, str(listener.fileno()),
                                    str(program), str(conf)], pass_fds=[listener.fileno()])
    try:
        running = server(smtp_policy_services=place, **STRANGERS)
        assert send(running, sender="s@[127.0.0.1]") == "250"
        assert b"Received-SPF: " in running.manager.puts[0][1]
        assert send(running, sender="") == "250"
    finally:
        service.kill()
        service.wait(TIMEOUT_S)
