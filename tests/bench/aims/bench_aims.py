"""`make bench-aims`: every aim of PERFORMANCE.md that bench-peers does not tell, with its figures.

    python -m tests.bench.aims.bench_aims [--quick] [--only NAME]... [--depth N] [--rounds N]
        [--json FILE] [--peers FILE] [--document FILE]

Results are kept in the JSON file by benchmark, so that one can be repeated alone; the table is made
of all that it holds, and of the aims in the JSON file of bench-peers. Exit code 1 when a benchmark
could not be done or a count was wrong; a missed aim is no error.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.bench import machine, report
from tests.bench.aims.finding import Setting, said
from tests.bench.document import markdown_table, write_section
from tests.bench.instance import BenchError
from tests.bench.options import bench_parser, end_in_order
from tests.bench.peers import tables
from tests.bench.peers.bench_peers import folder
from tests.bench.primitives import SyncProbe
from tests.bench.throughput import Timing

NAMES = ("restart", "operations", "deletes", "company", "floods", "background", "small", "mail",
         "offline", "large")
DEPTH, DEPTH_QUICK = 1_000_000, 5000
FULL = Timing(warm_up_s=1.0, window_s=3.0, probe_s=0.3, rounds=5)
QUICK = Timing(warm_up_s=0.05, window_s=0.2, probe_s=0.02, rounds=1)


def main(argv: list[str] | None = None) -> int:
    """Run what was asked for."""
    options = _parser().parse_args(argv)
    end_in_order()
    results = _known(options.json)
    status = 0
    try:
        for name in () if options.table else options.only or NAMES:
            status |= _run(name, _timing(options), options, results)
            if options.json:
                options.json.write_text(json.dumps(results, indent=1) + "\n")
    except KeyboardInterrupt:
        return 130
    head, rows = table(results, _known(options.peers))
    report.show(report.table(head, rows))
    if options.document:
        write_section(options.document, "aims", markdown_table(head, rows))
    return status


def _run(name: str, timing: Timing, options: argparse.Namespace, results: dict[str, Any]) -> int:
    root = folder(f"aims-{name}-")
    probe = SyncProbe(root)
    depth = options.depth or (DEPTH_QUICK if options.quick else DEPTH)
    setting = Setting(root, probe, timing, depth, options.quick)
    try:
        found = importlib.import_module(f"tests.bench.aims.{name}").bench(setting)
        results[name] = {
            "machine": machine.describe(root), "fdatasync": probe.rate(timing.probe_s),
            "findings": [asdict(each) for each in found]}  # fmt: skip
        for each in found:
            said(f"{name}: {each.aim}: {each.found}\n")
    except BenchError as error:
        said(f"bench-aims: {name}: {error}\n")
        return 1
    finally:
        probe.close()
        shutil.rmtree(root)
    return 0


def table(results: dict[str, Any], peers: dict[str, Any]) -> tables.Table:
    """All aims, those beside the peers first."""
    lines = [(each, _when(peers)) for each in (tables.aims(peers) if peers else [])]
    lines += [(each, _when(results[name])) for name in NAMES if name in results
              for each in results[name]["findings"]]
    words = {True: "reached", False: "not reached", None: "cannot be told"}
    return ("aim", "found", "", "measured, load average"), [
        (each["aim"], each["found"], words[each["reached"]] if "limit" in each["details"]
         else "", when) for each, when in lines]


def _when(run: dict[str, Any]) -> str:
    """The time, and how busy the machine was with it and with all else."""
    found = run["machine"]
    return f"{found['time'][:16]}, {found['load_average'][0]:.1f}"


def _known(path: Path | None) -> dict[str, Any]:
    if not path or not path.exists():
        return {}
    found = json.loads(path.read_text())
    assert isinstance(found, dict)
    return found


def _timing(options: argparse.Namespace) -> Timing:
    timing = QUICK if options.quick else FULL
    rounds = options.rounds or timing.rounds
    return Timing(timing.warm_up_s, timing.window_s, timing.probe_s, rounds)


def _parser() -> argparse.ArgumentParser:
    parser = bench_parser("What omq aims at, and what it reaches here.", NAMES, FULL.rounds,
                          quick="short and shallow: whether it works",
                          json="where results are kept, by benchmark", section="aims")
    parser.add_argument("--table", action="store_true",
                        help="measure nothing: the table of what is in the JSON files")
    parser.add_argument("--depth", metavar="N", type=int, default=0,
                        help=f"waiting messages where depth matters (default {DEPTH:,})")
    parser.add_argument("--peers", metavar="FILE", type=Path,
                        help="what bench-peers wrote with --json")
    return parser


if __name__ == "__main__":
    sys.exit(main())
