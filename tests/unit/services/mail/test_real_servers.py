"""unix.out and real servers: Dovecot by LMTP, a name server, smtp-sink, Postfix."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omq.base.settings import Settings
from omq.services.mail.mx_lookup import NamesWorker
from omq.services.mail.routes import Routes
from omq.services.mail.unix_out import UnixOutService
from omq.services.readers.service import Done, Move
from tests.bench.peers.postfix import LOCAL_DOMAIN, Postfix
from tests.bench.peers.processes import pause
from tests.unit.services.mail.conftest import sent_by
from tests.unit.services.mail.real import dovecot, found, name_server, sink

BODY = b"Subject: x\r\n\r\n.hello\r\n"
WAIT_S = 120
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="the server must be started as root")


@pytest.fixture
def unix(service: Callable[..., Any], message: Callable[..., Any]) -> Callable[..., Any]:
    """unix(routes)(recipients): what becomes of a mail for them."""
    def make(routes: str, **settings: Any) -> Any:
        made = service(UnixOutService, "unix", routes, **settings)

        def handle(*recipients: str, number: int = 0) -> Any:
            return sent_by(made, message(
                BODY, {"mail.from": "s@here.test", "mail.to.UNIX": "\n".join(recipients)},
                queue="UNIX", message_id=f"{number:048x}"))

        return handle

    return make


def arrived(folder: Path, count: int) -> list[Path]:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        files = list(folder.iterdir()) if folder.exists() else []
        if len(files) >= count:
            return files
        pause(0.01)
    pytest.fail(f"{count} files are not in {folder}")


@as_root
def test_dovecot_takes_mail_and_refuses_whom_it_does_not_know(unix: Any, tmp_path: Path) -> None:
    home = tmp_path / "dovecot"
    home.mkdir()
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(folder.stat().st_mode | 0o011)  # its user passes through to his mail
    with dovecot(home) as port:
        told = unix(f"[peers]\n* = lmtp:127.0.0.1:{port}\n")("alice@far.test", "bob@far.test")
        (file,) = arrived(home / "alice/Maildir/new", 1)
    assert isinstance(told, Move)
    (report,) = told.new
    assert report.properties["error.to"] == "bob@far.test"
    assert report.properties["error.status"] == "5.1.1"
    assert file.read_bytes().replace(b"\r\n", b"\n").endswith(b"Subject: x\n\n.hello\n")


def test_a_name_server_of_others(tmp_path: Path) -> None:
    with name_server(tmp_path, "mx-host=a.test,two.a.test,20", "mx-host=a.test,one.a.test,10",
                     "host-record=one.a.test,192.0.2.7,2001:db8::7",
                     "host-record=two.a.test,192.0.2.8", "host-record=c.test,192.0.2.9",
                     *(f"mx-host=many.test,mx{n:02}.with-a-long-name.many.test,{n}"
                       for n in range(60)),
                     *(f"host-record=mx{n:02}.with-a-long-name.many.test,192.0.2.{n}"
                       for n in range(60))) as port:
        names = NamesWorker(Settings(hostname="mx.test", dns_servers=f"127.0.0.1:{port}"),
                            Routes())
        found = names.look_up("a.test")
        assert [(each.preference, each.host, set(each.addresses)) for each in found.ordered()] == [
            (10, "one.a.test", {"2001:db8::7", "192.0.2.7"}), (20, "two.a.test", {"192.0.2.8"})]
        assert [each.host for each in names.look_up("c.test").ordered()] == ["c.test"]
        assert names.look_up("none.test").status == "5.1.2"
        many = names.look_up("many.test").ordered()  # does not fit into a datagram
        assert [each.host[:4] for each in many[:3]] == ["mx00", "mx01", "mx02"]
        names.close()


def test_smtp_sink_has_all_over_few_connections(unix: Any, tmp_path: Path) -> None:
    with sink(tmp_path) as (port, server):
        handle = unix(f"[peers]\n* = 127.0.0.1:{port}\n")
        assert [handle("a@far.test", number=n) for n in range(1, 31)] == [Done()] * 30
        server.wait_until(lambda: re.findall(r"mesg=(\d+)", server.tail())[-1:] == ["30"],
                          "30 messages")
        assert re.findall(r"sess=(\d+)", server.tail())[-1:] == ["1"]  # one connection for all


@as_root
def test_postfix_delivers_what_it_was_handed(unix: Any, tmp_path: Path) -> None:
    found("usr/lib/postfix/sbin/master", "postfix")
    home = tmp_path / "postfix"
    home.mkdir()
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(folder.stat().st_mode | 0o011)
    postfix = Postfix(home, 9)
    postfix.start()
    try:
        handle = unix(f"[peers]\n* = 127.0.0.1:{postfix.port}\n")
        assert [handle(f"box@{LOCAL_DOMAIN}", number=n) for n in range(1, 6)] == [Done()] * 5
        files = arrived(postfix.maildir, 5)
    finally:
        postfix.stop()
    for file in files:
        header, _, body = file.read_bytes().partition(b"\n\n")
        assert (b"\nSubject: x\n" in header + b"\n", body) == (True, b".hello\n")
