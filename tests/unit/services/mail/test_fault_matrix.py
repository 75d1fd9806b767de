"""What becomes of a mail when a peer goes wrong: every stage of a session, every way.

    done    delivered                later   deferred, its peer counts as reachable
    bounce  its sender is told       down    deferred until the peer is tried again
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omq.base import events
from omq.services.mail.smtp_client import ClientLimits
from omq.services.mail.unix_out import UnixOutService
from omq.services.readers.service import Defer, Disposition, Done, Move
from tests.unit.services.mail.conftest import sent_by
from tests.unit.services.mail.smtp.certificates import Certificates
from tests.unit.services.mail.stage_peer import REPLIES, STAGES, StagePeer
from tests.waiting import until

QUICK, PATIENT = ClientLimits(0.3, 0.3, 0.3, 10), ClientLimits(9, 9, 9, 10)
"""For who says nothing, and for who answers however busy this machine is."""
BODY = b"Subject: x\r\n\r\nhello\r\n"

ALL_DOWN = dict.fromkeys(REPLIES, "down")
TRANSACTION = {"4yz": "later", "421": "later", "5yz": "bounce", "garbage": "later",
               "endless": "later", "cut": "later", "silence": "down", "slow": "down"}
OUTCOMES = {
    "greeting": ALL_DOWN,
    # Who does not know EHLO may know HELO.
    "EHLO": ALL_DOWN | {"4yz": "done", "5yz": "done", "garbage": "done"},
    "STARTTLS may": dict.fromkeys(REPLIES, "done"),
    "STARTTLS encrypt": ALL_DOWN,
    "AUTH": ALL_DOWN,
    "MAIL": TRANSACTION, "RCPT": TRANSACTION, "DATA": TRANSACTION, ".": TRANSACTION,
    "QUIT": dict.fromkeys(REPLIES, "done"),
}
CASES = [(stage, reply, outcome) for stage, row in OUTCOMES.items()
         for reply, outcome in row.items()]


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.fixture
def context(certificates: Certificates) -> Any:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(certificates.make("127.0.0.1", "peer.test"))
    return made


@pytest.fixture
def gateway(service: Callable[..., Any], message: Callable[..., Any], tmp_path: Path,
            certificates: Certificates) -> Callable[..., Any]:
    """send(peer, [tls] rule, login): what becomes of a mail with two recipients."""

    def make(peer: StagePeer, rule: str = "", *, login: str = "", channel: str = "smtp",
             **settings: Any) -> Any:
        way = "lmtp:" if channel == "lmtp" else ""
        routes = f"[peers]\n* = {way}127.0.0.1:{peer.port}\n[tls]\n"
        if rule:
            routes += f"127.0.0.1 = {rule}\n"
        if login:
            path = tmp_path / "logins"
            path.write_text(f"# ours\n127.0.0.1:{peer.port} {login}\n")
            path.chmod(0o600)
            settings["unix_auth_file"] = str(path)
        made = service(UnixOutService, "unix", routes, unix_retry_step_s=60,
                       unix_tls_ca_file=str(certificates.ca_file), **settings)

        def send(*recipients: str) -> Disposition:
            made.tests_channel = channel
            made.tests_worker = worker = made.worker(channel)
            silent = peer.reply in ("silence", "slow")
            worker._limits = QUICK if silent else PATIENT
            found = sent_by(made, message(BODY, {
                "mail.from": "s@here.test",
                "mail.to.UNIX": "\n".join(recipients or ("a@far.test", "b@far.test"))},
                queue="UNIX"))
            worker.close()
            return found

        return send

    return make


def outcome(found: Disposition) -> str:
    """In a word of the table above."""
    if isinstance(found, Done):
        return "done"
    if isinstance(found, Defer):
        # The pause of a peer that is down comes from elsewhere: `sent_by` says 60, the mail's own
        # first one is 60 too; what differs is the status that is told.
        return "later"
    assert isinstance(found, Move)
    (report,) = found.new
    assert report.queues == ("ERRMGR",)
    return "bounce"


@pytest.mark.parametrize(("stage", "reply", "wanted"), CASES,
                         ids=[f"{stage}-{reply}" for stage, reply, _ in CASES])
def test_every_stage_and_every_reply(gateway: Any, context: Any, stage: str, reply: str,
                                     wanted: str, pipelining: bool) -> None:  # noqa: FBT001 (a fixture)
    name, _, level = stage.partition(" ")
    login = "alice:secret" if name == "AUTH" else ""
    with StagePeer(name, reply, context=context, pipelining=pipelining, auth=bool(login)) as peer:
        send = gateway(peer, level or ("encrypt" if login else "may"), login=login)
        reached: list[bool] = []
        found = _watched(send, reached)
        kept = "down" if not all(reached) else outcome(found)
        assert kept == wanted, found
        assert isinstance(found, Defer) is (wanted in ("later", "down"))
        assert bool(peer.received) is (wanted == "done")


LMTP_OUTCOMES = {
    "greeting": ALL_DOWN, "EHLO": ALL_DOWN,  # nobody who speaks LMTP knows HELO instead
    "MAIL": TRANSACTION, "RCPT": TRANSACTION, "DATA": TRANSACTION, ".": TRANSACTION,
    "QUIT": dict.fromkeys(REPLIES, "done"),
}


@pytest.mark.parametrize(("stage", "reply", "wanted"), [
    (stage, reply, wanted) for stage, row in LMTP_OUTCOMES.items()
    for reply, wanted in row.items()])
def test_every_stage_and_every_reply_over_lmtp(gateway: Any, stage: str, reply: str,
                                               wanted: str) -> None:
    with StagePeer(stage, reply, lmtp=True) as peer:
        send = gateway(peer, channel="lmtp")
        reached: list[bool] = []
        found = _watched(send, reached)
        assert ("down" if not all(reached) else outcome(found)) == wanted, found
        assert bool(peer.received) is (wanted == "done")


@pytest.mark.parametrize("reply", REPLIES)
def test_a_kept_connection_that_goes_wrong_is_opened_again(
        service: Callable[..., Any], message: Callable[..., Any], reply: str) -> None:
    """What it was to carry has not begun: the mail is neither deferred nor sent twice."""
    with StagePeer("RSET", reply, pipelining=True) as peer:
        made = service(UnixOutService, "unix", f"[peers]\n* = 127.0.0.1:{peer.port}\n")
        made.tests_worker = worker = made.worker("smtp")
        worker._limits = QUICK if reply in ("silence", "slow") else PATIENT
        for _ in range(2):
            assert sent_by(made, message(BODY, {
                "mail.from": "s@here.test", "mail.to.UNIX": "a@far.test"}, queue="UNIX")) == Done()
        assert [each[1] for each in peer.received] == [["a@far.test"]] * 2
        assert peer.commands.count("ehlo mx.test") == 2


def test_the_answer_to_a_goodbye_is_not_waited_for(
        service: Callable[..., Any], message: Callable[..., Any]) -> None:
    """A process that closes a connection has other peers' mail to send."""
    with StagePeer("QUIT", "silence") as peer:
        made = service(UnixOutService, "unix", f"[peers]\n* = 127.0.0.1:{peer.port}\n")
        made.tests_worker = worker = made.worker("smtp")
        worker._limits = ClientLimits(300, 300, 300, 1)
        for _ in range(2):
            assert sent_by(made, message(BODY, {
                "mail.from": "s@here.test", "mail.to.UNIX": "a@far.test"}, queue="UNIX")) == Done()
        worker.close()
        assert not peer.silent_to_the_end
        until(lambda: peer.commands.count("QUIT") == 2, "it was said")


