"""omq with a synchronous standby beside other systems whose acknowledgement means a second copy, in
one run, on one disk, by turns.

    python -m tests.bench.standby_peers [--quick] [--only NAME]... [--rounds N] [--json FILE]
        [--document FILE]                                            (make setup-peers; etcd)

Clients put messages of 100 bytes, one after the other, one client and eight. Each system is started
anew for each of its turns and is alone then; all of its copies are on this machine, so their syncs
compete on one disk. Told are puts a second, the median and the 99th percentile of a put, the
processor time of the servers a put, and in the last round the time from the kill -9 of what serves
to the first put that is acknowledged elsewhere, where the system does that by itself.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import multiprocess

from tests.bench import machine
from tests.bench.document import markdown_table, write_section
from tests.bench.instance import BenchError
from tests.bench.options import bench_parser, end_in_order
from tests.bench.peers.bench_peers import folder
from tests.bench.peers.processes import cpu_of
from tests.bench.peers.replicated import SYSTEMS, Put, Replicated

BODY: Final = bytes(100)
CLIENTS: Final = (1, 8)
ROUNDS: Final = 3
SECONDS: Final = 4.0
QUICK_SECONDS: Final = 0.2
_fork = multiprocess.get_context("fork")


def _client(system: Replicated, seconds: float, pipe: Connection) -> None:
    """Told to begin, it puts for so long; the seconds that each put took."""
    put: Put = system.putter()
    put(BODY)
    pipe.send("ready")
    pipe.recv()
    times, end = [], time.monotonic() + seconds
    while (began := time.monotonic()) < end:
        put(BODY)
        times.append(time.monotonic() - began)
    pipe.send(times)


def measured(system: Replicated, clients: int, seconds: float) -> dict[str, float]:
    """Puts a second, milliseconds of a put, and of the servers' processor time a put."""
    lines, children = [], []
    try:
        for _ in range(clients):
            ours, theirs = _fork.Pipe()
            child = _fork.Process(target=_client, args=(system, seconds, theirs))
            child.start()
            theirs.close()
            lines.append(ours)
            children.append(child)
        for line in lines:
            assert line.recv() == "ready"
        before = cpu_of(system.pids())
        for line in lines:
            line.send("begin")
        times = sorted(each for line in lines for each in line.recv())
        spent = cpu_of(system.pids()) - before
    except EOFError:
        raise BenchError(f"{system.title}: a client failed") from None
    finally:
        for child in children:
            child.kill()
            child.join()
        for line in lines:
            line.close()
    return {"rate": len(times) / seconds, "median_ms": statistics.median(times) * 1000,
            "p99_ms": times[len(times) * 99 // 100] * 1000, "cpu_ms": spent / len(times) * 1000}


def run(root: Path, names: tuple[str, ...], rounds: int, seconds: float, *, failover: bool
        ) -> dict[str, Any]:
    """Everything that was found, as one record."""
    record: dict[str, Any] = {"machine": machine.describe(root), "systems": {}, "seconds": seconds,
                              "rounds": rounds}
    for number in range(rounds):
        turned = names[number % len(names) :] + names[: number % len(names)]
        for name in turned:
            place = root / f"{name}-{number}"
            place.mkdir(mode=0o755)
            system = SYSTEMS[name](place)
            found = record["systems"].setdefault(name, {
                "title": system.title, "settings": system.settings, "version": system.version(),
                "failover_s": None, **{str(count): [] for count in CLIENTS}})
            try:
                system.start()
                for count in CLIENTS:
                    one = measured(system, count, seconds) | {"load": os.getloadavg()[0]}
                    found[str(count)].append(one)
                    sys.stderr.write(f"round {number + 1}, {system.title}, {count} clients: "
                                     f"{one['rate']:,.0f}/s\n")
                if failover and number == rounds - 1:
                    found["failover_s"] = system.fails_over()
            finally:
                system.stop()
            shutil.rmtree(place)
    return record


def _median(found: dict[str, Any], clients: int, key: str) -> float:
    return float(statistics.median(each[key] for each in found[str(clients)]))


def table(record: dict[str, Any]) -> str:
    """As Markdown, and what each system was set to."""
    head = ["", *(f"{what}, {count} client{'s' * (count > 1)}" for count in CLIENTS
                  for what in ("puts/s", "median ms", "p99 ms", "server CPU ms a put")),
            "kill -9 to the next put, s"]
    rows = []
    for found in record["systems"].values():
        row = [found["title"]]
        for count in CLIENTS:
            rates = [each["rate"] for each in found[str(count)]]
            row += [f"{statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})",
                    *(f"{_median(found, count, key):.2f}" for key in (
                        "median_ms", "p99_ms", "cpu_ms"))]
        over = found["failover_s"]
        rows.append([*row, "-" if over is None else f"{over:.1f}"])
    loads = [each["load"] for found in record["systems"].values() for count in CLIENTS
             for each in found[str(count)]]
    said = "".join(f"* **{each['title']}** ({each['version']}): {each['settings']}.\n"
                   for each in record["systems"].values())
    where = record["machine"]
    return (f"Measured {where['time']}, {where['usable_cores']} processors, "
            f"{where['file_system']}; {record['rounds']} rounds of {record['seconds']:g} s, "
            f"medians; load {min(loads):.1f} to {max(loads):.1f}.\n\n"
            f"{markdown_table(head, rows)}\n{said}")


def main(argv: list[str] | None = None) -> int:
    """Run; 0, or 1 when it could not be done."""
    parser = bench_parser("omq with a synchronous standby beside other replicated systems.",
                          SYSTEMS, ROUNDS, quick="omq alone, for a moment: whether it works",
                          json="write everything that was found there", section="standby peers")
    options = parser.parse_args(argv)
    end_in_order()
    names = tuple(options.only or (("omq",) if options.quick else SYSTEMS))
    rounds = options.rounds or (1 if options.quick else ROUNDS)
    root = folder("standby-peers-")
    try:
        record = run(root, names, rounds, QUICK_SECONDS if options.quick else SECONDS,
                     failover=not options.quick)
    except BenchError as error:
        sys.stderr.write(f"standby_peers: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(root)
    sys.stdout.write(table(record))
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if options.document:
        write_section(options.document, "standby peers", table(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
