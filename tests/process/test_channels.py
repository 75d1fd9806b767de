"""The scheduler of unix.out with peers that are slow, silent, flaky, dead: who waits for whom."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from omq import Outgoing
from omq.base import events
from omq.base.errors import Exit
from omq.cli.operate import change
from omq.core.index.view import IndexView
from omq.services.daemon.run_state import State, read_service
from omq.services.delivery.peer_states import PeerStates
from omqtools.omqspark import main
from tests.process.operator_world import Instance
from tests.process.processes import popen
from tests.process.smtp_peers import WAIT_S, SmtpPeer
from tests.unit.services.mail.name_server import NameServer

RULES = {"qmgr_maxchans": 6, "qmgr_reserve_urgent": 1, "qmgr_reserve_normal": 0,
         "qmgr_chan_time1_ms": 0, "qmgr_chan_time2_ms": 0, "qmgr_chan_time3_ms": 0,
         "qmgr_peer_concurrency": 3, "qmgr_peer_reserve_urgent": 1}
QUEUES = "[*]\ndeath_delay_s = 0\nattempts_max = 5\n\n[UNIX]\n\n[ERRMGR]\n"


class Gateway:
    """A queue manager and unix.out; peers by domain."""

    def __init__(self, live: Instance) -> None:
        self.live = live
        self.child: Any = None
        self._pause = threading.Event()

    def start(self, peers: Mapping[str, SmtpPeer | int | tuple[str, int]], queues: str = QUEUES,
              fault: str = "", local: str = "", **rules: Any) -> None:
        lines = []
        for domain, peer in peers.items():
            host, port = peer if isinstance(peer, tuple) else (
                "127.0.0.1", getattr(peer, "port", peer))
            lines.append(f"{domain} = {host}:{port}\n")
        (self.live.conf / "routes.conf").write_text(
            f"[local]\n{local}\n[peers]\n" + "".join(lines))
        given = RULES | rules
        text = (self.live.conf / "omq.conf").read_text()
        for section, mine in (("qmgr", True), ("mail", False)):
            text += f"[{section}]\n" + "".join(
                f"{key} = {value}\n" for key, value in given.items()
                if key.startswith("qmgr_") is mine)
        (self.live.conf / "omq.conf").write_text(text)
        (self.live.conf / "queues.conf").write_text(queues)
        self.live.stop()
        self.live.start()
        self.run({"OMQ_FAULT": fault, "OMQ_FAULT_LOG": str(self.live.root / "fired")})

    def run(self, environment: dict[str, str] | None = None) -> None:
        self.child = popen("unix.out", self.live.arguments, environment=environment)

    def put(self, *recipients: str, priority: int = 4, body: bytes = b"Subject: x\r\n\r\n") -> None:
        with self.live.connect("put") as connection:
            connection.put("UNIX", body, priority=priority, properties={
                "mail.from": "s@here.test", "mail.to.UNIX": "\n".join(recipients)})

    def rows(self, queue: str = "UNIX") -> list[Any]:
        with IndexView.attach(self.live.paths) as view:
            return list(view.entries(queue))

    def until(self, what: str, true: Callable[[], object]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not true():
            assert time.monotonic() < deadline, what
            self._pause.wait(0.02)

    def tell_peers(self, text: str) -> None:
        """What is known of dead peers, at once: a file that is only half written says nothing."""
        file = self.live.paths.run / "unix.peers.json"
        new = file.with_suffix(".new")
        new.write_text(text)
        new.replace(file)

    def empty(self) -> None:
        self.until("the queue to be empty", lambda: not self.rows())

    def children(self, pid: int) -> list[int]:
        path = Path(f"/proc/{pid}/task/{pid}/children")
        return [int(each) for each in path.read_text().split()] if path.exists() else []

    @property
    def scheduler(self) -> int:
        (found,) = self.children(self.child.pid)
        return found

    def stop(self) -> None:
        if self.child is not None and self.child.poll() is None:
            self.child.terminate()
            assert self.child.wait(WAIT_S) == 0


def _lives(pid: int) -> bool:
    """Whether it still runs; who is dead may wait for somebody to collect it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def gateway(live: Instance) -> Iterator[Gateway]:
    made = Gateway(live)
    yield made
    made.stop()


