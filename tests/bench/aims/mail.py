"""The mail switch beside Postfix: smtp-source to smtp-sink through each, and to a Maildir.

All the same messages over the same sessions; the time goes from the first connection to the last
message at the sink, or in the Maildir; both are counted exactly. Both sync a message before their
250, and a Maildir file before they forget the message. By turns, with one sink for all: connections
that a switch keeps stay good.

Where others use the machine the processor time and the syncs of a message say more than its rate:
the processor time is that of all processes of a switch from before a round to behind it, the syncs
those of SYNC_COUNT messages over the same sessions, counted by strace, not held up.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.bench.aims.finding import Finding, Setting, at_least, said
from tests.bench.instance import BenchError
from tests.bench.peers import software
from tests.bench.peers.postfix import LOCAL_DOMAIN, Postfix
from tests.bench.peers.processes import (
    Server,
    cpu_of,
    free_port,
    freeze_all,
    pause,
    thaw_all,
    tree,
)  # fmt: skip
from tests.bench.peers.syncs import DELAY_S, syncs, traced
from tests.demo.instance import Instance, running_instance

MESSAGES, MESSAGES_QUICK = 2000, 50
SESSIONS, BYTES = 8, 4096
PROOF_COUNT, SYNC_COUNT = 10, 200
END_BOUND_S = 300.0
REMOTE, LOCAL = "remote@example.org", f"box@{LOCAL_DOMAIN}"
_POLL_S = 0.005
_TAIL_BYTES = 1000
_RATIO_MIN = 1.0


def configure(conf: Path, _shipped: Path, sink_port: int) -> None:
    """omq as shipped: only a port of its own and where remote mail goes."""
    conf.mkdir()
    (conf / "omq.conf").write_text(
        f"[mail]\nhostname = mail.bench.invalid\nsmtp_listen_port = {free_port()}\n"
        f"unix_smarthost = 127.0.0.1:{sink_port}\n")


class Switch:
    """One of the two: where mail goes in, its processes, where local mail arrives."""

    def __init__(self, title: str, port: int, pids: Callable[[], list[int]], mail: Path) -> None:
        self.title, self.port, self.pids, self.mail = title, port, pids, mail


def bench(setting: Setting) -> list[Finding]:
    apart(setting.root)
    home, sink_port = setting.folder("mail"), free_port()
    count = MESSAGES_QUICK if setting.quick else MESSAGES
    with ExitStack() as stack:
        instance = stack.enter_context(running_instance(
            home / "spool", home / "output", sink_port, configure))
        sink = stack.enter_context(_running_sink(home, sink_port))
        apart(other := setting.folder("postfix"))
        postfix = Postfix(other, sink_port)
        stack.callback(postfix.stop)
        postfix.start()
        switches = [_omq(instance), Switch(postfix.version(), postfix.port, postfix.server.pids,
                                           postfix.maildir)]
        proofs = {switch.title: _proof(switch, home) for switch in switches}
        for switch in switches:
            freeze_all(switch.pids())
        stack.callback(lambda: thaw_all([pid for each in switches for pid in each.pids()]))
        rates: dict[tuple[str, str], list[float]] = {}
        spent: dict[tuple[str, str], list[float]] = {}
        for number in range(setting.timing.rounds):
            for kind in (REMOTE, LOCAL):
                for switch in switches:
                    rate, ms = _round(switch, kind, count, sink)
                    rates.setdefault((kind, switch.title), []).append(rate)
                    spent.setdefault((kind, switch.title), []).append(ms)
                    said(f"mail: round {number + 1}, {kind}, {switch.title}: {rate:,.0f}/s, "
                         f"{ms:.2f} ms of processor a message, load {os.getloadavg()[0]:.0f}\n")
        made = {(kind, switch.title): _syncs(switch, kind, home, sink)
                for kind in (REMOTE, LOCAL) for switch in switches}
    ours, theirs = (switch.title for switch in switches)
    kinds = ((REMOTE, "smtp-source to smtp-sink"), (LOCAL, "Maildir delivery"))
    return [_told(proofs), *(_finding(what, rates[kind, ours], rates[kind, theirs], theirs)
                             for kind, what in kinds),
            *(_cost(what, {name: (spent[kind, name], made[kind, name])
                           for name in (ours, theirs)}) for kind, what in kinds)]


def apart(folder: Path) -> None:
    """What is made in it lies apart on the disk. For a new file ext4 passes over each inode of a
    group that was freed in the last minutes: a switch that removes queue files would hold up, by
    half a millisecond a file, the other one, and its own mailboxes. No error where there is no
    chattr(1), or no ext4."""
    if shutil.which("chattr"):
        subprocess.run(["chattr", "+T", folder], stderr=subprocess.DEVNULL, check=False)


def _cost(what: str, costs: dict[str, tuple[list[float], float]]) -> Finding:
    """Without an aim: the two figures of each switch."""
    return Finding(f"{what}: processor time and syncs a message", "; ".join(
        f"{name}: {statistics.median(spent):.2f} ms, {each:.1f} syncs"
        for name, (spent, each) in costs.items()), None)


def _syncs(switch: Switch, kind: str, home: Path, sink: Server) -> float:
    """Syncs a message, of messages that come together."""
    thaw_all(switch.pids())
    trace = home / "mail.strace"
    with traced(switch.pids(), trace, delay_s=0.0):
        _sent_through(switch, kind, SYNC_COUNT, sink)
    freeze_all(switch.pids())
    made = syncs(trace)
    trace.unlink()
    return made / SYNC_COUNT


def _told(proofs: dict[str, tuple[float, float]]) -> Finding:
    """Whether all of them answer after the sync; the mail goes to a Maildir."""
    return Finding(
        "mail is on the disk before it is accepted", "; ".join(
            f"{title}: {ms:.0f} ms a message when each sync takes {DELAY_S * 1000:.0f}, "
            f"{each:.1f} syncs" for title, (ms, each) in proofs.items()),
        all(ms >= DELAY_S * 1000 for ms, _ in proofs.values()))


def _proof(switch: Switch, home: Path) -> tuple[float, float]:
    """(ms until a message is accepted, syncs until it is delivered), each sync held up."""
    before = _arrived(switch.mail)
    trace = home / "mail.strace"
    with traced(switch.pids(), trace):
        began = time.monotonic()
        _send(switch.port, LOCAL, PROOF_COUNT, sessions=1)
        accepted = time.monotonic() - began
        deadline = began + END_BOUND_S
        while _arrived(switch.mail) - before < PROOF_COUNT:
            if time.monotonic() > deadline:
                raise BenchError(f"{switch.title}: not all mail arrived under strace")
            pause(_POLL_S)
    made = syncs(trace)
    trace.unlink()
    return accepted / PROOF_COUNT * 1000, made / PROOF_COUNT


def _omq(instance: Instance) -> Switch:
    return Switch("omq", instance.smtp_port, lambda: tree(instance.process.pid),
                  instance.paths.root / "mail" / "box" / "new")


def _finding(what: str, ours: list[float], theirs: list[float], name: str) -> Finding:
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    return at_least(f"{what}: at least as fast as Postfix with fsync", ratio, _RATIO_MIN,
                    f"{ratio:.2f} x {name}: {statistics.median(ours):,.0f} and "
                    f"{statistics.median(theirs):,.0f} messages/s of {BYTES} bytes, {SESSIONS} "
                    "sessions", omq=ours, postfix=theirs)


def _round(switch: Switch, recipient: str, count: int, sink: Server) -> tuple[float, float]:
    """Messages per second from the first connection to the last arrival, and ms of processor time
    a message."""
    thaw_all(switch.pids())
    spent = cpu_of(switch.pids())
    passed = _sent_through(switch, recipient, count, sink)
    spent = cpu_of(switch.pids()) - spent
    freeze_all(switch.pids())
    return count / passed, spent * 1000 / count


def _sent_through(switch: Switch, recipient: str, count: int, sink: Server) -> float:
    """Seconds from the first connection to the last arrival."""
    before = _arrived(switch.mail), _sunk(sink)
    wanted = (before[0] + count, before[1]) if recipient == LOCAL else (
        before[0], before[1] + count)
    began = time.monotonic()
    _send(switch.port, recipient, count)
    deadline = began + END_BOUND_S
    while (found := (_arrived(switch.mail), _sunk(sink))) != wanted:
        if time.monotonic() > deadline or found > wanted:
            raise BenchError(f"{switch.title}: {found} messages are in the Maildir and at the "
                             f"sink, not {wanted}")
        pause(_POLL_S)
    return time.monotonic() - began


@contextmanager
def _running_sink(home: Path, port: int) -> Iterator[Server]:
    sink = Server("smtp-sink", home)
    user = ["-u", "nobody"] if os.geteuid() == 0 else []
    sink.start([software.program("usr/sbin/smtp-sink"), "-c", *user, f"127.0.0.1:{port}", "1000"],
               software.environment())
    try:
        sink.wait_port(port)
        yield sink
    finally:
        sink.stop()


def _sunk(sink: Server) -> int:
    """The sink's own count, the last of those that it wrote."""
    with sink.log.open("rb") as log:
        log.seek(max(0, sink.log.stat().st_size - _TAIL_BYTES))
        counts = re.findall(rb"mesg=(\d+)\r", log.read())
    return int(counts[-1]) if counts else 0


def _send(port: int, recipient: str, count: int, sessions: int = SESSIONS) -> None:
    done = subprocess.run(
        [software.program("usr/sbin/smtp-source"), "-d", "-s", str(sessions), "-l", str(BYTES),
         "-m", str(count), "-f", "bench@example.org", "-t", recipient, f"127.0.0.1:{port}"],
        env=software.environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"smtp-source: {done.stderr}")


def _arrived(folder: Path) -> int:
    return len(os.listdir(folder)) if folder.exists() else 0
