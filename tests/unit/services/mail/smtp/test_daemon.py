"""smtp.server as a daemon: start, stop, reload, its limits and its mistakes."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import smtplib
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omq.base.errors import ConfigError, ManagerUnavailable, PortInUse
from omq.services.daemon.daemon import DaemonContext
from omq.services.mail.routes import Routes
from omq.services.mail.smtp_handler import Listener
from omq.services.mail.smtp_server import PORT_FILE, SmtpServer

TEXT = b"Subject: x\r\n\r\n.hello\r\n..\r\n"
TIMEOUT_S = 120


def test_a_broken_connection_is_replaced(server: Callable[..., Any]) -> None:
    running = server(smtp_workers=1)
    assert running.manager.connections == 1
    running.manager.error = ManagerUnavailable(spool="x", reason="y")
    with running.client() as client:
        with pytest.raises(smtplib.SMTPDataError):
            client.sendmail("s@x", ["a@here.test"], TEXT)
        assert running.manager.closed == 1
        running.manager.error = None
        client.sendmail("s@x", ["a@here.test"], TEXT)
        client.sendmail("s@x", ["a@here.test"], TEXT)
    assert running.manager.connections == 2


def test_too_many_sessions(server: Callable[..., Any]) -> None:
    running = server(smtp_sessions_max=2)
    with running.client(), running.client() as second:
        with pytest.raises(smtplib.SMTPConnectError) as raised:
            running.client()
        assert raised.value.smtp_code == 421
        second.ehlo()


def test_a_stop_lets_the_running_transaction_finish(server: Callable[..., Any]) -> None:
    running = server()
    running.manager.gate = threading.Event()
    with running.client() as idle, contextlib.closing(running.client()) as busy:
        idle.ehlo()
        busy.ehlo()
        busy.mail("s@x")
        busy.rcpt("a@here.test")
        busy.putcmd("DATA")
        assert busy.getreply()[0] == 354
        busy.send(TEXT + b".\r\n")
        assert running.manager.entered.acquire(timeout=TIMEOUT_S)
        running.signals.send(signal.SIGTERM)
        assert idle.getreply()[0] == 421
        running.manager.gate.set()
        assert busy.getreply()[0] == 250
        assert busy.getreply()[0] == 421
        running.thread.join(TIMEOUT_S)
        assert not running.thread.is_alive()
        with pytest.raises(OSError):
            running.client()
    assert len(running.manager.puts) == 1
    assert running.manager.closed == running.manager.connections


def test_a_stop_is_bounded(server: Callable[..., Any], logged: Callable[[], list[int]]) -> None:
    running = server(drain_timeout_s=0)
    with contextlib.closing(running.client()) as client:
        client.ehlo()
        client.mail("s@x")
        running.stop()
        with pytest.raises(smtplib.SMTPServerDisconnected):
            client.rcpt("a@here.test")
    assert logged() == [7201, 1003, 7206, 7202]


def test_a_reload_changes_the_routes(server: Callable[..., Any], conf_dir: Path,
                                     logged: Callable[[], list[int]]) -> None:
    running = server()
    (conf_dir / "omq.conf").write_text(
        "[mail]\nsmtp_listen_port = 0\nsmtp_relay_networks = 192.0.2.0/24\n")
    (conf_dir / "routes.conf").write_text("[local]\ndomains = new.test\n")
    with running.client() as client:
        client.ehlo()
        running.signals.send(signal.SIGHUP)
        client.mail("s@x")
        while client.docmd("RCPT", "TO:<b@far.test>")[0] == 250:
            client.rset()  # until the reload is done, which no reply tells
            client.mail("s@x")
        assert client.docmd("RCPT", "TO:<a@new.test>")[0] == 250
        assert client.docmd("RCPT", "TO:<a@here.test>")[0] == 550
        (conf_dir / "routes.conf").write_text("[wrong]\n")
        running.signals.send(signal.SIGHUP)
        while 1005 not in logged():
            client.noop()
        assert client.docmd("RCPT", "TO:<a@new.test>")[0] == 250
    assert 1004 in logged()


def test_a_reload_takes_ports_too_or_nothing(
        server: Callable[..., Any], conf_dir: Path, logged: Callable[[], list[int]],
        monkeypatch: pytest.MonkeyPatch) -> None:
    """One that took smtp_filter without its return port had 451 for everybody. Of a reload one of
    the two policies is let go of: the new one if it was refused."""
    closed, close = list[Routes](), Routes.close

    def noted(routes: Routes) -> None:
        closed.append(routes)
        close(routes)

    monkeypatch.setattr(Routes, "close", noted)
    running, pause = server(), threading.Event()
    old = running.port

    def reload(text: str, event: int) -> None:
        seen = logged().count(event)
        (conf_dir / "omq.conf").write_text("[mail]\nsmtp_listen_port = 0\n" + text)
        running.signals.send(signal.SIGHUP)
        while logged().count(event) == seen:
            pause.wait(0.02)

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        reload(f"smtp_filter = 127.0.0.1:1\nsmtp_filter_return_port = {port}\n", 1005)
    assert len(closed) == 1
    reload("smtp_filter = 127.0.0.1:1\n", 1005)  # its routes had been read by then
    assert len(closed) == 2
    with running.client() as client:
        client.sendmail("s@x", ["a@here.test"], TEXT)
    assert len(running.manager.puts) == 1, "it goes on as before, without a filter"
    reload("smtp_filter = 127.0.0.1:1\nsmtp_filter_return_port = 0\n", 1004)
    with socket.create_connection(("127.0.0.1", running.port_of(Listener.RETURNED)), 60) as back:
        assert back.recv(4) == b"220 "
    assert running.port_of(Listener.RELAY) == old, "a port that stays is not closed"
    reload("", 1004)
    assert not (running.context.paths.run / Listener.RETURNED.value).exists()
    reload("smtp_listen_host = ::1\n", 1004)
    with smtplib.SMTP("::1", running.port_of(Listener.RELAY), timeout=60) as client:
        client.sendmail("s@x", ["a@here.test"], TEXT)
    assert len(closed) == 5 == len(set(map(id, closed))), "each once, and not what is in use"


def test_the_port_is_published(server: Callable[..., Any]) -> None:
    running = server()
    text = (running.context.paths.run / PORT_FILE).read_text()
    assert text == f"127.0.0.1 {running.port}\n"


@pytest.mark.parametrize("key", ["smtp_listen_port", "smtp_filter_return_port"])
def test_a_port_in_use_is_named_with_its_key(context: DaemonContext, manager: Any, key: str
                                             ) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        taken = replace(context, settings=replace(context.settings, **{
            "smtp_listen_port": 0, "smtp_listen_host": "127.0.0.1", key: port}))

        async def run() -> int:
            return await SmtpServer(taken, manager.connect).run()

        with pytest.raises(PortInUse) as raised:
            asyncio.run(run())
    assert (raised.value.fields["port"], raised.value.fields["key"]) == (port, key)


def test_no_manager_at_the_start(context: DaemonContext) -> None:
    def refuse() -> Any:
        raise ManagerUnavailable(spool="x", reason="y")

    async def run() -> int:
        return await SmtpServer(context, refuse).run()

    with pytest.raises(ManagerUnavailable):
        asyncio.run(run())


def test_wrong_networks_are_a_mistake_of_the_configuration(context: DaemonContext,
                                                            manager: Any) -> None:
    wrong = replace(context, settings=replace(context.settings, smtp_relay_networks="1.2.3.4/8"))

    async def run() -> int:
        return await SmtpServer(wrong, manager.connect).run()

    with pytest.raises(ConfigError):
        asyncio.run(run())
