"""A queue of --depth, filled, emptied, filled with random sizes and emptied again: it is as quick
afterwards as before, and the disk is given back (tests/bench/depth.py does the work)."""

from __future__ import annotations

from omq.base.settings import DEFAULTS
from tests.bench.aims.finding import Finding, Setting, at_least, at_most
from tests.bench.crowd import Ledger
from tests.bench.depth import DepthBench
from tests.bench.instance import running

SLOWER_MIN = 0.9  # what rounds of the same thing differ by anyway
SPARE = 50_000
_MIB = 1 << 20


def bench(setting: Setting) -> list[Finding]:
    home = setting.folder("deletes")
    ledger = Ledger()
    with running(home, setting.depth + SPARE) as instance:
        found = DepthBench(instance, ledger, setting.probe, setting.timing, setting.depth).run()
        ledger.check(0)
    before, after = found["rates_shallow"], found["rates_after"]
    deep = found["rates_deep"]
    findings = []
    for style, first in before.items():
        for each, words in ((deep[style], f"at {setting.depth:,}"),
                            (after[style], f"after {2 * setting.depth:,} deletes")):
            cost = first["manager_us"] / each["manager_us"]
            findings.append(at_least(
                f"put and done, {style}, {words}: no slower than at 1,000", cost, SLOWER_MIN,
                f"{each['manager_us']:.1f} us of the manager a message, {first['manager_us']:.1f} "
                f"at 1,000; {each['rate']:,.0f} and {first['rate']:,.0f} messages/s"))
    kept = found["spool_bytes"]
    left = kept.get("msgpool", 0) + kept.get("store", 0)
    # One store file may be half alive, and pool files keep their header page.
    findings.append(at_most(
        "an empty queue gives its disk back", left, DEFAULTS.store_file_bytes,
        f"pool and store keep {left / _MIB:.1f} MiB, the journal "
        f"{kept.get('journal', 0) / _MIB:.0f} MiB"))
    return findings