@pytest.fixture
def dead() -> Iterator[int]:
    """A port that nobody listens on: it is bound, so that no other test is given it meanwhile. A
    server of this one may have it."""
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        yield int(kept.getsockname()[1])


def test_a_stuck_a_silent_and_a_dead_peer_hold_up_nobody(gateway: Gateway, dead: int) -> None:
    with SmtpPeer("MAIL") as stuck, SmtpPeer("EHLO") as silent, SmtpPeer() as fast:
        gateway.start({"stuck.test": stuck, "silent.test": silent, "dead.test": dead,
                       "fast.test": fast}, qmgr_maxchans=8)
        for number in range(10):
            for domain in ("stuck", "silent", "dead", "fast"):
                gateway.put(f"r{number}@{domain}.test")
        stuck.until(2, "MAIL")
        silent.until(2, "EHLO")
        fast.until(10)
        gateway.put("urgent@fast.test", priority=7)
        fast.until(11)
        assert (stuck.connections, silent.connections) == (2, 2), "the third is for urgent mail"
        gateway.put("urgent@stuck.test", priority=7)
        stuck.until(3, "MAIL")
        stuck.unshut("MAIL")
        silent.unshut("EHLO")
        stuck.until(11)
        silent.until(10)
        assert stuck.most_open <= 3
        assert sorted(each for each, _ in fast.received) == sorted(
            [*(f"r{number}@fast.test" for number in range(10)), "urgent@fast.test"])


def test_the_reserve_of_all_processes_is_for_urgent_mail(gateway: Gateway) -> None:
    with SmtpPeer("MAIL") as one, SmtpPeer("MAIL") as two, SmtpPeer() as fast:
        gateway.start({"one.test": one, "two.test": two, "fast.test": fast}, qmgr_maxchans=4,
                      qmgr_reserve_urgent=1, qmgr_reserve_normal=1)
        for number in range(4):
            gateway.put(f"r{number}@one.test", priority=1)
        one.until(2, "MAIL")
        gateway.put("low@fast.test", priority=1)
        gateway.put("a@two.test")
        two.until(1, "MAIL")
        gateway.put("normal@fast.test")
        gateway.put("urgent@fast.test", priority=7)
        fast.until(1)
        assert [each for each, _ in fast.received] == ["urgent@fast.test"]
        assert one.connections + two.connections == 3
        one.unshut("MAIL")
        two.unshut("MAIL")
        gateway.empty()
        assert len(one.received) == 4


def test_a_domain_with_a_limit_has_no_more_and_the_others_have_theirs(gateway: Gateway) -> None:
    """Processes at once, and messages in a time, until a reload gives it more."""
    limits = "[peer_limits]\none.test = 1\npaced.test = - 1/1d\n"
    with SmtpPeer("MAIL") as one, SmtpPeer("MAIL") as two, SmtpPeer() as paced:
        gateway.start({"one.test": one, "two.test": two, "paced.test": paced}, local=limits)
        for number in range(4):
            for domain in ("one", "two", "paced"):
                gateway.put(f"r{number}@{domain}.test")
        one.until(1, "MAIL")
        two.until(2, "MAIL")
        paced.until(1)
        one.unshut("MAIL")
        two.unshut("MAIL")
        one.until(4)
        two.until(4)
        gateway.until("the others' end", lambda: len(gateway.rows()) == 3)
        assert (one.most_open, two.most_open, len(paced.received)) == (1, 2, 1)
        routes = gateway.live.conf / "routes.conf"
        routes.write_text(routes.read_text().replace(limits, ""))
        gateway.child.send_signal(signal.SIGHUP)
        paced.until(4)
        gateway.empty()


