"""Recipients are verified at the next host before they are taken."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from omq.base.settings import Settings
from omq.services.mail import recipient_probes
from omq.services.mail.peer_line import Security
from omq.services.mail.recipient_probes import Probes
from omq.services.mail.routes import Peer, Routes
from tests.unit.services.mail.smtp.conftest import TIMEOUT_S, Running
from tests.unit.services.mail.stage_peer import StagePeer
from tests.waiting import until

STRANGERS = {"smtp_relay_networks": "192.0.2.0/24"}
TEXT = b"Subject: x\r\n\r\nhello\r\n"


class Host(StagePeer):
    """Says `said` to RCPT, or waits for `gate` first where the address has "slow"."""

    def __init__(self, said: str = "250 2.1.5 ok", **more: Any) -> None:
        self.said, self.gate = said, threading.Event()
        super().__init__(**more)

    def __exit__(self, *_: object) -> None:
        self.gate.set()
        super().__exit__()

    def _right(self, line: Any, stage: str, reply: str) -> bool:
        if stage == "RCPT":
            if "slow" in self.commands[-1]:
                self.gate.wait(TIMEOUT_S)
            reply = f"{self.said}\r\n"
        return super()._right(line, stage, reply)

    @property
    def probes(self) -> int:
        return sum(each.upper().startswith("RCPT") for each in self.commands)


@pytest.fixture
def verifying(server: Callable[..., Running], conf_dir: Path, context: Any
              ) -> Callable[..., Running]:
    """start(host, **settings): a server that relays far.test to it."""
    def start(host: StagePeer, channel: str = "", more: str = "", **settings: Any) -> Running:
        (conf_dir / "routes.conf").write_text(
            f"[local]\ndomains = here.test\nrelayed = far.test\nusers = alice\n[peers]\n"
            f"far.test = {channel}127.0.0.1:{host.port}\n{more}")
        return server(**STRANGERS | {"smtp_verify": True} | settings)

    return start


def rcpt(running: Running, *addresses: str) -> list[tuple[int, bytes]]:
    with running.client() as client:
        client.ehlo()
        client.mail("s@stranger.test")
        return [client.rcpt(each) for each in addresses]


def test_a_recipient_that_the_next_host_takes(verifying: Any) -> None:
    with Host() as host:
        running = verifying(host)
        with running.client() as client:
            client.sendmail("s@stranger.test", ["x@far.test"], TEXT)
        assert [each[0] for each in running.manager.puts] == ["UNIX"]
        assert [each for each in host.commands if each.upper().startswith(("MAIL", "RCPT"))] == [
            "MAIL FROM:<>", "RCPT TO:<x@far.test>"]
        assert not host.received
        assert rcpt(running, "x@far.test")[0][0] == 250
        assert host.probes == 1, "it is remembered"


@pytest.mark.parametrize(("said", "code"), [
    ("550 5.1.1 nobody", 550), ("550 nobody", 550), ("553 5.1.3 no address", 550),
    ("550 5.2.1 switched off", 550), ("251 2.1.5 elsewhere", 250), ("252 2.1.5 perhaps", 250),
    ("550 5.7.1 not from you", 450), ("530 5.7.0 say who you are", 450), ("450 4.2.0 later", 450),
    ("552 5.3.4 too large", 450), ("421 4.3.2 bye", 450), ("nonsense", 450)])
def test_what_the_next_host_says(verifying: Any, said: str, code: int) -> None:
    with Host(said) as host:
        running = verifying(host)
        first, again = rcpt(running, "x@far.test", "x@far.test")
        assert (first[0], again[0]) == (code, code)
        assert host.probes == 1, "what failed is remembered for a while, too"


def test_over_lmtp(verifying: Any) -> None:
    with Host("550 5.1.1 nobody", lmtp=True) as host:
        assert rcpt(verifying(host, "lmtp:"), "x@far.test")[0][0] == 550
        assert any(each.startswith("LHLO") or each.startswith("lhlo") for each in host.commands)


@pytest.mark.parametrize("stage", ["greeting", "EHLO", "MAIL"])
@pytest.mark.parametrize("reply", ["5yz", "cut", "garbage", "421", "endless"])
def test_a_host_that_goes_wrong_refuses_nobody_for_good(verifying: Any, stage: str, reply: str
                                                       ) -> None:
    with StagePeer(stage, reply) as host:
        code, said = rcpt(verifying(host), "x@far.test")[0]
        assert code in (250, 450) and (code == 450 or stage == "EHLO")
        assert b"\xff" not in said


def test_nobody_is_asked_about_other_recipients(verifying: Any) -> None:
    with Host() as host:
        running = verifying(host, more="[aliases]\nboth@here.test = x@far.test, y@far.test\n")
        assert [code for code, _ in rcpt(running, "alice@here.test", "both@here.test",
                                         "x@elsewhere.test")] == [250, 250, 550]
        assert host.probes == 0


@pytest.mark.parametrize("settings", [{"smtp_relay_networks": "127.0.0.0/8"},
                                      {"smtp_verify": False}])
def test_nobody_is_asked_for_own_clients_and_without_the_setting(verifying: Any, settings: Any
                                                                 ) -> None:
    with Host("550 5.1.1 nobody") as host:
        assert rcpt(verifying(host, **settings), "z@far.test")[0][0] == 250
        assert host.probes == 0


def test_a_slow_host_costs_its_own_session_its_time_alone(verifying: Any) -> None:
    with Host() as host:
        running = verifying(host, smtp_verify_timeout_s=TIMEOUT_S)
        with running.client() as waits:
            waits.ehlo()
            waits.mail("s@stranger.test")
            waits.putcmd("RCPT TO:<slow@far.test>")
            until(lambda: host.probes == 1)
            assert rcpt(running, "alice@here.test", "quick@far.test")[1][0] == 250
            host.gate.set()
            assert waits.getreply()[0] == 250


def test_an_answer_that_comes_late_is_remembered(verifying: Any) -> None:
    with Host() as host:
        running = verifying(host, smtp_verify_timeout_s=1)
        code, said = rcpt(running, "slow@far.test")[0]
        assert (code, b"is being verified" in said) == (450, True)
        host.gate.set()
        until(lambda: rcpt(running, "slow@far.test")[0][0] == 250)
        assert host.probes == 1


@pytest.mark.parametrize(("key", "limit"), [
    ("smtp_verify_probes_max", 1), ("smtp_verify_domain_max", 1), ("smtp_verify_minute_max", 1)])
def test_probes_are_bounded(verifying: Any, key: str, limit: int) -> None:
    with Host() as host:
        running = verifying(host, **{key: limit, "smtp_verify_timeout_s": 1})
        assert rcpt(running, "slow@far.test")[0][0] == 450
        code, said = rcpt(running, "other@far.test")[0]
        assert (code, b"too many" in said) == (450, True)
        assert host.probes == 1


@pytest.fixture
def clocked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """probes whose answers and clock a test sets: (probes, set_time, answers, asked)."""
    now, asked = [0.0], list[str]()
    made = Probes(Settings(smtp_verify_positive_s=100, smtp_verify_negative_s=10,
                           smtp_verify_minute_max=3), Routes(), Security(), lambda: now[0])
    answers: dict[str, tuple[str, float]] = {}

    def ask(self: Probes, address: str, peer: Peer) -> tuple[str, float]:
        asked.append(address)
        return answers.get(address, ("", 100.0))

    monkeypatch.setattr(Probes, "_asked_of", ask)
    yield made, now, answers, asked


def _said(probes: Probes, address: str) -> str:
    found = probes._begin(address, Peer("x", 25))
    return found if isinstance(found, str) else found.result(TIMEOUT_S).reply


def test_answers_have_their_time_and_a_minute_its_number(clocked: Any) -> None:
    probes, now, answers, asked = clocked
    answers["no@a.test"] = "550 5.1.1 none", 10.0
    assert (_said(probes, "yes@a.test"), _said(probes, "no@a.test")) == ("", "550 5.1.1 none")
    now[0] = 9.0
    assert (_said(probes, "yes@a.test"), _said(probes, "no@a.test")) == ("", "550 5.1.1 none")
    assert len(asked) == 2
    now[0] = 11.0
    answers.clear()
    assert _said(probes, "no@a.test") == ""
    assert _said(probes, "third@a.test").startswith("450"), "three in this minute"
    now[0] = 61.0
    assert _said(probes, "third@a.test") == ""


def test_what_is_remembered_is_bounded(clocked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    probes, now, _, _ = clocked
    monkeypatch.setattr(recipient_probes, "KNOWN_MAX", 5)
    for number in range(20):
        now[0] += 61.0
        assert _said(probes, f"{number}@a.test") == ""
    assert len(probes.known) == 5
    assert not probes._at_domains and not probes._asked


def test_an_error_of_ours_is_for_now(clocked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    probes = clocked[0]

    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Probes, "_asked_of", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        _said(probes, "x@a.test")
    assert not probes.known and not probes._asked and not probes._at_domains, "asked again"


def test_an_error_of_ours_is_told_to_the_operator_and_no_stranger(
        verifying: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Probes, "_asked_of", fail)
    with Host() as host:
        running = verifying(host)
        code, said = rcpt(running, "x@far.test")[0]
        assert (code, b"bug" in said) == (451, False)
        assert "RuntimeError: a bug" in running.context.paths.event_log.read_text()
