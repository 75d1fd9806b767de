"""The whole suite at rest: how long it takes to start, its CPU time, memory of a reader, the index.

An instance as `omrc --embedded` runs it, with every service that is shipped.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from tests.bench.aims.finding import Finding, Setting, at_most
from tests.bench.aims.mail import configure
from tests.bench.instance import MANAGER, Instance, memory
from tests.bench.peers.processes import cpu_of, free_port, pause, tree
from tests.demo.instance import running_instance
from tests.demo.processes import main_reader

START_S_MAX = 1.5
IDLE_SHARE_MAX = 0.005
READER_BYTES_MAX = 2 << 20
INDEX_BYTES_MAX = 200
IDLE_S, IDLE_QUICK_S = 30.0, 1.0
SETTLE_S = 5.0


def bench(setting: Setting) -> list[Finding]:
    starts = []
    home = setting.folder("small")
    runs = 1 if setting.quick else 5
    for number in range(runs):
        began = time.monotonic()
        with running_instance(home / f"spool{number}", home / f"output{number}", free_port(),
                              configure) as instance:
            starts.append(time.monotonic() - began)
            if number == runs - 1:
                found = _at_rest(instance.process.pid, instance.paths.run, setting)
    middle = statistics.median(starts)
    first = at_most("start of the embedded suite <= 1.5 s", middle, START_S_MAX,
                    f"{middle:.2f} s until all services serve, in a new spool "
                    f"({min(starts):.2f} to {max(starts):.2f})", starts=starts)
    return [first, *found, _index(setting)]


def _at_rest(pid: int, run: Path, setting: Setting) -> list[Finding]:
    pause(0.0 if setting.quick else SETTLE_S)
    pids = tree(pid)
    seconds = IDLE_QUICK_S if setting.quick else IDLE_S
    before, began = cpu_of(pids), time.monotonic()
    pause(seconds)
    share = (cpu_of(pids) - before) / (time.monotonic() - began)
    reader = _reader(run)
    own = _private(reader)
    return [
        at_most("idle suite <= 0.5 % of a core in total", share, IDLE_SHARE_MAX,
                f"{share:.2%} of a core, {len(pids)} processes, over {seconds:g} s"),
        at_most("one reader <= 2 MiB private memory", own, READER_BYTES_MAX,
                f"{own / (1 << 20):.2f} MiB private: the idle main reader of "
                "service.router, beside its parent"),
    ]  # fmt: skip


def _reader(run: Path) -> int:
    (found,) = main_reader(run, "router")
    return found.pid


def _private(pid: int) -> int:
    """Bytes that would be free if this process ended (proc(5), smaps_rollup)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) * 1024


def _index(setting: Setting) -> Finding:
    instance = Instance(setting.folder("index"), setting.depth)
    try:
        instance.start(MANAGER)
        size, each = instance.index_size()
        resident = memory(instance.pid(MANAGER))
    finally:
        instance.kill_all()
    return at_most("index <= 200 bytes a message", each, INDEX_BYTES_MAX,
                   f"{each:.0f} bytes a message on one queue (segment of {size >> 20} MiB for "
                   f"{setting.depth:,})", resident=resident)