def test_each_peer_of_a_mail_is_finished_by_itself(gateway: Gateway) -> None:
    with SmtpPeer("MAIL") as stuck, SmtpPeer() as fast:
        gateway.start({"stuck.test": stuck, "fast.test": fast})
        gateway.put("a@stuck.test", "b@fast.test", "c@fast.test")
        fast.until(2)
        stuck.until(1, "MAIL")
        gateway.until("the fast one's end", lambda: len(gateway.rows()) == 1)
        os.kill(gateway.scheduler, signal.SIGKILL)
        stuck.unshut("MAIL")
        stuck.until(1)
        gateway.empty()
        assert sorted(each for each, _ in fast.received) == ["b@fast.test", "c@fast.test"]


def test_a_dead_peer_is_known_after_a_restart_and_tried_when_asked(
        gateway: Gateway, dead: int) -> None:
    gateway.start({"dead.test": dead}, unix_retry_step_s=1000)
    for number in range(3):
        gateway.put(f"r{number}@dead.test")
    gateway.until("all to wait", lambda: [each.state.name for each in gateway.rows()]
                  == ["DEFERRED"] * 3)
    (state,) = gateway.live.paths.run.glob("unix.peers.json")
    (down,) = json.loads(state.read_text()).values()
    assert down["failures"] in (1, 2)  # two may have tried it at once, before either failed
    gateway.child.kill()
    gateway.child.wait(WAIT_S)
    gateway.run()
    gateway.put("late@dead.test")
    gateway.until("it to wait", lambda: [each.state.name for each in gateway.rows()]
                  == ["DEFERRED"] * 4)
    assert json.loads(state.read_text())[f"127.0.0.1:{dead}"] == down, "it was not tried again"
    with SmtpPeer(port=dead) as back:
        said = gateway.live.run("omq peers")
        assert f"{back.name}" in said.out and "down" in said.out, said
        row = json.loads(gateway.live.run("omq peers", "--json").out.splitlines()[-1])
        assert (row["peer"], row["state"], row["failures"]) == (
            back.name, "down", down["failures"])
        assert 0 < row["retry_s"] <= 1000 * down["failures"]
        assert gateway.live.run("omq peers", "--retry", back.name).code == 0
        back.until(4)
        gateway.empty()
    assert gateway.live.run("omq peers", "--retry", "nobody.test:25").code == 66


def test_the_back_off_of_a_peer_is_linear_and_one_process_tries_it(
        gateway: Gateway, dead: int) -> None:
    gateway.start({"dead.test": dead}, unix_retry_step_s=1000, unix_retry_max_s=2500)
    gateway.put("first@dead.test")
    states = PeerStates(gateway.live.paths.run / "unix.peers.json", 1000, 2500, 1000)
    for failures, pause_s in ((2, 2000), (3, 2500), (4, 2500)):
        gateway.until("it to wait", lambda: [each.state.name for each in gateway.rows()]
                      == ["DEFERRED"])  # the peer's state is noted first
        (name,) = states.down
        due = states.down[name]
        text = json.dumps({name: {"failures": due.failures, "since_ns": due.since_ns,
                                  "retry_ns": 1, "reason": due.reason}})
        gateway.tell_peers(text)
        gateway.live.run("omrelease", "--where", "queue=UNIX state=deferred", "--yes")
        gateway.until("the next failure", lambda n=failures: any(  # type: ignore[misc]
            each.failures == n for each in states.down.values()))
        left_s = next(iter(states.down.values())).retry_ns / 1e9 - time.time()
        assert pause_s - 60 < left_s <= pause_s
    with SmtpPeer("greeting", port=dead) as back:
        text = json.dumps({name: {"failures": 4, "since_ns": 1, "retry_ns": 1, "reason": "x"}})
        gateway.tell_peers(text)
        for number in range(6):
            gateway.put(f"r{number}@dead.test")
        back.until(1, "greeting")
        gateway.until("all to be in hand", lambda: [each.state.name for each in gateway.rows()]
                      .count("ACTIVE") == 6)
        assert back.connections == 1, "one tries it"
        back.unshut("greeting")
        back.until(6)
        gateway.until("it to be up", lambda: not states.down)


