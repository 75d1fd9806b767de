"""The comparison itself: that a short run works and counts rightly. No figure is judged."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bench import standby_peers
from tests.bench.aims import bench_aims
from tests.bench.document import write_section
from tests.bench.instance import BenchError
from tests.bench.peers import bench_peers, tables
from tests.bench.peers.peer import Wire
from tests.bench.peers.rounds import WORKS, one_round
from tests.bench.peers.sqlite_queue import SqlitePeer
from tests.bench.peers.syncs import check


def test_quick_run_tells_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMQ_BENCH_DIR", str(tmp_path / "here"))
    document, record = tmp_path / "DOCUMENT.md", tmp_path / "found.json"
    document.write_text("before\n<!-- peers: begin -->\nold\n<!-- peers: end -->\nafter\n")
    assert bench_peers.main(["--quick", "--json", str(record), "--document", str(document)]) == 0
    found = json.loads(record.read_text())
    assert {(each["work"], each["peer"]) for each in found["rates"]} == {
        (work.name, peer) for work in WORKS[1:] for peer in ("omq", "sqlite")}
    assert {aim["aim"].split(":")[0] for aim in tables.aims(found)} == {
        work.title for work in WORKS[1:]}
    text = document.read_text()
    assert text.startswith("before\n<!-- peers: begin -->\nMeasured ")
    assert text.endswith("<!-- peers: end -->\nafter\n")
    assert "| SQLite, WAL |" in text
    assert "old" not in text
    assert not list((tmp_path / "here").iterdir())


def test_replicated_systems_are_measured_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                               ) -> None:
    monkeypatch.setenv("OMQ_BENCH_DIR", str(tmp_path / "here"))
    document, record = tmp_path / "DOCUMENT.md", tmp_path / "found.json"
    document.write_text("<!-- standby peers: begin -->\nold\n<!-- standby peers: end -->\n")
    assert standby_peers.main(["--quick", "--json", str(record), "--document", str(document)]) == 0
    (found,) = json.loads(record.read_text())["systems"].values()
    assert all(found[str(count)][0]["rate"] > 0 and found[str(count)][0]["cpu_ms"] >= 0
               for count in standby_peers.CLIENTS)
    assert "| omq, a synchronous standby |" in document.read_text()
    assert not list((tmp_path / "here").iterdir())


class LosingWire:
    """Drops each message that it got first, as a broken system would."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._lost = False
        self.put = wire.put
        self.close = wire.close
        self.abandon = wire.abandon

    def take(self, count: int, timeout_s: float) -> list[bytes]:
        found = self._wire.take(count, timeout_s)
        if found and not self._lost:
            self._lost = True
            found = found[1:]
        return found


class LosingPeer(SqlitePeer):
    def getter(self, number: int, batch: int) -> Wire:
        return LosingWire(super().getter(number, batch))


def test_a_lost_message_is_noticed(tmp_path: Path) -> None:
    peer = LosingPeer(tmp_path)
    peer.start()
    with pytest.raises(BenchError, match=r"wrong counts: .* 1 missing, 0 double"):
        one_round(peer, WORKS[2], bench_peers.QUICK)


class CarelessPeer(SqlitePeer):
    """Commits without a sync."""

    def connect(self) -> sqlite3.Connection:
        connection = super().connect()
        connection.execute("PRAGMA synchronous = OFF")
        return connection


def _may_trace() -> bool:
    """strace may attach to a process that is not its own child (Yama, ptrace(2))."""
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    return os.geteuid() == 0 or not scope.exists() or scope.read_text().strip() == "0"


@pytest.mark.skipif(shutil.which("strace") is None, reason="install strace")
@pytest.mark.skipif(not _may_trace(), reason="needs root or kernel.yama.ptrace_scope = 0")
@pytest.mark.parametrize(("kind", "waits"), [(SqlitePeer, True), (CarelessPeer, False)])
def test_who_answers_before_the_sync_is_found_out(
    tmp_path: Path, kind: type[SqlitePeer], waits: bool  # noqa: FBT001
) -> None:
    home = tmp_path / "peer"
    home.mkdir()
    peer = kind(home)
    peer.start()
    found = check(peer, tmp_path)
    assert (found["put_waits"], found["done_waits"]) == (waits, waits)
    assert (found["put_syncs"] >= 1, found["done_syncs"] >= 1) == (waits, waits)


def test_a_document_without_marks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "DOCUMENT.md"
    path.write_text("<!-- peers: begin -->\n")
    with pytest.raises(BenchError, match="no marks"):
        write_section(path, "peers", "text")


@pytest.mark.parametrize("main", [bench_peers.main, bench_aims.main])
def test_where_the_tables_go_is_looked_at_before_anything_is_measured(
        main: Callable[[list[str]], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: pytest.fail("it has begun"))
    monkeypatch.setattr(bench_peers, "folder", lambda _: pytest.fail("it has begun"))
    monkeypatch.setattr(bench_aims, "folder", lambda _: pytest.fail("it has begun"))
    unmarked = tmp_path / "DOCUMENT.md"
    unmarked.write_text("no marks\n")
    for path, reason in ((tmp_path / "absent.md", "No such file"), (unmarked, "no marks")):
        with pytest.raises(SystemExit) as ended:
            main(["--quick", "--document", str(path)])
        assert ended.value.code == 2
        assert reason in capsys.readouterr().err
