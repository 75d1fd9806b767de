"""unix.out beside itself: what bad peers do to a good one's mail, and what many peers cost.

    python -m tests.bench.mail_peers [ROUNDS]

In short turns, so that the machine's load is in all: 40 mails to a fast peer alone; the same with
mail to three good peers; the same with as much to one that takes 4 s a command, one that falls
silent after EHLO and one that is dead.
Prints the p95 from put to the peer's receipt, of each turn and of all turns of a kind together (a
turn's hangs on its two slowest mails), the time of urgent mail, and the mails a second of
processor time to one peer and to 1,000 peers. The load average stands beside each.
"""

from __future__ import annotations

import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from omq import Outgoing
from omq.ipc.client.connection import Client
from tests.process.operator_world import Instance
from tests.process.smtp_peers import SmtpPeer
from tests.process.test_channels import QUEUES, Gateway

BAD = ("slow.test", "silent.test", "dead.test")
GOOD = ("one.test", "two.test", "three.test")
MAILS = 40
EACH_S = 0.05
PEERS, EACH = 1000, 10
TEXT = b"X: y\r\n\r\nz\r\n"
PLAIN: dict[str, Any] = {"qmgr_maxchans": 20, "qmgr_reserve_urgent": 3, "qmgr_reserve_normal": 2,
         "qmgr_chan_time1_ms": 500, "qmgr_chan_time2_ms": 20, "qmgr_chan_time3_ms": 200,
         "qmgr_peer_concurrency": 4}


class Slow(SmtpPeer):
    """Takes 4 s a command."""

    def _stage(self, stage: str) -> None:
        super()._stage(stage)
        self.ending.wait(4.0)

    ending = threading.Event()


class Timed(SmtpPeer):
    """Knows how late each text came; the text is its time of put."""

    def __init__(self) -> None:
        self.late: list[float] = []
        super().__init__()

    def _text(self, reading: object, recipients: list[str]) -> None:
        super()._text(reading, recipients)
        body = self.received[-1][1]
        self.late.append(time.monotonic() - float(body.split()[-1]))


def p95(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.95)]


def put(connection: Client, to: str, priority: int = 4) -> None:
    connection.put("UNIX", f"X: y\r\n\r\n{time.monotonic()}\r\n".encode(), priority=priority,
                   properties={"mail.from": "s@here.test", "mail.to.UNIX": to})


def measure(gateway: Gateway, fast: Timed, beside: Sequence[str]) -> list[float]:
    """How long each of MAILS mails took, in seconds, beside a fifth as many to each of these
    domains."""
    pause, before = threading.Event(), len(fast.received)
    fast.late = []
    with gateway.live.connect("bench") as connection:
        for number in range(MAILS):
            for domain in beside if number % 5 == 0 else ():
                put(connection, f"r@{domain}")
            put(connection, "r@fast.test")
            pause.wait(EACH_S)
    fast.until(before + MAILS)
    return fast.late


def processor_s(gateway: Gateway) -> float:
    """Of unix.out: parent, scheduler, channel processes."""
    pids = [gateway.child.pid, gateway.scheduler, *gateway.children(gateway.scheduler)]
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def load() -> str:
    return f"load {os.getloadavg()[0]:.1f}"


def bad_peers(rounds: int) -> None:
    if not rounds:
        return
    with ExitStack() as stack:
        live = Instance(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "spool")
        gateway = Gateway(live)
        slow, silent, fast = Slow(), SmtpPeer("MAIL"), Timed()
        for each in (slow, silent, fast):
            stack.enter_context(each)
        with socket.create_server(("127.0.0.1", 0)) as server:
            dead = server.getsockname()[1]
        live.start()
        others = stack.enter_context(SmtpPeer())
        gateway.start({"slow.test": slow, "silent.test": silent, "dead.test": dead,
                       "fast.test": fast, "*": others}, **PLAIN)
        measure(gateway, fast, BAD)
        ratios = []
        every: tuple[list[float], ...] = ([], [], [])
        for _ in range(rounds):
            turn = [measure(gateway, fast, each) for each in ((), GOOD, BAD)]
            for found, times in zip(every, turn, strict=True):
                found += times
            alone, good, bad = map(p95, turn)
            ratios.append((bad / alone, bad / good))
            print(f"p95 alone {alone * 1000:.1f} ms, beside good peers {good * 1000:.1f} ms, "
                  f"beside bad ones {bad * 1000:.1f} ms, {load()}", flush=True)
        print("median of the ratios: bad to alone "
              f"{statistics.median(each for each, _ in ratios):.2f}, bad to good "
              f"{statistics.median(each for _, each in ratios):.2f}", flush=True)
        alone, good, bad = map(p95, every)
        print(f"{len(every[0])} mails each: p95 alone {alone * 1000:.1f} ms, beside good peers "
              f"{good * 1000:.1f} ms, beside bad ones {bad * 1000:.1f} ms: {bad / alone:.2f} of "
              f"alone, {bad / good:.2f} of good; {load()}", flush=True)
        with live.connect("bench") as connection:
            fast.late = []
            before = len(fast.received)
            for _ in range(20):
                put(connection, "u@fast.test", priority=7)
                fast.until(before := before + 1)
            print(f"urgent mail beside bad peers: longest {max(fast.late) * 1000:.0f} ms, {load()}")
        Slow.ending.set()
        silent.unshut("MAIL")
        gateway.child.kill()
        gateway.child.wait(60)
        live.end()


def many_peers(count: int, each: int, **more: Any) -> None:
    """Mail to each of so many peers in turns, all of it on the queue when the gateway starts. With
    `unix_connection_messages_max` a single one has as many connections as many peers at best: the
    base that these can be measured by."""
    with ExitStack() as stack:
        live = Instance(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "spool")
        gateway = Gateway(live)
        fast = stack.enter_context(SmtpPeer(host="0.0.0.0"))
        live.start()
        (live.conf / "routes.conf").write_text("")
        (live.conf / "queues.conf").write_text(QUEUES)
        live.stop()
        live.start()
        hosts = {f"d{n}.test": (f"127.{1 + n // 250}.0.{1 + n % 250}", fast.port)
                 for n in range(count)}
        with live.connect("bench") as connection:
            for _ in range(each):
                connection.put_many("UNIX", [Outgoing(TEXT, properties={
                    "mail.from": "s@here.test", "mail.to.UNIX": f"r@{domain}"})
                    for domain in hosts])
        begun = time.monotonic()
        gateway.start(hosts, **PLAIN, **more)
        gateway.until("the scheduler", lambda: gateway.children(gateway.child.pid))
        spent = processor_s(gateway)
        fast.until(count * each, wait_s=600)
        took, spent = time.monotonic() - begun, processor_s(gateway) - spent
        told = "".join(f", {key} = {value}" for key, value in more.items())
        print(f"{count} peers, {each} mails each{told}: {count * each / took:.0f} mails/s, "
              f"{spent / count / each * 1000:.2f} ms of processor a mail in unix.out, "
              f"{fast.connections} connections, {load()}",
              flush=True)
        gateway.stop()
        live.end()


if __name__ == "__main__":
    bad_peers(int(sys.argv[1]) if len(sys.argv) > 1 else 20)  # 0: only the others
    many_peers(1, PEERS * EACH)
    many_peers(1, PEERS * EACH, unix_connection_messages_max=EACH)
    many_peers(PEERS, EACH)
    many_peers(PEERS, EACH, qmgr_window=2 * PEERS * EACH)
