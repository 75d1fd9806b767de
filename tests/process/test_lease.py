"""Who is primary, by a lease in a real etcd: whatever is killed, stopped, cut off, forgotten or
set, at most one member acknowledges at any instant, and what it acknowledged is there."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from omq.base import clock, events
from omq.base.errors import Exit
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.services.standby.etcd import CallFailed, Etcd
from omq.storage.instance_file import Role
from omq.storage.segment import read_ids
from tests import needs
from tests.process.etcd_cluster import Cluster
from tests.process.lease_world import A, B, Lease, lease_world
from tests.process.processes import WAIT_S
from tests.waiting import until

pytestmark = needs.etcd
DAY = 86400
# Whoever is promoted serves alone.
GO_ON: dict[str, Any] = {"standby_lost": "go_on", "standby_lost_s": 5}


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Lease]:
    with lease_world(tmp_path) as made:
        yield made


def test_a_real_etcd_over_tls_wants_our_certificate_and_we_want_its(tmp_path: Path) -> None:
    """Three members, which show each other certificates, too; one is killed."""
    ca, stranger = trustme.CA(), trustme.CA()
    tls = tmp_path / "tls"
    tls.mkdir()
    own, other = ca.issue_cert("127.0.0.1"), stranger.issue_cert("127.0.0.1")
    for name, found in (("own", own), ("other", other)):
        (tls / f"{name}.pem").write_bytes(
            found.private_key_pem.bytes() + found.cert_chain_pems[0].bytes())
    ca.cert_pem.write_to_path(tls / "ca.pem")
    stranger.cert_pem.write_to_path(tls / "strange.pem")
    cluster = Cluster(tmp_path / "etcd", tls=tls)

    def asked(**more: str) -> dict[str, Any]:
        files: dict[str, Any] = {"standby_lease_ca_file": str(tls / "ca.pem"),
                 "standby_lease_certificate": str(tls / "own.pem")} | more
        return Etcd(Settings(standby_lease=cluster.urls, **files), tmp_path, WAIT_S).call(
            "/v3/kv/range", {"key": "b21x"})

    try:
        cluster.start()
        assert "header" in asked()
        with pytest.raises(CallFailed, match="certificate verify failed"):
            asked(standby_lease_ca_file=str(tls / "strange.pem"))
        for wrong in ("", str(tls / "other.pem")):
            with pytest.raises(CallFailed):
                asked(standby_lease_certificate=wrong)
        cluster.kill(0)
        until(cluster.serves, cluster.said)
        assert "header" in asked(), "the others answer"
    finally:
        cluster.end()


def test_the_standby_of_a_primary_that_is_killed_serves(members: Lease) -> None:
    """And the old one follows it when it is back, by itself."""
    members.begin()
    old = members.puts(A)
    old.more()
    members.kill(A)
    members.serves(B, 1)
    new = members.puts(B)
    assert members.etcd.key(members.uuid, "primary") == {"member": B, "term": 1, "address": ""}
    members.keep(A)
    until(lambda: members.role(A) is Role.STANDBY, members.told)
    members.is_set(["former"])
    new.more()
    members.judge()


def test_a_primary_that_is_stopped_for_longer_than_its_lease_acknowledges_nothing_more(
        members: Lease) -> None:
    members.begin(**GO_ON)
    old = members.puts(A)
    old.more()
    members.signal(A, signal.SIGSTOP)
    members.serves(B, 1)
    new = members.puts(B)
    new.more()
    members.signal(A, signal.SIGCONT)
    until(lambda: members.role(A) is not Role.PRIMARY, members.told)
    new.more(20)
    members.judge()


def test_a_manager_that_stands_still_under_a_healthy_keeper_loses_the_lease(members: Lease
                                                                            ) -> None:
    """As one whose disk does not answer; what it says when it goes on is not believed."""
    members.begin(**GO_ON, standby_hung_s=5)
    old = members.puts(A)
    old.more()
    ids = read_ids(SpoolPaths(members.roots[A]))
    assert ids is not None
    os.kill(ids.pid, signal.SIGSTOP)
    members.serves(B, 1)
    new = members.puts(B)
    new.more()
    assert members.events(A, events.LEASE_MANAGER_HUNG.number)
    until(lambda: members.role(A) is not Role.PRIMARY, members.told)
    until(lambda: clock.process_state(ids.pid) in ("", "Z", "X"), members.told)
    new.more()
    members.judge()


def test_a_manager_that_stands_still_with_nobody_else_is_started_anew(members: Lease) -> None:
    """The standby is not there; the same member has the lease again."""
    members.begin(**GO_ON, standby_hung_s=5)
    members.kill(B)
    old = members.puts(A)
    old.more()
    ids = read_ids(SpoolPaths(members.roots[A]))
    assert ids is not None
    os.kill(ids.pid, signal.SIGSTOP)
    until(lambda: clock.process_state(ids.pid) in ("", "Z", "X"), members.told)
    old.more()
    members.serves(A, 0)
    members.judge()


def test_a_primary_that_only_its_keeper_left_acknowledges_nothing_behind_its_lease(
        members: Lease) -> None:
    """Nothing waits for a standby here: the lease alone decides."""
    members.begin(sync=0)
    old = members.puts(A)
    old.more()
    members.keepers[A].send_signal(signal.SIGSTOP)
    members.serves(B, 1)
    new = members.puts(B)
    new.more()
    assert members.protection(A) == "fenced"
    members.keepers[A].send_signal(signal.SIGCONT)
    until(lambda: members.role(A) is not Role.PRIMARY, members.told)
    new.more()
    for each in members.putting:
        each.end()
    assert old.acked[-1][1] < new.acked[0][1]


def test_a_primary_that_is_cut_off_from_etcd_stops_and_another_goes_on(members: Lease) -> None:
    """The line between the members is whole meanwhile, so both could acknowledge."""
    members.begin(**GO_ON)
    old = members.puts(A)
    old.more()
    members.net.cut(A)
    members.serves(B, 1)
    new = members.puts(B)
    new.more()
    members.net.join(A)
    until(lambda: members.role(A) is not Role.PRIMARY, members.told)
    new.more()
    members.judge()


def test_the_end_of_etcds_leader_is_no_failover(members: Lease) -> None:
    members.begin()
    old = members.puts(A)
    old.more()
    members.etcd.kill(members.etcd.leader())
    until(lambda: members.etcd.serves(), members.told)
    until_ns = members.state(A)["until_ns"]
    until(lambda: members.state(A)["until_ns"] > until_ns, members.told)
    old.more()
    members.serves(A, 0)
    members.judge()


def test_without_a_majority_nobody_acknowledges_until_it_is_back(members: Lease) -> None:
    members.begin()
    old = members.puts(A)
    old.more()
    members.etcd.kill(1, 2)
    until(lambda: members.protection(A) == "fenced", members.told)
    acked = len(old.acked)
    until(lambda: members.state(B)["state"] == "silent", members.told)
    assert len(old.acked) == acked, "it acknowledges without a lease"
    assert members.role(B) is Role.STANDBY
    members.etcd.start(1, 2)
    old.more()
    members.serves(A, 0)
    members.judge()


def test_an_etcd_that_has_forgotten_makes_nobody_primary(members: Lease) -> None:
    members.begin(**GO_ON)
    members.kill(A)
    members.serves(B, 1)
    new = members.puts(B)
    new.more()
    members.etcd.forget()
    members.reaches(B, "forgotten")
    until(lambda: members.protection(B) == "fenced", members.told)
    assert "etcd has no term" in members.state(B)["error"]
    done = members.run(A, "register")
    assert done.returncode == Exit.USAGE and "is a former" in done.stderr
    members.etcd.put(members.uuid, "term", {"term": 0, "member": "", "began": True})
    until(lambda: "etcd has term 0" in members.state(B)["error"], members.told)
    done = members.run(B, "register")
    assert done.returncode == 0, done.stderr
    new.more()
    done = members.run(B, "register")
    assert done.returncode == Exit.TEMPORARY, "it serves"
    assert "b is the primary of term 1" in done.stderr
    members.judge()


def test_a_key_that_somebody_removes_ends_a_lease_that_is_still_renewed(members: Lease) -> None:
    members.begin()
    old = members.puts(A)
    old.more()
    members.keepers[B].send_signal(signal.SIGSTOP)  # else it is quicker, as it may be
    made = members.state(A)["primary_at"]
    members.etcd.remove(members.uuid, "primary")
    until(lambda: members.state(A)["primary_at"] > made, members.told)
    (told,) = members.events(A, events.LEASE_LOST.number)
    assert told["reason"] == "etcd has ended it"
    old.more()
    members.serves(A, 0)
    members.keepers[B].send_signal(signal.SIGCONT)
    members.judge()


def test_a_right_that_is_revoked_takes_the_lease_away(members: Lease) -> None:
    secret = members.place / "secret"
    secret.write_text("word\n")
    secret.chmod(0o600)
    members.make()
    members.etcd.start()
    etcd = members.etcd
    for path, body in (("user/add", {"name": "root", "password": "r"}),
                       ("role/add", {"name": "root"}),
                       ("user/grant", {"user": "root", "role": "root"}),
                       ("user/add", {"name": "omq", "password": "word"}),
                       ("role/add", {"name": "omq"}),
                       ("role/grant", {"name": "omq", "perm": {
                           "permType": "READWRITE", "key": "b21xLw==", "range_end": "b21xMA=="}}),
                       ("user/grant", {"user": "omq", "role": "omq"}), ("enable", {})):
        found = etcd.post(0, f"/v3/auth/{path}", body)
        assert "header" in found, (path, found)
    members.configure(standby_lease_user="omq", standby_lease_password_file=secret)
    assert members.run(A, "register").returncode == 0
    members.keep(A)
    members.keep(B)
    until(lambda: members.protection(A) == "synced", members.told)
    old = members.puts(A)
    old.more()
    token = etcd.post(0, "/v3/auth/authenticate", {"name": "root", "password": "r"})["token"]
    etcd.post(0, "/v3/auth/user/revoke", {"name": "omq", "role": "omq"}, token)
    until(lambda: members.protection(A) == "fenced", members.told)
    until(lambda: members.state(B)["state"] == "silent", members.told)
    assert "permission denied" in members.state(B)["error"]
    assert members.role(B) is Role.STANDBY
    etcd.post(0, "/v3/auth/user/grant", {"user": "omq", "role": "omq"}, token)
    old.more()
    members.judge()


@pytest.mark.parametrize("off_s", [-DAY, DAY])
def test_a_clock_that_is_a_day_off_neither_holds_nor_takes_a_lease(members: Lease, off_s: int
                                                                   ) -> None:
    members.begin()
    members.keepers[B].send_signal(signal.SIGTERM)
    assert members.keepers[B].wait(WAIT_S) == 0
    members.keep(B, sys.executable, "-m", "tests.process.other_clock", str(off_s), "omq")
    until(lambda: members.protection(A) == "synced", members.told)
    members.reaches(B, "waiting")
    old = members.puts(A)
    old.more()
    renewed = members.state(A)["until_ns"]
    until(lambda: members.state(A)["until_ns"] > renewed, members.told)
    members.serves(A, 0)
    members.kill(A)
    members.serves(B, 1)
    new = members.puts(B)
    members.keep(A)
    new.more()
    members.judge()


def test_who_is_not_in_sync_is_promoted_by_people_alone(members: Lease) -> None:
    """The primary went on without it, and said so in etcd first."""
    members.begin(**GO_ON)
    members.kill(B)
    old = members.puts(A)
    members.is_set([])
    old.more()
    assert members.protection(A) == "alone"
    members.kill(A)
    members.keep(B)
    members.reaches(B, "not in sync")
    told = members.events(B, events.LEASE_NOT_TAKEN.number)[-1]
    assert "in sync is nobody" in told["reason"]
    members.keepers[B].send_signal(signal.SIGTERM)
    assert members.keepers[B].wait(WAIT_S) == 0
    done = members.run(B, "promote")
    assert done.returncode == Exit.TEMPORARY and "promote --behind" in done.stderr
    done = members.run(B, "promote", "--behind")
    assert done.returncode == 0, done.stderr
    members.keep(B)
    members.serves(B, 1)


def test_a_keeper_that_is_started_again_has_its_lease(members: Lease) -> None:
    """A restart is no failover, if it is done before the lease ends, which a busy machine may take
    long for; a queue manager that is started by hand serves nobody."""
    members.begin(standby_lease_s=60)
    members.keepers[A].send_signal(signal.SIGTERM)
    assert members.keepers[A].wait(WAIT_S) == 0
    made = (members.etcd.key(members.uuid, "primary") or {}, members.state(A)["lease"])
    members.keep(A)
    old = members.puts(A)
    old.more()
    members.serves(A, 0)
    assert made == (members.etcd.key(members.uuid, "primary"), members.state(A)["lease"])
    old.end()
    members.kill(A)
    (members.roots[A] / "run/lease.json").unlink()
    manager = members.first.start()
    assert manager.wait() == Exit.TEMPORARY
    assert "has no lease" in members.first.said()