def test_an_error_of_one_message_stops_nothing_for_its_peer(gateway: Gateway) -> None:
    flaky = {"RCPT TO:<gone": "550 5.1.1 no", "RCPT TO:<later": "450 4.2.0 later",
             "RCPT TO:<drop": ""}
    with SmtpPeer(replies=flaky) as peer:
        gateway.start({"*": peer}, unix_retry_step_s=1000)
        for name in ("gone", "later", "drop", "r1", "r2", "r3", "r4"):
            gateway.put(f"{name}@far.test")
        peer.until(4)
        gateway.until("the two to wait", lambda: [each.state.name for each in gateway.rows()]
                      == ["DEFERRED"] * 2)
        assert len(gateway.rows("ERRMGR")) == 1
        assert not (gateway.live.paths.run / "unix.peers.json").exists(), "the peer is not down"


def test_a_channel_process_that_dies_costs_its_message_one_attempt(gateway: Gateway) -> None:
    with SmtpPeer("DATA") as peer, SmtpPeer() as other:
        gateway.start({"far.test": peer, "*": other})
        gateway.put("a@far.test")
        peer.until(1, "DATA")
        (channel,) = gateway.children(gateway.scheduler)
        scheduler = gateway.scheduler
        os.kill(channel, signal.SIGKILL)
        peer.unshut("DATA")
        peer.until(1)
        gateway.put("b@else.test")
        other.until(1)
        gateway.empty()
        assert gateway.scheduler == scheduler
        log = gateway.live.paths.event_log.read_text()
        assert '"event": 1506' in log and "signal 9" in log


def test_a_killed_scheduler_takes_its_processes_along_and_costs_no_attempt(
        gateway: Gateway) -> None:
    with SmtpPeer("MAIL") as stuck:
        gateway.start({"*": stuck})
        for number in range(9):
            gateway.put(f"r{number}@far.test")
        stuck.until(2, "MAIL")
        old = [gateway.scheduler, *gateway.children(gateway.scheduler)]
        os.kill(old[0], signal.SIGKILL)
        gateway.until("all to be dead", lambda: not any(_lives(pid) for pid in old))
        stuck.unshut("MAIL")
        stuck.until(9)
        gateway.empty()
        assert {each for each, _ in stuck.received} == {f"r{n}@far.test" for n in range(9)}
        assert len(stuck.received) == 9, "nothing had been sent"
        assert not gateway.rows("POISON")


@pytest.mark.parametrize("point", ["channel.before_send", "channel.after_send", "channel.split",
                                   "unix.before_send", "unix.after_send", "reader.after_next",
                                   "reader.before_done", "reader.after_done"])
def test_a_death_at_each_step_loses_nothing(gateway: Gateway, point: str) -> None:
    """Twice at most, and only what was on its way to the peer when the process died."""
    with SmtpPeer() as one, SmtpPeer() as two:
        gateway.start({"one.test": one, "*": two}, fault=f"{point}:kill:2")
        for number in range(6):
            gateway.put(f"r{number}@one.test", f"r{number}@two.test")
        gateway.until("all at one", lambda: len({each for each, _ in one.received}) == 6)
        gateway.until("all at the other", lambda: len({each for each, _ in two.received}) == 6)
        gateway.empty()
        assert (gateway.live.root / "fired").read_text().startswith(point)
        for peer in (one, two):
            assert max(Counter(each for each, _ in peer.received).values()) <= 2
        assert point != "channel.split" or len(one.received) + len(two.received) == 12


