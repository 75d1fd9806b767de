"""Two versions of omq beside each other, by turns: what the same work costs the queue manager's
processor (tests/bench/group_cost.py), as the ratio of this tree to another one.

    python -m tests.bench.two_trees OTHER_TREE [ROUNDS] [GROUPS]

OTHER_TREE is a checkout with its fast path built (`python setup_compiled.py` with its own lib first
in PYTHONPATH). In each round both run in processes of their own, who begins changes by turns; a
line tells the medians and the median of the ratios of the rounds. Processor time alone counts,
so that a busy machine matters little; what is below three per cent is noise on such a one.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Final

ROUNDS: Final = 5
GROUPS: Final = 1500
_LINE: Final = re.compile(r"(\w+) +(\d+)  warm +[\d.]+ +([\d.]+)")


def run(tree: Path, groups: int) -> dict[str, float]:
    """The lower quartile of each size, warm."""
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'lib'}:{tree}"}
    said = subprocess.run([sys.executable, "-m", "tests.bench.group_cost", str(groups)], cwd=tree,
                          env=environment, capture_output=True, text=True, check=True).stdout
    found = {f"{form} {size}": float(cost) for form, size, cost in _LINE.findall(said)}
    assert found, said
    return found


def main(arguments: list[str]) -> int:
    """Print the table."""
    other, here = Path(arguments[0]).resolve(), Path(__file__).resolve().parents[2]
    rounds = int(arguments[1]) if len(arguments) > 1 else ROUNDS
    groups = int(arguments[2]) if len(arguments) > 2 else GROUPS
    costs: dict[str, list[tuple[float, float]]] = {}
    for number in range(rounds):
        trees = (here, other) if number % 2 else (other, here)
        found = {tree: run(tree, groups) for tree in trees}
        for size in found[here]:
            costs.setdefault(size, []).append((found[other][size], found[here][size]))
    for size, pairs in costs.items():
        before, after = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = statistics.median(new / old for old, new in pairs)
        print(f"{size:16} before {before:7.2f}  after {after:7.2f} us  {100 * (ratio - 1):+5.1f} %",
              flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
