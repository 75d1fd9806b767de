"""Looking for a planted bug; where it was found before is kept in found.json and looked at first.

    python -m tests.crash.sim.hunt      search for all of them anew, and keep where they are

What is kept is a hint, not a proof: it is judged again each time, and where it shows the bug no
longer (lives have other events now) the whole search is made, which takes seconds to a minute.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.crash.sim.explore import Explorer, Violation, record
from tests.crash.sim.frame_mutants import ALL
from tests.crash.sim.life import BodyGone
from tests.crash.sim.mutants import Mutant
from tests.crash.sim.workloads import WORKLOADS

KEPT: Final = Path(__file__).with_name("found.json")
LIVING: Final = -1  # the cut of what shows while the life is made


class Hint(NamedTuple):
    """A state: of the life of `seed`, cut behind event `cut`, with the choice `label`."""

    seed: int
    cut: int
    label: str


def hints() -> dict[str, Hint]:
    """By the names of the mutants."""
    return {name: Hint(*row) for name, row in json.loads(KEPT.read_text("utf-8")).items()}


def hunt(mutant: Mutant, hint: Hint | None = None) -> Violation | None:
    """The first state in which the bug shows as it must; the one of `hint` is tried first."""
    with mutant.switched_on():
        for seed, only in _tries(mutant, hint):
            found = _look(mutant, seed, only)
            if found is not None:
                return found
    return None


def _tries(mutant: Mutant, hint: Hint | None) -> Iterator[tuple[int, tuple[int, str] | None]]:
    if hint is not None:
        yield hint.seed, None if hint.cut == LIVING else (hint.cut, hint.label)
    for seed in mutant.seeds:
        yield seed, None


def _look(mutant: Mutant, seed: int, only: tuple[int, str] | None) -> Violation | None:
    def shown(found: Violation) -> bool:
        return any(text.startswith(mutant.shows) for text in found.wrong)

    try:
        made = record(mutant.workload, WORKLOADS[mutant.workload], seed, mutant.settings)
    except BodyGone as error:
        return Violation(mutant.workload, seed, LIVING, "while it lives", (str(error),))
    count = Explorer(made, second=mutant.second, nested=0, until=shown).run(only)
    if count.violations and shown(count.violations[-1]):
        return count.violations[-1]
    return None


def main() -> int:
    """Search for all, and keep."""
    rows = []
    for name, mutant in ALL.items():
        found = hunt(mutant)
        if found is None:
            print(f"{name}: not found")
            continue
        print(found)
        rows.append(f"{json.dumps(name)}: {json.dumps([found.seed, found.cut, found.label])}")
    KEPT.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
    return int(len(rows) < len(ALL))


if __name__ == "__main__":
    raise SystemExit(main())