def _watched(send: Any, reached: list[bool]) -> Disposition:
    from omq.services.mail.smtp_channel import SmtpChannel

    original = SmtpChannel.send

    def noting(self: Any, head: Any, body: bytes) -> Any:
        report = original(self, head, body)
        reached.append(report.reached)
        return report

    SmtpChannel.send = noting  # type: ignore[method-assign]
    try:
        return send()  # type: ignore[no-any-return]
    finally:
        SmtpChannel.send = original  # type: ignore[method-assign]


def test_the_table_has_every_stage() -> None:
    assert {stage.partition(" ")[0] for stage in OUTCOMES} == set(STAGES)
    assert all(set(row) == set(REPLIES) for row in OUTCOMES.values())


# TLS of lines to peers


def test_opportunistic_tls_asks_for_no_name(gateway: Any, context: Any, tmp_path: Path) -> None:
    with StagePeer(context=context) as peer:
        assert gateway(peer)() == Done()
        assert peer.secured == 1
    log = (tmp_path / "spool/logs/mail.log").read_text()
    assert f"Untrusted TLS connection established to 127.0.0.1:{peer.port}: TLSv1.3" in log


def test_a_failed_handshake_is_told_and_the_mail_goes_in_plain(
        gateway: Any, context: Any, tmp_path: Path, logged: Any) -> None:
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    with StagePeer(context=context) as peer:
        assert gateway(peer, tls_version_min="1.3")() == Done()
        assert len(peer.received) == 1
    assert events.GATEWAY_TLS_FAILED.number in logged()
    assert "it is used in plain" in (tmp_path / "spool/logs/mail.log").read_text()


