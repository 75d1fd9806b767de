"""`make bench-peers`: omq beside other durable queues, in one run, on one disk, by turns.

    python -m tests.bench.peers.bench_peers [--quick] [--only NAME]... [--rounds N]
        [--json FILE] [--plot FILE] [--document FILE]

Every server runs on loopback in a folder of its own under build/ (or $OMQ_BENCH_DIR); `make
setup-peers` gets their programs. Times are told, never judged; counts are: each message put must
be got exactly once. Exit code 1 if not.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.bench import machine, report
from tests.bench.document import in_folder, write_section
from tests.bench.instance import BenchError
from tests.bench.options import bench_parser, end_in_order
from tests.bench.peers import tables
from tests.bench.peers.peer import Peer
from tests.bench.peers.rounds import WORKS, Work, latencies, measure, running
from tests.bench.peers.syncs import check
from tests.bench.primitives import SyncProbe, checksum_rate, round_trips
from tests.bench.throughput import Timing

ROOT = Path(__file__).resolve().parents[3]
SYSTEMS = {  # module and class; imported when asked for, since setup-peers installs the clients
    "omq": "omq_peer:OmqPeer",
    "redis": "redis_streams:RedisPeer",
    "redis-lean": "redis_streams:LeanRedisPeer",
    "postgresql": "postgres:PostgresPeer",
    "rabbitmq-classic": "rabbit:RabbitPeer",
    "rabbitmq-quorum": "rabbit:QuorumPeer",
    "beanstalkd": "beanstalk:BeanstalkPeer",
    "sqlite": "sqlite_queue:SqlitePeer",
    "sqlite-rollback": "sqlite_queue:RollbackPeer",
    "litequeue": "litequeue_peer:LitequeuePeer",
}
QUICK_SYSTEMS = ("omq", "sqlite")
FULL = Timing(warm_up_s=1.0, window_s=4.0, probe_s=0.5, rounds=5)
QUICK = Timing(warm_up_s=0.05, window_s=0.2, probe_s=0.02, rounds=1)


def main(argv: list[str] | None = None) -> int:
    """Run; 0, or 1 when it could not be done or a count was wrong."""
    options = _parser().parse_args(argv)
    end_in_order()
    names = options.only or (QUICK_SYSTEMS if options.quick else tuple(SYSTEMS))
    timing = QUICK if options.quick else FULL
    if options.rounds:
        timing = Timing(timing.warm_up_s, timing.window_s, timing.probe_s, options.rounds)
    root = folder("peers-")
    try:
        record = run(root, names, timing, WORKS[1:] if options.quick else WORKS)
    except BenchError as error:
        sys.stderr.write(f"bench-peers: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(root)
    report.show(tables.text(record))
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    if options.plot:
        from tests.bench.peers.plot import draw  # matplotlib comes with the extra "spark"
        draw(record, options.plot)
    if options.document:
        write_section(options.document, "peers", tables.markdown(record))
    return 0


def run(root: Path, names: tuple[str, ...], timing: Timing, works: tuple[Work, ...]
        ) -> dict[str, Any]:
    """Everything that was found, as one record; without the first work only the rates."""
    peers = [make(name, root) for name in names]
    record: dict[str, Any] = {"machine": machine.describe(root), "syncs": {}, "latencies": []}
    probe = SyncProbe(root)
    try:
        record["primitives"] = {
            "fdatasync": probe.rate(timing.probe_s), "round_trips": round_trips(timing.probe_s),
            "crc32c_1k_mb": checksum_rate(1024, timing.probe_s / 4),
            "crc32c_1m_mb": checksum_rate(1 << 20, timing.probe_s / 4)}  # fmt: skip
        with running(peers):
            record["systems"] = {
                peer.name: {"title": peer.title, "version": peer.version(),
                            "settings": peer.settings, "lean": peer.lean}
                for peer in peers}  # fmt: skip
            if WORKS[0] in works:
                record["syncs"] = {peer.name: check(peer, root) for peer in peers}
            record["rates"] = measure(peers, works, probe, timing, _said)
            if WORKS[0] in works:
                rates = {each["peer"]: each["rate"] for each in record["rates"]
                         if each["work"] == WORKS[0].name}
                record["latencies"] = latencies(peers, rates, timing, _said)
        record["fdatasync_seen"] = probe.seen
    finally:
        probe.close()
    return record


def folder(prefix: str) -> Path:
    """A new folder on the disk to be measured; servers that run as nobody can enter it."""
    base = Path(os.environ.get("OMQ_BENCH_DIR") or ROOT / "build").absolute()
    base.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
    made.chmod(0o755)
    return made


def make(name: str, root: Path) -> Peer:
    """The system of this name, in a folder of its own."""
    module, _, kind = SYSTEMS[name].partition(":")
    home = root / name
    home.mkdir()
    made = getattr(importlib.import_module(f"tests.bench.peers.{module}"), kind)(home)
    assert isinstance(made, Peer)
    return made


def _said(text: str) -> None:
    sys.stderr.write(text)


def _parser() -> argparse.ArgumentParser:
    parser = bench_parser("omq beside other durable queues.", SYSTEMS, FULL.rounds,
                          quick="omq and SQLite for a second each: whether it works",
                          json="write everything that was found there", section="peers")
    parser.add_argument("--plot", metavar="FILE", type=in_folder,
                        help="draw the rates and latencies as PNG")
    return parser


if __name__ == "__main__":
    sys.exit(main())
