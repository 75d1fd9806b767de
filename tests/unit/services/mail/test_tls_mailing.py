"""Reports of TLS that go by mail: who wants them, what they are, and who has them already."""

from __future__ import annotations

import email
import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from omq.base.errors import ConfigError, ServerAway, SpoolLocked, TlsReportsWait
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.cli.look import tls_report
from omq.services.mail import tls_mailing
from omq.services.mail.tls_report_mail import ADDRESSES_MAX, addresses, mail_of
from omq.storage.spool import lock
from tests.unit.services.mail.name_server import NameServer
from tests.unit.services.mail.stage_peer import StagePeer

NOW = datetime(2026, 11, 29, 0, 30, tzinfo=UTC)
DAY = "2026-11-28"
REPORT: dict[str, Any] = {
    "organization-name": "mx.here.test", "report-id": "2026-11-28-0123456789abcdef",
    "date-range": {"start-datetime": "2026-11-28T00:00:00Z",
                   "end-datetime": "2026-11-28T23:59:59Z"},
    "contact-info": "postmaster@mx.here.test", "policies": []}


def wanted(*places: str) -> list[str]:
    return ['"v=TLSRPTv1; rua=' + ",".join(places) + '"']


Send = Callable[..., int]


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def send(tmp_path: Path, told: list[str]) -> Iterator[Send]:
    """send(records, port): reports of a.test and b.test of one day."""
    servers: list[NameServer] = []
    paths = SpoolPaths(tmp_path / "spool")
    paths.run.mkdir(parents=True)
    (tmp_path / "conf").mkdir()

    def run(records: dict[str, list[str]], port: int, *domains: str, **settings: Any) -> int:
        servers.append(NameServer({f"_smtp._tls.{name} TXT": said
                                   for name, said in records.items()}))
        if port:
            (paths.run / "smtp.port").write_text(f"0.0.0.0 {port}\n")
        chosen = replace(Settings(unix_mx=True, dns_servers=servers[-1].address, dns_timeout_s=2),
                         **settings)
        return tls_mailing.send(
            paths, tmp_path / "conf", chosen,
            [(DAY, each, REPORT) for each in domains or ("a.test", "b.test")], [DAY], NOW,
            told.append)

    yield run
    for each in servers:
        each.__exit__()


def test_a_report_is_mailed_once_to_each_who_asks(send: Send, told: list[str]) -> None:
    records = {"a.test": wanted("mailto:tls@a.test", "MAILTO:x%2By@b.test?subject=1",
                                "https://a.test/tls")}
    with StagePeer() as peer:
        assert send(records, peer.port) == 2
        assert [(sender, to) for sender, (to,), _ in peer.received] == [
            ("postmaster@mx.here.test", "tls@a.test"), ("postmaster@mx.here.test", "x+y@b.test")]
        text = peer.received[0][2]
        assert send(records, peer.port) == 0
        assert len(peer.received) == 2
    assert told[0].startswith("a.test: 1 of the places")
    assert told[1:3] == [f"{DAY} a.test: tls@a.test", f"{DAY} a.test: x+y@b.test"]
    seen = email.message_from_bytes(text)
    assert seen.get_content_type() == "multipart/report"
    assert seen.get_param("report-type") == "tlsrpt"
    assert (seen["TLS-Report-Domain"], seen["TLS-Report-Submitter"], seen["TLS-Required"]) == (
        "a.test", "mx.here.test", "No")
    assert "Report Domain: a.test Submitter: mx.here.test" in " ".join(seen["Subject"].split())
    part: Any = [*seen.walk()][-1]
    assert part.get_content_type() == "application/tlsrpt+gzip"
    assert part.get_filename() == (
        "mx.here.test!a.test!1795824000!1795910399!2026-11-28-0123456789abcdef.json.gz")
    assert json.loads(gzip.decompress(part.get_payload(decode=True))) == REPORT


