"""What a sender wants to be told (RFC 3461): taken, kept, passed on, told."""

from __future__ import annotations

import email
from collections.abc import Callable
from typing import Any

import pytest

from omq.services.mail.dsn import DsnRequest, decoded, dsn_request_of, dsn_requests_of
from omq.services.mail.error_manager import ErrorManagerService
from omq.services.mail.local_delivery import LocalDeliveryService
from omq.services.mail.unix_out import UnixOutService
from omq.services.readers.service import Defer, Done, Move
from tests.unit.services.mail.conftest import sent_by
from tests.unit.services.mail.stage_peer import StagePeer

BODY = b"Subject: x\r\n\r\nhello\r\n"
SUCCESS = {"mail.from": "s@far.test", "mail.envid": "id+2B1", "mail.ret": "FULL",
           "mail.dsn": "a@far.test\tSUCCESS,FAILURE\trfc822;A+40far.test\nb@far.test\tNEVER\t"}


@pytest.mark.parametrize(("text", "said"), [
    ("abc", "abc"), ("a+2Bb", "a+b"), ("a+2bb", ""), ("a+0D+0Ab", ""), ("a+", ""), ("", ""),
    ("a=b", ""), ("+C3+A9", ""), ("a+7Fb", "")])
def test_xtext(text: str, said: str) -> None:
    assert decoded(text) == said


@pytest.mark.parametrize(("parameters", "taken"), [
    ({}, True), ({"NOTIFY": "NEVER"}, True), ({"NOTIFY": "success,DELAY"}, True),
    ({"NOTIFY": ""}, False), ({"NOTIFY": "NEVER,DELAY"}, False), ({"NOTIFY": "X"}, False),
    ({"NOTIFY": "DELAY,DELAY"}, False), ({"ORCPT": "rfc822;a@b"}, True), ({"ORCPT": "a@b"}, False),
    ({"ORCPT": "rfc822;a+0D+0AX:+20y"}, False), ({"ORCPT": "rfc822;" + "a" * 500}, False),
    ({"SIZE": "1"}, False)])
def test_parameters_of_recipients(parameters: dict[str, str], taken: bool  # noqa: FBT001
                                  ) -> None:
    assert isinstance(dsn_request_of(parameters), DsnRequest) is taken


def test_nonsense_in_properties_is_no_wish() -> None:
    properties = {"mail.dsn": "a\nb\tX\t\nc\t\trfc822;+0A\nd\tNEVER\t\t\ne\tNEVER\t"}
    assert dsn_requests_of(properties) == {"e": DsnRequest("NEVER")}


def _report(answer: Any) -> Any:
    assert isinstance(answer, Move)
    (new,) = answer.new
    return new, email.message_from_bytes(new.body)


@pytest.fixture
def manager(service: Callable[..., Any]) -> Any:
    return service(ErrorManagerService, "errmgr")


def test_a_report_has_the_senders_names_and_all_of_the_message(manager: Any, message: Any) -> None:
    properties = SUCCESS | {"error.to": "a@far.test\nb@far.test", "error.status": "5.1.1"}
    _, parsed = _report(manager.handle(message(BODY, properties, queue="ERRMGR")))
    text = parsed.as_string()
    assert "Original-Envelope-Id: id+1" in text
    assert "Original-Recipient: rfc822; A@far.test" in text
    assert "Final-Recipient: rfc822; b@far.test" not in text, "who said NEVER is told nothing"
    assert parsed.get_payload()[2].get_content_type() == "message/rfc822"


def test_nobody_is_told_who_wants_nothing(manager: Any, message: Any) -> None:
    properties = SUCCESS | {"error.to": "b@far.test", "error.status": "5.1.1"}
    assert manager.handle(message(BODY, properties, queue="ERRMGR")) == Done()


@pytest.mark.parametrize(("action", "subject"), [
    ("delivered", "Mail was delivered"), ("relayed", "Mail was passed on")])
def test_other_ends_have_their_words(manager: Any, message: Any, action: str, subject: str) -> None:
    properties = SUCCESS | {"error.to": "a@far.test", "error.status": "2.0.0",
                            "error.action": action}
    _, parsed = _report(manager.handle(message(BODY, properties, queue="ERRMGR")))
    assert parsed["Subject"] == subject
    assert f"Action: {action}" in parsed.as_string()
    plain = {name: value for name, value in properties.items() if name != "mail.dsn"}
    assert manager.handle(message(BODY, plain, queue="ERRMGR")) == Done(), "nobody asked for it"


# unix.out


class Telling(StagePeer):
    """A peer with the extension."""

    def _reply_to(self, verb: str) -> str:
        found = super()._reply_to(verb)
        return found.replace("\r\n", "\r\n250-DSN\r\n", 1) if verb == "EHLO" else found


@pytest.fixture
def unix(service: Callable[..., Any], message: Callable[..., Any]) -> Callable[..., Any]:
    def send(peer: StagePeer, properties: dict[str, str], **more: Any) -> Any:
        made = service(UnixOutService, "unix", f"[peers]\n* = 127.0.0.1:{peer.port}\n",
                       delay_warning_s=60)
        return sent_by(made, message(BODY, properties, queue="UNIX", **more))

    return send


def test_wishes_are_passed_on(unix: Any) -> None:
    with Telling() as peer:
        assert unix(peer, SUCCESS | {"mail.to.UNIX": "a@far.test\nc@far.test"}) == Done()
    (mail_from,) = [each for each in peer.commands if each.startswith("MAIL")]
    assert mail_from.endswith(" RET=FULL ENVID=id+2B1")
    assert "RCPT TO:<a@far.test> NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;A+40far.test" in peer.commands
    assert "RCPT TO:<c@far.test>" in peer.commands


def test_the_sender_is_told_of_a_host_that_does_not_tell(unix: Any) -> None:
    with StagePeer() as peer:
        answer = unix(peer, SUCCESS | {"mail.to.UNIX": "a@far.test\nb@far.test"})
    (new,) = answer.new
    assert (new.queues, new.properties["error.to"]) == (("ERRMGR",), "a@far.test")
    assert new.properties["error.action"] == "relayed"
    assert not any("NOTIFY" in each or "ENVID" in each for each in peer.commands)


def test_a_delay_is_told_once(unix: Any) -> None:
    properties = {"mail.from": "s@far.test", "mail.to.UNIX": "a@far.test",
                  "unix.since": "1"}
    late = {"put_time_ns": 1}
    with StagePeer("RCPT", "4yz") as peer:
        made = unix(peer, properties, **late)  # its first try: it may be over already
        report, rest = made.new
        assert report.properties["error.action"] == "delayed"
        assert rest.queues == ("UNIX",)
        assert rest.delay_s > 0
        quiet = {**properties, "mail.dsn": "a@far.test\tFAILURE\t"}
        assert isinstance(unix(peer, quiet, **late), Defer)
        assert isinstance(unix(peer, {**properties, "mail.from": ""}, **late), Defer)
        assert isinstance(unix(peer, properties | {"unix.warned": "1"}, **late), Defer)


# local delivery


def test_a_delivery_is_told_to_who_asked(service: Any, message: Any) -> None:
    local = service(LocalDeliveryService, "local")
    found = message(BODY, {
        "mail.from": "s@far.test", "mail.to.LOCAL": "a\nb", "mail.orig.LOCAL": "a@here\nb@here",
        "mail.dsn": "a@here\tSUCCESS\t"}, queue="LOCAL")
    (new,) = local.handle(found).new
    assert (new.queues, new.properties["error.to"]) == (("ERRMGR",), "a@here")
    assert new.properties["error.action"] == "delivered"
