"""unix.out: what a sender is told, what other processes know, and what is never sent twice."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omq.base.errors import QueueFull
from omq.services.mail.unix_out import UnixOutService
from omq.services.readers.service import Defer, Move

BODY = b"Subject: x\r\n\r\nhello\r\n"
TO = {"mail.from": "s@here.test", "mail.to.UNIX": "real@far.test\nb@far.test",
      "mail.orig.UNIX": "list@here.test\nb@far.test", "mail.id": "ab" * 24}
REFUSED = {"RCPT real@far.test": "550 5.1.1 gone"}


@pytest.fixture
def pipelining() -> bool:
    return True


def routes(port: int) -> str:
    return f"[peers]\n* = 127.0.0.1:{port}\n"


def test_a_sender_hears_of_the_address_that_it_wrote(
        service: Callable[..., Any], message: Callable[..., Any], sink: Any,
        tmp_path: Path) -> None:
    far = sink(REFUSED)
    unix = service(UnixOutService, "unix", routes(far.port))
    answer = unix.handle(message(BODY, TO, queue="UNIX"))
    assert isinstance(answer, Move)
    properties = answer.new[0].properties
    assert properties["error.to"] == "list@here.test"
    assert properties["error.reason"] == "550 5.1.1 gone"
    assert properties["error.mta"] == "127.0.0.1"
    lines = (tmp_path / "spool/logs/mail.log").read_text().splitlines()
    said = [line.split("]: ")[1] for line in lines]
    assert said[0].startswith(f"{'ab' * 24}: to=<real@far.test>, relay=127.0.0.1, delay=")
    assert said[0].endswith("dsn=5.1.1, status=bounced (550 5.1.1 gone)")
    assert "status=sent" in said[1]


def test_those_that_wait_keep_the_address_that_was_written(
        service: Callable[..., Any], message: Callable[..., Any], sink: Any) -> None:
    far = sink({"RCPT real@far.test": "450 4.2.0 later"})
    unix = service(UnixOutService, "unix", routes(far.port))
    (rest,) = unix.handle(message(BODY, TO, queue="UNIX")).new
    assert rest.properties["mail.to.UNIX"] == "real@far.test"
    assert rest.properties["mail.orig.UNIX"] == "list@here.test"


def test_what_was_sent_is_not_sent_again_when_its_end_was_refused(
        service: Callable[..., Any], message: Callable[..., Any], sink: Any) -> None:
    """ERRMGR is full: the message waits, and what became of it is remembered."""
    far = sink(REFUSED)
    unix = service(UnixOutService, "unix", routes(far.port))
    given = message(BODY, TO, queue="UNIX")
    first = unix.handle(given)
    for _ in range(3):
        assert unix.refused(given, QueueFull(queue="ERRMGR", limit=1)) is None
        assert unix.handle(given) == first
    assert len(far.received) == 1
    unix.handle(message(BODY, TO, queue="UNIX", message_id="cd" * 24))
    assert len(far.received) == 2


def test_a_peer_that_one_process_found_dead_is_dead_for_all(
        service: Callable[..., Any], message: Callable[..., Any], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    one = service(UnixOutService, "unix", routes(port))
    two = service(UnixOutService, "unix")
    (tmp_path / "spool/run").mkdir(exist_ok=True)
    assert isinstance(one.handle(message(BODY, TO, queue="UNIX")), Defer)
    answer = two.handle(message(BODY, TO, queue="UNIX"))
    assert isinstance(answer, Defer)
    assert "was not reached lately" in answer.reason
    two.reload()
    assert "was not reached lately" not in two.handle(message(BODY, TO, queue="UNIX")).reason
