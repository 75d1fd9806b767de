"""soft_bounce: nothing is refused, returned or given up for good, anywhere mail passes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omq.services.mail.local_delivery import LocalDeliveryService
from omq.services.mail.mail_retry import SINCE, TRIES
from omq.services.mail.router import RouterService
from omq.services.mail.smtp_refusals import softened
from omq.services.mail.unix_out import UnixOutService
from omq.services.mail.xport_out import XportOutService
from omq.services.readers.service import Defer, Move
from tests.unit.services.mail.conftest import sent_by

BODY = b"Subject: x\r\nTo: a@here.test\r\n\r\nhello\r\n"
ROUTES = "[local]\ndomains = here.test\nusers = a b\n"


def envelope(**more: str) -> dict[str, str]:
    return {"mail.from": "s@far.test", "mail.to": "a@here.test"} | more


def log(made: Any) -> str:
    return str((made.context.paths.logs / "mail.log").read_text())


@pytest.mark.parametrize(("reply", "soft"), [
    ("550 5.1.1 no such user", "450 4.1.1 no such user"), ("550 no", "450 no"),
    ("550-5.7.1 5.1.1\r\n550 5.7.1 550 5", "450-4.7.1 5.1.1\r\n450 4.7.1 550 5"),
    ("250 5.1.1", "250 5.1.1"), ("354 go on", "354 go on"),
    ("503 5.5.1 x\r\n421 4.7.0 too many errors", "403 4.5.1 x\r\n421 4.7.0 too many errors")])
def test_replies(reply: str, soft: str) -> None:
    assert softened(reply) == soft


@pytest.mark.parametrize("soft", [False, True])
def test_a_peer_that_refuses(service: Callable[..., Any], message: Callable[..., Any],
                             sink: Callable[..., Any], *, soft: bool) -> None:
    peer = sink({"RCPT b@far.test": "550 5.1.1 no such user"})
    made = service(UnixOutService, "unix", f"[peers]\nfar.test = 127.0.0.1:{peer.port}\n",
                   soft_bounce=soft, unix_retry_step_s=60)
    both = sent_by(made, message(BODY, envelope(**{
        "mail.to.UNIX": "a@far.test\nb@far.test"}), queue="UNIX"))
    assert isinstance(both, Move)
    new, = both.new
    assert new.queues == (("UNIX",) if soft else ("ERRMGR",))
    if soft:
        assert new.properties["mail.to.UNIX"] == "b@far.test"
        assert "status=deferred" in log(made)
        old = message(BODY, envelope(**{"mail.to.UNIX": "b@far.test", SINCE: "1", TRIES: "9"}),
                      queue="UNIX")
        assert isinstance(sent_by(made, old), Defer), "nothing is too old"


@pytest.mark.parametrize("soft", [False, True])
def test_a_command_that_refuses(service: Callable[..., Any], message: Callable[..., Any],
                                tmp_path: Path, *, soft: bool) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nexit 67\n")
    program.chmod(0o755)
    made = service(XportOutService, "xport", soft_bounce=soft,
                   xport_command=f"{program} {{recipients}}")
    found = made.handle(message(BODY, envelope(**{SINCE: "1", TRIES: "9"}), queue="XPORT"))
    assert isinstance(found, Defer if soft else Move)


@pytest.mark.parametrize("soft", [False, True])
def test_a_mailbox_that_is_none(service: Callable[..., Any], message: Callable[..., Any], *,
                                soft: bool) -> None:
    made = service(LocalDeliveryService, "local", soft_bounce=soft)
    found = made.handle(message(BODY, envelope(**{"mail.to.LOCAL": "../etc\nbob"}), queue="LOCAL"))
    assert isinstance(found, Move)
    new, = found.new
    assert new.queues == (("LOCAL",) if soft else ("ERRMGR",))
    if soft:
        assert new.properties["mail.to.LOCAL"] == "../etc"
        assert "dsn=4.1.1, status=deferred" in log(made)


@pytest.mark.parametrize("soft", [False, True])
def test_a_recipient_without_a_way(service: Callable[..., Any], message: Callable[..., Any], *,
                                   soft: bool) -> None:
    made = service(RouterService, "router", ROUTES, soft_bounce=soft)
    mails = [message(BODY, envelope(**{"mail.to": to}), queue="ROUTER")
             for to in ("a@here.test", "a@here.test\nnobody@here.test")]
    good, bad = made.handle_many(mails)
    assert isinstance(good, Move)
    assert isinstance(bad, Defer if soft else Move)
    assert ("status=deferred" if soft else "status=bounced") in log(made)
