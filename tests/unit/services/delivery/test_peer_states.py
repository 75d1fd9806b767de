"""What is known of peers that are down: shared by processes, over restarts, with one probe."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.base import side_files
from omq.services.delivery import peer_states
from omq.services.delivery.peer_states import PeerStates

S = 1_000_000_000
NOW = 1_700_000_000 * S


def states(tmp_path: Path) -> PeerStates:
    """As a process of its own has them."""
    return PeerStates(tmp_path / "unix.peers.json", 10, 25, 60)


def test_pauses_grow_to_a_maximum_and_end_with_a_success(tmp_path: Path) -> None:
    peers = states(tmp_path)
    assert [peers.failed("a:25", NOW, "dead") for _ in range(4)] == [10, 20, 25, 25]
    assert peers.waits("a:25", NOW + 24 * S) == "dead"
    assert peers.waits("b:25", NOW) == ""
    peers.reached("a:25")
    assert peers.waits("a:25", NOW) == ""
    assert peers.failed("a:25", NOW, "dead") == 10


def test_all_processes_know_and_one_of_them_probes(tmp_path: Path) -> None:
    one, two = states(tmp_path), states(tmp_path)
    one.failed("a:25", NOW, "dead")
    assert two.waits("a:25", NOW + 9 * S) == "dead"
    later = NOW + 10 * S
    assert two.waits("a:25", later) == ""  # this one is to try it
    assert one.waits("a:25", later) == "dead"
    two.failed("a:25", later, "still dead")
    assert one.waits("a:25", later + 19 * S) == "still dead"
    two.reached("a:25")
    assert one.waits("a:25", later) == ""
    assert one.down == {}


def test_a_restart_forgets_nothing(tmp_path: Path) -> None:
    states(tmp_path).failed("a:25", NOW, "dead")
    found = states(tmp_path).down["a:25"]
    assert (found.failures, found.since_ns, found.retry_ns, found.reason) == (
        1, NOW, NOW + 10 * S, "dead")
    states(tmp_path).forget()
    assert states(tmp_path).down == {}


def test_a_clock_that_was_set_back_freezes_nobody(tmp_path: Path) -> None:
    peers = states(tmp_path)
    peers.failed("a:25", NOW, "dead")
    assert peers.waits("a:25", NOW - 3600 * S) == ""


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"a": 1}', b'{"a": {"failures": "x"}}',
                                     b"\xff", b"[" * 100_000])
def test_what_is_no_such_file_is_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "unix.peers.json").write_bytes(content)
    peers = states(tmp_path)
    assert peers.down == {}
    assert peers.failed("a", NOW, "dead") == 10
    assert states(tmp_path).waits("a", NOW) == "dead"


def test_the_number_of_peers_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_states, "PEERS_MAX", 3)
    peers = states(tmp_path)
    for number in range(5):
        peers.failed(f"p{number}", NOW + number * S, "dead")
    assert sorted(peers.down) == ["p2", "p3", "p4"]


class RefusingCalls(side_files.Calls):
    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def refusing() -> Iterator[None]:
    before = side_files.use(RefusingCalls())
    yield
    side_files.use(before)


def test_a_full_disk_costs_the_sharing_only(tmp_path: Path, refusing: None) -> None:
    del refusing
    peers = states(tmp_path)
    peers.failed("a", NOW, "dead")
    assert peers.waits("a", NOW + S) == "dead"
    assert states(tmp_path).waits("a", NOW + S) == ""