@pytest.mark.parametrize(("names", "well"), [(("127.0.0.1",), True), (("other.test",), False)])
def test_verified_peers(gateway: Any, certificates: Certificates, tmp_path: Path,
                        names: tuple[str, ...], *, well: bool) -> None:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(certificates.make(*names))
    with StagePeer(context=made) as peer:
        found = gateway(peer, "verify")()
        assert (found == Done()) is well
        if not well:
            assert isinstance(found, Defer)
            assert "CERTIFICATE_VERIFY_FAILED" in found.reason
            assert not any(each.startswith("MAIL") for each in peer.commands)
        else:
            assert "Verified TLS" in (tmp_path / "spool/logs/mail.log").read_text()


def test_required_tls_that_is_not_offered(gateway: Any) -> None:
    with StagePeer() as peer:
        found = gateway(peer, "encrypt")()
        assert isinstance(found, Defer)
        assert "it was not offered" in found.reason
        assert peer.commands == ["ehlo mx.test"]


def test_a_password_is_sent_to_a_verified_peer_alone(gateway: Any, context: Any) -> None:
    with StagePeer(context=context, auth=True) as peer:
        assert gateway(peer, login="alice:se cret")() == Done()
        assert peer.secured == 1
        assert any(each.startswith("AUTH PLAIN ") for each in peer.commands)
    with StagePeer(auth=True) as peer:
        assert isinstance(gateway(peer, login="alice:secret")(), Defer)
        assert not any(each.startswith("AUTH") for each in peer.commands)


@pytest.mark.parametrize("rule", ["none", "may"])
def test_a_weak_rule_of_a_domain_gives_no_password_away(
        gateway: Any, certificates: Certificates, rule: str) -> None:
    """The rule of the host is looked at when the passwords are read; this one stands elsewhere."""
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    stranger.load_cert_chain(certificates.make("somebody.test"))
    with StagePeer(context=stranger, auth=True) as peer:
        send = gateway(peer, f"verify\nfar.test = {rule}", login="alice:secret")
        assert isinstance(send(), Defer)
        assert not any(each.startswith("AUTH") for each in peer.commands)


def test_what_came_in_plain_before_the_handshake_is_no_reply(gateway: Any, context: Any) -> None:
    class Injecting(StagePeer):
        def _reply_to(self, verb: str) -> str:
            more = "250-injected\r\n250 AUTH\r\n" if verb == "STARTTLS" else ""
            return super()._reply_to(verb) + more

    with Injecting(context=context) as peer:
        assert gateway(peer, "encrypt")() == Done()
        assert peer.commands.count("ehlo mx.test") == 2
