"""omq tls and omq peers --tls, of what the gateway noted."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from omq.base import clock
from omq.base.log_file import LogFile
from omq.cli.look import tls_report
from omq.services.mail.tls_sessions import Gaps, TlsSession, TlsSessions, read_sessions

DAY_NS = 1_795_824_000 * clock.NS_PER_S  # 2026-11-28T00:00:00Z
DAY = date(2026, 11, 28)


@pytest.fixture
def noting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """note(at_ns, result, domains, ...): as a process of the gateway does."""
    sessions = TlsSessions(tmp_path / "unix.tls.jsonl", 1 << 20)

    def note(at_ns: int, result: str, *domains: str, kind: str = "sts", host: str = "mx.a.test",
             lines: tuple[str, ...] = ("version: STSv1", "mode: enforce", "mx: *.a.test")) -> None:
        monkeypatch.setattr(clock, "wall_ns", lambda: at_ns)
        sessions.note(TlsSession(host, 25, "192.0.2.1", "verify", result, "why\r\nnot"),
                      domains, kind, lines)

    yield note
    sessions.close()


def made(tmp_path: Path, domain: str = "") -> list[dict[str, Any]]:
    return [*tls_report.reports(read_sessions(tmp_path, "unix"), DAY, "mx.here.test", "postmaster",
                                domain)]


def test_a_report_has_what_rfc_8460_wants(noting: Any, tmp_path: Path) -> None:
    noting(DAY_NS - 1, "", "a.test")
    noting(DAY_NS, "", "a.test", "b.test")
    for _ in range(3):
        noting(DAY_NS + 5, "certificate-expired", "a.test")
    noting(DAY_NS + 86_400 * clock.NS_PER_S, "", "a.test")
    first, second = made(tmp_path)
    assert first["date-range"] == {"start-datetime": "2026-11-28T00:00:00Z",
                                   "end-datetime": "2026-11-28T23:59:59Z"}
    assert (first["organization-name"], first["contact-info"]) == (
        "mx.here.test", "postmaster@mx.here.test")
    assert first["policies"] == [{
        "policy": {"policy-type": "sts", "policy-domain": "a.test", "mx-host": ["*.a.test"],
                   "policy-string": ["version: STSv1", "mode: enforce", "mx: *.a.test"]},
        "summary": {"total-successful-session-count": 1, "total-failure-session-count": 3},
        "failure-details": [{
            "result-type": "certificate-expired", "failed-session-count": 3,
            "failure-reason-code": "why not", "receiving-mx-hostname": "mx.a.test",
            "receiving-ip": "192.0.2.1"}]}]
    assert second["policies"][0]["policy"]["policy-domain"] == "b.test"
    assert first["report-id"] != second["report-id"]
    assert made(tmp_path, "b.test") == [second]


def test_kinds_of_policies_are_counted_apart(noting: Any, tmp_path: Path) -> None:
    noting(DAY_NS, "", "a.test")
    noting(DAY_NS, "", "a.test", kind="tlsa", lines=("3 1 1 ab",))
    noting(DAY_NS, "sts-policy-fetch-error", "a.test", host="", lines=())
    (report,) = made(tmp_path)
    assert [(each["policy"]["policy-type"], each["policy"].get("mx-host"))
            for each in report["policies"]] == [
                ("sts", ["*.a.test"]), ("tlsa", ["mx.a.test"]), ("sts", None)]
    assert "receiving-mx-hostname" not in report["policies"][2]["failure-details"][0]


@pytest.mark.parametrize("line", [
    "", "{", "[]", "7", '{"time_ns": 1}', "\x00\x00", '{"time_ns": ' * 50_000])
def test_lines_that_are_none_are_passed_over(noting: Any, tmp_path: Path, line: str) -> None:
    noting(DAY_NS, "", "a.test")
    with (tmp_path / "unix.tls.jsonl").open("a") as file:
        file.write(f"{line}\n")
    noting(DAY_NS, "", "a.test")
    (report,) = made(tmp_path)
    assert report["policies"][0]["summary"]["total-successful-session-count"] == 2


@pytest.mark.parametrize("change", [
    {"time_ns": "1"}, {"domains": "a.test"}, {"domains": [1]}, {"certificate": []},
    {"reason": None}, {"lines": {}}])
def test_rows_of_other_shapes_are_passed_over(noting: Any, tmp_path: Path, change: dict[str, Any]
                                              ) -> None:
    noting(DAY_NS, "", "a.test")
    path = tmp_path / "unix.tls.jsonl"
    row = json.loads(path.read_text()) | change
    path.write_text(json.dumps(row) + "\n")
    assert made(tmp_path) == []


def test_the_file_is_bounded_and_the_one_before_it_is_read(tmp_path: Path) -> None:
    sessions = TlsSessions(tmp_path / "unix.tls.jsonl", 2000)
    for _ in range(50):
        sessions.note(TlsSession("mx.a.test", 25, reason="x" * 5000), ["a.test"], "sts", ())
    sessions.close()
    sizes = [each.stat().st_size for each in sorted(tmp_path.glob("unix.tls.jsonl*"))]
    assert len(sizes) == 2
    assert all(size < 4000 for size in sizes)
    assert 2 < len([*read_sessions(tmp_path, "unix")]) < 20


def test_lines_that_a_full_disk_refused_are_counted_in_the_next(
    noting: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noting(DAY_NS, "", "a.test")
    with monkeypatch.context() as full:
        full.setattr(LogFile, "write", lambda log, data: 0)
        noting(DAY_NS, "", "a.test")
        noting(DAY_NS, "", "a.test")
    noting(DAY_NS, "", "a.test")
    gaps = Gaps()
    assert len([*read_sessions(tmp_path, "unix", gaps)]) == 2
    assert (gaps.missing, gaps.unread, gaps.since_ns) == (2, 0, 0)
    with (tmp_path / "unix.tls.jsonl").open("a") as file:
        file.write('{"missing": -1}\n{"missing": "1"}\n{"torn\n')
    assert len([*read_sessions(tmp_path, "unix", gaps := Gaps())]) == 2
    assert (gaps.missing, gaps.unread) == (2, 3)
    assert gaps.sentence() == "2 lines could not be noted and 3 cannot be read"


def test_a_day_that_the_record_does_not_reach_back_to_is_told(tmp_path: Path,
                                                              monkeypatch: pytest.MonkeyPatch
                                                              ) -> None:
    sessions = TlsSessions(tmp_path / "unix.tls.jsonl", 2000)
    for number in range(50):
        monkeypatch.setattr(clock, "wall_ns", lambda at=number: DAY_NS + at * clock.NS_PER_S)
        sessions.note(TlsSession("mx.a.test", 25, reason="x" * 300), ["a.test"], "sts", ())
    sessions.close()
    first = next(iter(read_sessions(tmp_path, "unix", gaps := Gaps())))
    assert gaps.since_ns == first["time_ns"] > DAY_NS
    assert "is gone" in gaps.sentence(DAY_NS)
    assert gaps.sentence(first["time_ns"]) == ""


def test_nothing_is_noted_where_that_is_wanted(tmp_path: Path) -> None:
    sessions = TlsSessions(tmp_path / "unix.tls.jsonl", 0)
    sessions.note(TlsSession(), ["a.test"], "sts", ())
    assert not [*tmp_path.iterdir()]


def test_failures_beyond_the_bound_are_counted_in_the_summary(noting: Any, tmp_path: Path,
                                                              monkeypatch: pytest.MonkeyPatch
                                                              ) -> None:
    monkeypatch.setattr(tls_report, "FAILURES_MAX", 2)
    for number in range(5):
        noting(DAY_NS, "certificate-expired", "a.test", host=f"mx{number}.a.test")
    (report,) = made(tmp_path)
    (found,) = report["policies"]
    assert len(found["failure-details"]) == 2
    assert found["summary"]["total-failure-session-count"] == 5


# the commands


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "spool"
    (root / "logs").mkdir(parents=True)
    (root / "instance.json").write_text("{}")
    monkeypatch.setenv("OMQ_SPOOL", str(root))
    monkeypatch.setattr(clock, "wall_ns", lambda: DAY_NS + 7)
    sessions = TlsSessions(root / "logs/unix.tls.jsonl", 1 << 20)
    for host, result in (("mx.a.test", ""), ("mx.b.test", ""),
                         ("mx.a.test", "certificate-expired")):
        sessions.note(TlsSession(host, 25, "192.0.2.1", "verify", result, "it has \x1b[2J expired",
                                 "TLSv1.3", "X", {"sha256": "ab", "subject": "CN=x\x1b[2J",
                                                  "issuer": "CN=y", "until": "2026"}),
                      ["a.test"], "sts", ())
    sessions.close()
    return root


def test_the_last_certificate_and_reason_of_each_peer(spool: Path, capsys: Any) -> None:
    from omq.cli.operate import peers

    del spool
    assert peers.main(["--tls"]) == 0
    said = capsys.readouterr().out
    assert "\x1b" not in said
    rows = [line.split()[0] for line in said.splitlines()[1:] if not line.startswith(" ")]
    assert rows == ["mx.a.test:25", "mx.b.test:25"]
    assert "certificate-expired: it has" in said
    assert peers.main(["--tls", "--json"]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (first["peer"], first["result"], first["certificate"]["issuer"]) == (
        "mx.a.test:25", "certificate-expired", "CN=y")


def test_a_day_of_the_command(spool: Path, capsys: Any) -> None:
    from omq.base.errors import BadRequest, NothingNoted

    assert tls_report.main(["--day", "2026-11-28"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["policies"][0]["policy"]["policy-domain"] == "a.test"
    assert not told.err
    with (spool / "logs/unix.tls.jsonl").open("a") as file:
        file.write('{"missing": 2}\n{"torn')
    assert tls_report.main(["--day", "2026-11-28"]) == 0
    assert capsys.readouterr().err == ("omq tls: these counts may be too low: 2 lines could not be "
                                       "noted and 1 cannot be read\n")
    with pytest.raises(NothingNoted, match="2026-11-27"):
        tls_report.main([])
    with pytest.raises(BadRequest, match="not a date"):
        tls_report.main(["--day", "28.11."])