def test_what_was_sent_is_not_sent_again_when_errmgr_takes_nothing(gateway: Gateway) -> None:
    with SmtpPeer(replies={"RCPT TO:<gone": "550 5.1.1 no"}) as peer:
        gateway.start({"*": peer}, queues=QUEUES.replace("[ERRMGR]", "[ERRMGR]\nput = inhibited"))
        gateway.put("gone@far.test", "real@far.test")
        peer.until(1)
        gateway.until("the report to wait", lambda: [each.state.name for each in gateway.rows()]
                      == ["DEFERRED"])
        (gateway.live.conf / "queues.conf").write_text(QUEUES)
        gateway.live.manager.send_signal(signal.SIGHUP)  # type: ignore[union-attr]

        def through() -> bool:
            gateway.live.run("omrelease", "--where", "queue=UNIX state=deferred", "--yes")
            return not gateway.rows()

        gateway.until("the report to go", through)
        assert len(gateway.rows("ERRMGR")) == 1
        assert [each for each, _ in peer.received] == ["real@far.test"]


def test_a_peer_and_a_channel_are_held_and_released(gateway: Gateway) -> None:
    with SmtpPeer() as one, SmtpPeer() as two:
        gateway.start({"one.test": one, "*": two})
        assert gateway.live.run("omq peers", "--hold", one.name).code == 0
        gateway.put("a@one.test")
        gateway.put("b@two.test")
        two.until(1)
        gateway.until("the other to wait", lambda: [each.state.name for each in gateway.rows()]
                      == ["DEFERRED"])
        told = gateway.live.run("omq peers").out
        assert [each.split()[:3] for each in told.splitlines() if each.startswith(one.name)] == [
            [one.name, "held", "0"]]
        assert f"an operator holds {one.name}" in told
        for tool in (("omstat", "-a"), ("omtop", "--once", "--interval", "0.2")):
            assert f"held {one.name}" in " ".join(gateway.live.run(*tool).out.split())
        for file in gateway.live.paths.run.iterdir():  # as a reboot leaves run/
            if file.suffix == ".json" and file != gateway.live.paths.ids:
                file.unlink()
        gateway.put("a2@one.test")
        gateway.until("both to wait", lambda: [each.state.name for each in gateway.rows()]
                      == ["DEFERRED"] * 2)
        assert gateway.live.run("omq peers", "--release", one.name).code == 0
        one.until(2)
        gateway.empty()
        said = gateway.live.run("omq peers", "--release", one.name)
        assert (said.code, said.out) == (1, f"{one.name}: it is not held\n")
        assert gateway.live.run("omq peers", "--hold", "smtp").code == 0
        gateway.put("c@one.test", "d@two.test")
        gateway.until("all to wait", lambda: [each.state.name for each in gateway.rows()]
                      == ["DEFERRED"] * 2)
        assert gateway.live.run("omq peers", "--release", "smtp").code == 0
        one.until(3)
        two.until(2)


def test_while_whom_an_operator_holds_is_not_known_nothing_is_sent(gateway: Gateway) -> None:
    """The list is damaged: it was taken for an empty one, and mail went where it must not."""
    with SmtpPeer() as one:
        gateway.start({"*": one})
        assert gateway.live.run("omq peers", "--hold", "lmtp").code == 0
        (held,) = gateway.live.paths.root.glob("*.held.json")
        held.write_bytes(held.read_bytes()[:4])
        gateway.put("a@one.test")
        gateway.until("it to wait", lambda: [each.state.name for each in gateway.rows()]
                      == ["DEFERRED"])
        assert not one.received
        told = gateway.live.run("omq peers")
        assert f"{held} cannot be used" in told.err and "move it away" in told.err
        assert [each.split()[:2] for each in told.out.splitlines() if each.startswith(one.name)] \
            == [[one.name, "held"]]
        for way in ("--hold", "--release", "--retry"):
            refused = gateway.live.run("omq peers", way, "smtp")
            assert (refused.code, str(held) in refused.err) == (Exit.DATA, True), refused
        assert "whom an operator holds is not known" in " ".join(
            gateway.live.run("omstat", "-a").out.split())
        assert "sends nothing: whom an operator holds is not known" in (
            gateway.live.run("omqwhy", "UNIX").out)
        (event,) = (each for line in gateway.live.paths.event_log.read_text().splitlines()
                    if (each := json.loads(line))["event"] == events.HOLDS_UNKNOWN.number)
        assert event["file"] == str(held)
        held.unlink()
        one.until(1)
        gateway.empty()


