"""Maps at smtp.server: recipients and senders are looked up while other sessions go on."""

from __future__ import annotations

import signal
import smtplib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from omq.services.mail import map_sources
from omq.services.mail.smtp_handler import Listener
from tests.unit.services.mail.smtp.conftest import TIMEOUT_S, Running
from tests.waiting import until

ROUTES = "[local]\ndomains = here.test\nrelayed = other.test\nusers = alice, bob\n"
STRANGERS = {"smtp_relay_networks": "192.0.2.0/24"}
TEXT = b"Subject: x\r\n\r\nhello\r\n"


class Gate:
    """A command or file that answers when it may: the look-ups of keys with "slow" wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.may, self.asked = threading.Event(), threading.Event(), list[str]()
        before = map_sources.FileMap.look_up

        def look_up(source: map_sources.FileMap, key: str, timeout_s: float) -> Any:
            self.asked.append(key)
            if "slow" in key:
                self.began.set()
                assert self.may.wait(TIMEOUT_S)
            return before(source, key, timeout_s)

        monkeypatch.setattr(map_sources.FileMap, "look_up", look_up)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate(monkeypatch)
    yield made
    made.may.set()


@pytest.fixture
def mapped(server: Callable[..., Running], conf_dir: Path, tmp_path: Path, context: Any
           ) -> Callable[..., Running]:
    """A server with a map of recipients in tmp_path/map, or another one."""
    def start(source: str = "", more: str = "", **settings: Any) -> Running:
        (conf_dir / "routes.conf").write_text(
            f"{ROUTES}[recipient_maps]\nm = {source or f'file:{tmp_path}/map'}\n{more}")
        return server(**STRANGERS | settings)

    return start


def test_a_recipient_of_a_map(mapped: Callable[..., Running], tmp_path: Path) -> None:
    (tmp_path / "map").write_text("info@here.test alice\nlist@here.test alice, x@far.test\n")
    running = mapped()
    with running.client() as client:
        client.sendmail("s@far.test", ["info@here.test"], TEXT)
        client.sendmail("s@far.test", ["list@here.test"], b"To: list@here.test\r\n" + TEXT)
        client.ehlo()
        client.mail("s@far.test")
        assert client.rcpt("none@here.test")[0] == 550
        assert client.rcpt("x@far.test")[0] == 550, "a map opens no way to others"
    first, second = running.manager.puts
    assert first[0] == "LOCAL" and first[3]["mail.to.LOCAL"] == "alice"
    assert second[3]["mail.to.UNIX"] == "x@far.test" and second[3]["mail.to.LOCAL"] == "alice"


def test_a_database_that_another_program_changes(mapped: Callable[..., Running], tmp_path: Path
                                                 ) -> None:
    database = sqlite3.connect(tmp_path / "db")
    database.execute("create table alias (address, goto)")
    database.commit()
    running = mapped(f"sqlite:{tmp_path}/db select goto from alias where address = :address",
                     "[router]\nmap_ttl_s = 1\n", smtp_session_errors_max=10_000,
                     smtp_client_errors_max=0, smtp_client_recipients_max=0)
    with running.client() as client:
        client.ehlo()
        client.mail("s@far.test")
        assert client.rcpt("new@here.test")[0] == 550
        database.execute("insert into alias values ('new@here.test', 'bob')")
        database.commit()
        database.close()
        until(lambda: client.rcpt("new@here.test")[0] == 250)


def test_a_map_that_fails_refuses_for_now(mapped: Callable[..., Running], tmp_path: Path) -> None:
    running = mapped()
    with running.client() as client:
        client.ehlo()
        client.mail("s@far.test")
        code, said = client.rcpt("alice@here.test")
        assert code == 451 and said.startswith(b"4.3.0") and str(tmp_path).encode() not in said
        assert client.rcpt("alice@here.test")[0] == 451
        assert client.noop()[0] == 250
    log = running.context.paths.event_log.read_text()
    assert '"event": 1521' in log and f"{tmp_path}/map" in log


def test_a_slow_map_delays_its_own_session_alone(mapped: Callable[..., Running], tmp_path: Path,
                                                 gate: Gate) -> None:
    (tmp_path / "map").write_text("slow@here.test alice\ninfo@here.test bob\n")
    running = mapped()
    with running.client() as waits, running.client() as other:
        waits.ehlo()
        waits.mail("s@far.test")
        waits.putcmd("RCPT TO:<slow@here.test>")
        assert gate.began.wait(TIMEOUT_S)
        other.sendmail("s@far.test", ["info@here.test"], TEXT)
        gate.may.set()
        assert waits.getreply()[0] == 250
    assert len(running.manager.puts) == 1


def test_one_that_is_too_slow_refuses_for_now(mapped: Callable[..., Running], tmp_path: Path,
                                              gate: Gate) -> None:
    (tmp_path / "map").write_text("slow@here.test alice\n")
    running = mapped(more="[router]\nmap_timeout_s = 1\n")
    with running.client() as client:
        client.ehlo()
        client.mail("s@far.test")
        assert client.rcpt("slow@here.test")[0] == 451


def test_a_client_that_goes_while_it_waits(mapped: Callable[..., Running], tmp_path: Path,
                                           gate: Gate) -> None:
    (tmp_path / "map").write_text("slow@here.test alice\ninfo@here.test bob\n")
    running = mapped()
    client = running.client()
    client.ehlo()
    client.mail("s@far.test")
    client.putcmd("RCPT TO:<slow@here.test>")
    assert gate.began.wait(TIMEOUT_S)
    client.close()
    gate.may.set()
    with running.client() as other:
        other.sendmail("s@far.test", ["info@here.test"], TEXT)
    assert '"event": 1007' not in running.context.paths.event_log.read_text()


def test_a_recipient_that_is_looked_up_counts_once(mapped: Callable[..., Running], tmp_path: Path,
                                                   gate: Gate) -> None:
    (tmp_path / "map").write_text("a@here.test b@here.test\nb@here.test bob\n")
    running = mapped(smtp_client_recipients_max=2)
    with running.client() as client:
        client.ehlo()
        client.mail("s@far.test")
        assert [client.rcpt(f"{each}@here.test")[0] for each in "aab"] == [250, 250, 450]
    assert gate.asked == ["a@here.test", "b@here.test", "bob@here.test"]


def test_a_reload_while_a_session_waits(mapped: Callable[..., Running], tmp_path: Path,
                                        conf_dir: Path, gate: Gate) -> None:
    (tmp_path / "map").write_text("slow@here.test alice\n")
    running = mapped()
    with running.client() as client:
        client.ehlo()
        client.mail("s@far.test")
        client.putcmd("RCPT TO:<slow@here.test>")
        assert gate.began.wait(TIMEOUT_S)
        (conf_dir / "routes.conf").write_text(ROUTES)
        running.signals.send(signal.SIGHUP)
        until(lambda: '"event": 1004' in running.context.paths.event_log.read_text())
        gate.may.set()
        assert client.getreply()[0] == 550, "the new routes count"


def test_as_whom_a_user_of_a_map_may_send(users: Callable[..., Running], conf_dir: Path,
                                          tmp_path: Path, certificates: Any) -> None:
    (tmp_path / "senders").write_text("alice office@here.test, @lists.test\n")
    (conf_dir / "routes.conf").write_text(
        f"{ROUTES}[sender_maps]\nm = file:{tmp_path}/senders\n")
    running = users()

    def sends(sender: str, login: str = "alice", password: str = "secret") -> int:
        with smtplib.SMTP("localhost", running.port_of(Listener.SUBMISSION),
                          timeout=TIMEOUT_S) as client:
            client.starttls(context=certificates.client())
            client.login(login, password)
            return client.mail(sender)[0]

    assert [sends(each) for each in ("office@here.test", "x@lists.test", "alice@here.test",
                                     "bob@here.test")] == [250, 250, 250, 553]
    (tmp_path / "senders").unlink()
    assert sends("office@here.test", "bob@here.test", "geheim") == 451
    assert sends("bob@here.test", "bob@here.test", "geheim") == 250, "his own needs no map"
