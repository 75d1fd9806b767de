"""The tools that work on the files alone: records per second of dump, scan, recovery and rebuild.

A spool with --depth messages waiting and as many that have lived and died, its daemons ended. Each
tool runs as an operator calls it, so the time has the start of the interpreter in it. Beside it
stands the processor time, which a busy machine changes little.
"""

from __future__ import annotations

import re
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from tests.bench.aims.background import KEEP
from tests.bench.aims.finding import Finding, Setting, at_least
from tests.bench.instance import MANAGER, QUEUE, BenchError
from tests.bench.peers.omq_peer import OmqPeer
from tests.bench.peers.rounds import running

RECORDS_MIN, FRAMES_MIN = 200_000, 300_000
BODY, BATCH = bytes(200), 1000
_SPARE = 50_000


def bench(setting: Setting) -> list[Finding]:
    peer = OmqPeer(setting.folder("offline"), setting.depth + _SPARE, settings=KEEP)
    depth, spool = setting.depth, peer.instance.paths.root
    with running([peer]):
        peer.thaw()
        _history(peer, depth)
        peer.stop()
        start = [_start(peer) for _ in range(setting.timing.rounds)]
        dump = [_timed(_omqdump(spool, f"t m {setting.root}/dump.txt"))]  # minutes
        listing = [_timed(_omqdump(spool, f"l {QUEUE}"), depth)
                   for _ in range(setting.timing.rounds)]
        scan = [_timed(_command("omqrecover", "scan", "--no-bodies", spool))
                for _ in range(setting.timing.rounds)]
        _timed(_command("omq-archive", "--quiet", "--spool", spool))
        before = _processor_s()
        frames, seconds = _rebuild(spool)
        rebuild = _processor_s() - before
        with (setting.root / "dump.txt").open("rb") as dumped:
            records = sum(line.startswith(b"QPoolId=") for line in dumped)
    if records != depth:
        raise BenchError(f"the dump has {records:,} records for {depth:,} messages")
    return [
        _finding("offline dump (omqdump t m, 16 lines a record)", dump, depth),
        _finding("offline listing (omqdump l, a line a message)", listing, depth),
        _finding("scan (omqrecover scan --no-bodies)", scan, depth),
        _finding("recovery (a start of queue.manager until it serves)", start, depth),
        at_least("media recovery >= 300,000 frames/s", frames / seconds, FRAMES_MIN,
                 f"{frames / seconds:,.0f} frames/s: {frames:,} in {seconds:.1f} s, "
                 f"{rebuild:.1f} s of the processor"),
    ]  # fmt: skip


def _finding(what: str, runs: list[tuple[float, float]], depth: int) -> Finding:
    """`runs`: seconds and seconds of the processor of each."""
    middle, spent = (statistics.median(column) for column in zip(*runs, strict=True))
    return at_least(f"{what} >= 200,000 records/s", depth / middle, RECORDS_MIN,
                    f"{depth / middle:,.0f} records/s: {depth:,} in {middle:.2f} s, "
                    f"{spent:.2f} s of the processor", runs=runs)


def _history(peer: OmqPeer, depth: int) -> None:
    """`depth` messages wait, as many have been put and finished; the pool has all of it."""
    putter, getter = peer.putter(), peer.getter(0, BATCH)
    for turn in range(2):
        for _ in range(depth // BATCH):
            putter.put([BODY] * BATCH)
            if turn and len(getter.take(BATCH, 10.0)) != BATCH:
                raise BenchError("messages do not come")
    putter.close()
    getter.close()
    peer.settle()


def _start(peer: OmqPeer) -> tuple[float, float]:
    seconds = peer.instance.start(MANAGER)
    spent = peer.instance.cpu()[MANAGER]
    peer.instance.stop(MANAGER)
    return seconds, spent


def _rebuild(spool: Path) -> tuple[int, float]:
    """(frames, seconds) as the tool tells them."""
    said = _output(_command("omqrecover", "rebuild", spool, "--from-archive", spool / "archive"))
    found = re.search(r"from (\d+) frames.* in ([\d.]+) s", said)
    if found is None:
        raise BenchError(f"omqrecover rebuild says: {said}")
    return int(found[1]), float(found[2])


def _timed(command: list[str], lines_min: int = 0) -> tuple[float, float]:
    began, before = time.monotonic(), _processor_s()
    said = _output(command)
    passed, spent = time.monotonic() - began, _processor_s() - before
    if said.count("\n") < lines_min:
        raise BenchError(f"{' '.join(command)}: fewer than {lines_min:,} lines")
    return passed, spent


def _processor_s() -> float:
    """Of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _omqdump(spool: Path, option: str) -> list[str]:
    return _command("omqdump", "--source", "files", "--spool", spool, "-e", option)


def _output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"{' '.join(command)}: code {done.returncode}\n{done.stderr}")
    return done.stdout


def _command(name: str, *words: str | Path) -> list[str]:
    return [sys.executable, "-P", "-m", "omq.cli.launch", name, *map(str, words)]