def test_a_release_that_the_scheduler_has_overtaken_is_looked_at_anew(
        gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here by the same order in front of it; the scheduler itself stands still meanwhile."""
    whole, orders = change.carry_out, 0

    def overtaken(*order: Any) -> Any:
        nonlocal orders
        orders += 1
        if orders == 1:
            assert len(whole(*order).done) == 1
        return whole(*order)

    with SmtpPeer() as one:
        gateway.start({"*": one})
        assert gateway.live.run("omq peers", "--hold", one.name).code == 0
        gateway.put("a@one.test")
        gateway.until("it to wait", lambda: [each.state.name for each in gateway.rows()]
                      == ["DEFERRED"])
        monkeypatch.setattr(change, "carry_out", overtaken)
        scheduler = gateway.scheduler
        os.kill(scheduler, signal.SIGSTOP)
        try:
            said = gateway.live.run("omq peers", "--release", one.name)
        finally:
            os.kill(scheduler, signal.SIGCONT)
        assert orders and said.code == 0, said
        one.until(1)


def test_a_backlog_for_one_peer_is_shown_explained_and_goes_out(gateway: Gateway) -> None:
    """What is beyond its share was put off for minutes, flushed or not, and no tool told of it."""
    with SmtpPeer("MAIL") as slow, SmtpPeer() as other:
        gateway.start({"slow.test": slow, "other.test": other}, qmgr_window=40,
                      qmgr_put_off_s_max=80_000)
        assert gateway.live.run("omq peers", "--hold", "lmtp").code == 0, "no mail went over it"
        for number in range(60):
            gateway.put(f"r{number}@slow.test")
        slow.until(2, "MAIL")
        gateway.until("most to be put off", lambda: sum(
            each.state.name == "DEFERRED" for each in gateway.rows()) > 40)

        def shown() -> dict[str, Any]:
            return next((row for row in map(
                json.loads, gateway.live.run("omq peers", "--json").out.splitlines())
                if row.get("peer") == slow.name), {})

        gateway.until("all to be shown", lambda: shown() and
                      shown()["mlists"] + shown()["put_off"] == 60)
        row = shown()
        assert row["causes"] == {"share": row["put_off"]}
        assert "messages to take first" in row["reason"]
        assert 0 < row["next_s"] <= 80_000
        said = gateway.live.run("omqwhy", "UNIX").out
        assert f"deferred messages wait for {slow.name}" in said
        late = next(each for each in gateway.rows() if each.state.name == "DEFERRED")
        said = gateway.live.run("omqwhy", str(late.message.qpool)).out
        assert f"it is for {slow.name}: {slow.name} has" in said
        released = gateway.live.run("omq peers", "--release", "lmtp")
        assert "0 of" not in released.out
        assert "lmtp: nothing else waits" in released.out
        again = gateway.live.run("omq peers", "--release", "lmtp")
        assert (again.code, again.out) == (1, "lmtp: it is not held\n")
        assert sum(each.state.name == "DEFERRED" for each in gateway.rows()) == row["put_off"]
        gateway.put("r@other.test")
        other.until(1)
        os.kill(gateway.scheduler, signal.SIGKILL)
        slow.unshut("MAIL")
        slow.until(60)
        gateway.empty()
        gateway.until("nothing to be shown", lambda: not shown().get("put_off"))


def test_omq_peers_shows_what_is_stuck(gateway: Gateway) -> None:
    with SmtpPeer("MAIL") as stuck:
        gateway.start({"*": stuck})
        for number in range(5):
            gateway.put(f"r{number}@far.test")
        stuck.until(2, "MAIL")

        def shown() -> bool:
            rows = [json.loads(line) for line in
                    gateway.live.run("omq peers", "--json").out.splitlines()]
            channel = [(each["busy"], each["mlists"]) for each in rows if "processes" in each]
            peer = [(each["peer"], each["active"], each["mlists"]) for each in rows
                    if "state" in each]
            return channel == [(2, 5)] and peer == [(stuck.name, 2, 5)]

        gateway.until("the listing", shown)
        said = gateway.live.run("omq peers").out
        assert said.startswith("unix: 2 of 6 processes, 5 messages in hand\n")
        stuck.unshut("MAIL")
        gateway.empty()


def test_a_stop_ends_what_is_being_sent_and_gives_back_the_rest(gateway: Gateway) -> None:
    with SmtpPeer(".") as slow:
        gateway.start({"*": slow})
        for number in range(6):
            gateway.put(f"r{number}@far.test")
        slow.until(2, ".")
        gateway.child.terminate()

        def passed_on() -> bool:
            """The scheduler has its signal: it sends no more than what it is about to."""
            found = read_service(gateway.live.paths.run / "unix.json")
            return found is not None and found.process.state is State.STOPPING

        gateway.until("the stop to be passed on", passed_on)
        slow.unshut(".")
        assert gateway.child.wait(WAIT_S) == 0
        left = gateway.rows()
        assert len(left) == 6 - len(slow.received) > 0
        assert {each.state.name for each in left} == {"READY"}
        gateway.run()
        slow.until(6)
        gateway.empty()
        assert len(slow.received) == 6


def test_a_reload_takes_new_routes_and_rules_and_tries_every_peer(
        gateway: Gateway, dead: int) -> None:
    with SmtpPeer("MAIL") as one, SmtpPeer() as two:
        gateway.start({"one.test": one, "dead.test": dead}, unix_retry_step_s=1000)
        gateway.put("a@one.test")
        gateway.put("a@dead.test")
        one.until(1, "MAIL")
        states = PeerStates(gateway.live.paths.run / "unix.peers.json", 1, 1, 1)
        gateway.until("the dead one to be known", lambda: states.down)
        (gateway.live.conf / "routes.conf").write_text(f"[peers]\n* = 127.0.0.1:{two.port}\n")
        gateway.child.send_signal(signal.SIGHUP)
        gateway.until("the reload", lambda: not states.down)
        gateway.put("b@one.test")
        two.until(2)
        one.unshut("MAIL")
        one.until(1)
        assert {each for each, _ in two.received} == {"b@one.test", "a@dead.test"}
        assert [each for each, _ in one.received] == ["a@one.test"], "it was on its way"
        gateway.stop()
    noted = (gateway.live.paths.logs / "unix.sends.jsonl").read_text().splitlines()
    told = [each for each in map(json.loads, filter(None, noted)) if "rules" in each]
    assert [each["begins"] for each in told] == [True, False], "the rules once more at the reload"



def test_what_was_sent_is_noted_and_can_be_asked(
        gateway: Gateway, dead: int, capsys: pytest.CaptureFixture[str]) -> None:
    noted = gateway.live.paths.logs / "unix.sends.jsonl"
    with SmtpPeer("MAIL") as slow, SmtpPeer() as fast:
        gateway.start({"slow.test": slow, "dead.test": dead, "fast.test": fast})
        for _ in range(5):
            gateway.put("r@slow.test")
        slow.until(2, "MAIL")
        gateway.put("u@fast.test", priority=7)
        gateway.put("r@dead.test")
        fast.until(1)
        slow.unshut("MAIL")
        slow.until(5)
        gateway.until("the dead peer to be known", lambda: PeerStates(
            gateway.live.paths.run / "unix.peers.json", 1, 1, 1.0).down)
        gateway.until("only the dead peer's mail to be left", lambda: len(gateway.rows()) == 1)
        gateway.stop()
    head, *sends = map(json.loads, filter(None, noted.read_text().splitlines()))
    assert (head["begins"], head["rules"]["maxchans"]) == (True, 6)
    peers = Counter((each["peer"], each["reached"], each["priority"]) for each in sends)
    assert peers.pop((f"127.0.0.1:{dead}", False, 4)) >= 1
    assert peers == {(slow.name, True, 4): 5, (fast.name, True, 7): 1}
    waited = sorted(each["wait_s"] for each in sends if each["peer"] == slow.name)
    held = [each["spent_s"] for each in sends if each["peer"] == slow.name]
    assert waited[2] > waited[1], "at most two are for mail that is not urgent"
    assert waited[2] > min(held) / 2, "the third waited for one of them"
    main.main(["whatif", "--sends", str(noted), "--rules", "qmgr_peer_concurrency=6"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    by = {(each["name"], each["kind"]): each for each in rows}
    assert by[f"smtp {slow.name}", "real"]["sends"] == 5
    assert by[f"smtp {slow.name}", "replayed"]["p99_s"] > 0.0
    asked = by[f"smtp {slow.name}", "asked"]
    assert asked["refused"] or asked["p99_s"] == 0.0, "a process for each of them"

def test_a_run_that_its_line_does_not_hold_goes_in_pieces(gateway: Gateway) -> None:
    with SmtpPeer() as peer:
        gateway.start({"*": peer}, qmgr_peer_concurrency=1, qmgr_run_messages=100,
                      qmgr_run_ms=60000)
        with gateway.live.connect("put") as connection:
            connection.put_many("UNIX", [Outgoing(
                b"Subject: x\r\n\r\n" + b"x\r\n" * size, properties={
                    "mail.from": "s@here.test", "mail.to.UNIX": f"r{number}@far.test"})
                for number, size in enumerate((10, *[5000] * 80, *[20000] * 10))])
        peer.until(91)
        gateway.empty()
        assert {each for each, _ in peer.received} == {f"r{n}@far.test" for n in range(91)}
        assert len(peer.received) == 91
        assert peer.connections == 1, "the process was not taken for dead"
        assert '"event": 1506' not in gateway.live.paths.event_log.read_text()


def test_names_are_looked_up_first_and_a_dead_exchanger_is_left_out(gateway: Gateway) -> None:
    with SmtpPeer() as far, NameServer({
            "a.test MX": ["10 dead.test.", "20 far.test."], "dead.test A": ["127.0.0.9"],
            "far.test A": ["127.0.0.1"], "b.test A": ["127.0.0.1"]}) as server:
        (gateway.live.conf / "omq.conf").write_text(
            f"{(gateway.live.conf / 'omq.conf').read_text()}\n[dns]\nunix_mx = yes\n"
            f"dns_servers = {server.address}\n")
        gateway.start({}, local="literals = 192.0.2.1", unix_port=far.port)
        for number in range(3):
            gateway.put(f"r{number}@a.test", f"s{number}@b.test", f"t{number}@gone.test")
        far.until(6)
        gateway.empty()
        assert {each for each, _ in far.received} == {
            f"{who}{number}@{domain}.test" for who, domain in (("r", "a"), ("s", "b"))
            for number in range(3)}
        assert len(gateway.rows("ERRMGR")) == 3
        asked = server.asked["a.test. MX"]
        gateway.put("again@a.test")
        far.until(7)
        gateway.empty()
        assert server.asked["a.test. MX"] == asked, "the answer is kept"