def test_a_death_before_it_is_listed_sends_the_same_again(
        send: Send, monkeypatch: pytest.MonkeyPatch) -> None:
    records = {"a.test": wanted("mailto:tls@a.test")}
    with StagePeer() as peer:
        with monkeypatch.context() as dies:
            dies.setattr(tls_mailing.Mailed, "note", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                send(records, peer.port, "a.test")
        assert send(records, peer.port, "a.test") == 1
        first, second = (text for _, _, text in peer.received)
        assert first == second


@pytest.mark.parametrize("stage", ["MAIL", "RCPT", "DATA", "."])
@pytest.mark.parametrize("reply", ["4yz", "5yz"])
def test_what_is_refused_is_tried_by_the_next_run(send: Send, stage: str, reply: str) -> None:
    records = {each: wanted(f"mailto:tls@{each}") for each in ("a.test", "b.test")}
    with StagePeer(stage, reply) as peer, pytest.raises(TlsReportsWait, match="2 reports"):
        send(records, peer.port)
    with StagePeer() as peer:
        assert send(records, peer.port) == 2


@pytest.mark.parametrize("reply", ["cut", "421", "garbage"])
def test_a_server_that_breaks_off(send: Send, reply: str) -> None:
    records = {"a.test": wanted("mailto:tls@a.test")}
    with StagePeer("MAIL", reply) as peer, pytest.raises((ServerAway, TlsReportsWait)):
        send(records, peer.port)
    with StagePeer() as peer:
        assert send(records, peer.port, "a.test") == 1


def test_a_server_that_is_away(send: Send) -> None:
    records = {"a.test": wanted("mailto:tls@a.test")}
    with pytest.raises(ServerAway, match=r"smtp\.server"):
        send(records, 0, "a.test")
    with StagePeer() as peer:
        port = peer.port
    with pytest.raises(ServerAway, match=r"smtp\.server"):
        send(records, port, "a.test")


def test_no_answer_of_the_dns_is_not_that_nobody_asks(send: Send) -> None:
    records = {"a.test": ["SERVFAIL"], "b.test": wanted("mailto:tls@b.test")}
    with StagePeer() as peer:
        with pytest.raises(TlsReportsWait, match=r"1 report.* a\.test"):
            send(records, peer.port)
        assert [to for _, to, _ in peer.received] == [["tls@b.test"]], "others do not wait for it"


@pytest.mark.parametrize("data", [
    b"", b"{", b"[]", b"7", b'{"2026-11-28": 7}', b'{"2026-11-28": [7]}', b"\xff", b"[" * 100_000])
def test_a_list_that_is_none_is_begun_anew_and_told(
        send: Send, tmp_path: Path, told: list[str], data: bytes) -> None:
    (tmp_path / "spool/unix.tls-reports.json").write_bytes(data)
    with StagePeer() as peer:
        assert send({"a.test": wanted("mailto:tls@a.test")}, peer.port, "a.test") == 1
        assert ["tls-reports.json cannot be read" in each for each in told] == [True, False]
        assert send({"a.test": wanted("mailto:tls@a.test")}, peer.port, "a.test") == 0


def test_one_run_at_a_time(send: Send, tmp_path: Path) -> None:
    with closing(lock(tmp_path / "spool/unix.tls-reports.lock", "another")), (
            pytest.raises(SpoolLocked)):
        send({}, 0)


def test_without_names_nobody_can_ask(send: Send) -> None:
    with pytest.raises(ConfigError, match="unix_tls_reports"):
        send({}, 0, unix_mx=False)


@pytest.mark.parametrize(("records", "found"), [
    ([], ([], 0)), ([b"v=spf1 -all"], ([], 0)),
    ([b"v=TLSRPTv1; rua=mailto:a@b.test"], (["a@b.test"], 0)),
    ([b"v=TLSRPTv1;rua=mailto:a@b.test;"], (["a@b.test"], 0)),
    ([b"v=TLSRPTv1; rua=mailto:a@b.test", b"v=TLSRPTv1; rua=mailto:c@b.test"], ([], 0)),
    ([b"v=TLSRPTv1; rua=mailto:a@b.test,mailto:a@b.test"], (["a@b.test"], 0)),
    ([b"v=TLSRPTv1; rua=mailto:a%0d%0aRCPT@b.test,mailto:a b@c.test"], ([], 2)),
    ([b"v=TLSRPTv1; rua=mailto:\xc3\xa9@b.test"], ([], 1)),
    ([b"v=TLSRPTv1; rua="], ([], 0)), ([b"v=TLSRPTv1"], ([], 0)),
    ([b"v=TLSRPTv2; rua=mailto:a@b.test"], ([], 0))])
def test_what_a_record_says(records: list[bytes], found: tuple[list[str], int]) -> None:
    assert addresses(records) == found


def test_a_record_that_names_the_world_writes_to_a_few() -> None:
    told, others = addresses([b"v=TLSRPTv1; rua=" + b",".join(
        b"mailto:a%d@b.test" % each for each in range(500))])
    assert (len(told), others) == (ADDRESSES_MAX, 500 - ADDRESSES_MAX)


def test_lines_of_a_mail_are_whole() -> None:
    text = mail_of(REPORT, "a" * 63 + ".test", "tls@a.test", NOW)
    assert b"\n" not in text.replace(b"\r\n", b"")
    assert max(map(len, text.split(b"\r\n"))) <= 998


def test_the_command_sends_nothing_unless_it_is_asked_for(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "spool/conf").mkdir(parents=True)
    words = ["--mail", "--spool", str(tmp_path / "spool"), "--conf", str(tmp_path / "spool/conf")]
    assert tls_report.main(words) == 0
    assert "unix_tls_reports" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        tls_report.main([*words, "--day", DAY])
