"""`make bench`: omq's speed and memory beside what the machine itself can do, table and JSON.

    tests/bench/bench.py [--quick] [--only NAME]... [--depth N] [--json FILE]

It starts a queue manager and a pool.writer in a new spool under build/ (or $OMQ_BENCH_DIR) and
works through separate client processes. Times are told, never judged; counts are: everything that
was put must have been got exactly once, and nothing may be left. Exit code 1 if not.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from omq.format.index import Counter
from tests.bench import machine, report
from tests.bench.crowd import Ledger
from tests.bench.depth import DepthBench
from tests.bench.instance import BenchError, Instance, running
from tests.bench.options import end_in_order
from tests.bench.primitives import SyncProbe, checksum_rate, round_trips
from tests.bench.throughput import MAIN_FIGURES, OTHER_FIGURES, Figure, Timing, measure

ROOT = Path(__file__).resolve().parents[2]
DEPTH = "depth"
NAMES = (*(figure.name for figure in (*MAIN_FIGURES, *OTHER_FIGURES)), DEPTH)
DEPTH_DEFAULT, DEPTH_QUICK = 1_000_000, 50_000
SPARE_MESSAGES = 50_000  # room in the index above the depth: backlogs of the throughput figures
FULL = Timing(warm_up_s=1.0, window_s=5.0, probe_s=1.0, rounds=3)
QUICK = Timing(warm_up_s=0.3, window_s=1.0, probe_s=0.3, rounds=3)


def main(argv: list[str] | None = None) -> int:
    """Run what was asked for; 0, or 1 when it could not be done or a count was wrong."""
    options = _parser().parse_args(argv)
    end_in_order()
    timing = QUICK if options.quick else FULL
    depth = options.depth or (DEPTH_QUICK if options.quick else DEPTH_DEFAULT)
    names = options.only or NAMES
    root = _folder()
    try:
        record = _run(root, names, depth, timing)
    except BenchError as error:
        sys.stderr.write(f"bench: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        if options.keep:
            sys.stderr.write(f"bench: the spool is kept in {root}\n")
        else:
            shutil.rmtree(root)
    if options.json:
        Path(options.json).write_text(json.dumps(record, indent=2) + "\n")
    return 0


def _run(root: Path, names: tuple[str, ...], depth: int, timing: Timing) -> dict[str, Any]:
    """Everything, printed as it is found."""
    record: dict[str, Any] = {"machine": machine.describe(root)}
    report.show(report.machine_table(record["machine"]))
    probe = SyncProbe(root)
    record["primitives"] = _primitives(probe, timing)
    report.show(report.primitives_table(record["primitives"]))
    ledger = Ledger()
    messages_max = (depth if DEPTH in names else 0) + SPARE_MESSAGES
    with running(root, messages_max) as instance:
        figures: list[dict[str, Any]] = []
        for group, repeated in ((MAIN_FIGURES, timing), (OTHER_FIGURES, _once(timing))):
            chosen: list[Figure] = [figure for figure in group if figure.name in names]
            found = measure(instance, ledger, probe, chosen, repeated)
            figures += found
            report.show(report.rates_table(found) + report.details_table(found))
        record["figures"] = figures
        if DEPTH in names:
            bench = DepthBench(instance, ledger, probe, timing, depth)
            record["depth"] = bench.run()
            report.show(report.depth_table(record["depth"]))
        record["counts"] = _check(instance, ledger)
    probe.close()
    record["fdatasync_seen"] = probe.seen
    report.show(report.steadiness(probe.seen))
    report.show(f"counts: {ledger.put_count:,} messages put, each got exactly once, none left\n")
    return record


def _once(timing: Timing) -> Timing:
    return Timing(timing.warm_up_s, timing.window_s, timing.probe_s, rounds=1)


def _primitives(probe: SyncProbe, timing: Timing) -> dict[str, float]:
    return {
        "fdatasync": probe.rate(timing.probe_s),
        "round_trips": round_trips(timing.probe_s),
        "crc32c_1k_mb": checksum_rate(1024, timing.probe_s / 4),
        "crc32c_1m_mb": checksum_rate(1 << 20, timing.probe_s / 4),
    }


def _check(instance: Instance, ledger: Ledger) -> dict[str, int]:
    left = instance.counters()[Counter.MESSAGES]
    ledger.check(left)
    return {"put": ledger.put_count, "got": ledger.got_count, "left": left}


def _folder() -> Path:
    """A new folder of our own on the disk that is to be measured."""
    base = Path(os.environ.get("OMQ_BENCH_DIR") or ROOT / "build").absolute()
    base.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="bench-", dir=base))


def _depth(text: str) -> int:
    depth = int(text)
    if not 2000 <= depth <= 40_000_000:
        raise argparse.ArgumentTypeError(f"{text}: 2000 to 40000000")
    return depth


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Speed and memory of omq on this machine.")
    parser.add_argument("--quick", action="store_true",
                        help=f"short windows and a depth of {DEPTH_QUICK:,}: whether it works")
    parser.add_argument("--only", metavar="NAME", action="append", choices=NAMES,
                        help=f"one of {', '.join(NAMES)}; may be given several times")
    parser.add_argument("--depth", metavar="N", type=_depth,
                        help=f"waiting messages (default {DEPTH_DEFAULT:,})")
    parser.add_argument("--json", metavar="FILE", help="write everything that was found there")
    parser.add_argument("--keep", action="store_true", help="leave the spool, to look at it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
