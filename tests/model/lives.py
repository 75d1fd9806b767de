"""For each mutant a short life that shows it, kept in lives.jsonl: found once, done again in CI.

    python -m tests.model.lives                       each on its mutant: all must be caught
    python -m tests.model.lives --record [NAME ...]   search anew (half an hour for all), keep

What is drawn in a search hangs on the machine, on what is loaded and on Hypothesis; steps do not.
A kept life that shows its mutant no longer (a rule has another meaning now) is recorded anew.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.model import mutants
from tests.model.mutants import MUTANTS, ROOT, Mutant
from tests.model.steps import Step, from_text, play, to_text

KEPT: Final = Path(__file__).with_name("lives.jsonl")
SHOWN: Final = "shown: "
QUIET: Final = "nothing seen"


def kept() -> dict[str, list[Step]]:
    """The lives by their mutants' names."""
    rows = [json.loads(line) for line in KEPT.read_text(encoding="utf-8").splitlines()]
    return {row["mutant"]: from_text(json.dumps(row["steps"])) for row in rows}


def keep(lives: dict[str, list[Step]]) -> None:
    """Write them, in the order of the mutants."""
    lines = [json.dumps({"mutant": mutant.name, "steps": json.loads(to_text(lives[mutant.name]))})
             for mutant in MUTANTS if mutant.name in lives]
    KEPT.write_text("\n".join(lines) + "\n", encoding="utf-8")


def lived(steps: Sequence[Step]) -> str:
    """What a life of these steps comes to on the omq that this process imports."""
    from tests.model.test_barrier_model import BarrierMachine  # which omq, says the environment

    try:
        play(BarrierMachine, steps)
    except Exception as error:
        return SHOWN + (repr(error) or type(error).__name__)[:200]
    return QUIET


def shorter(steps: Sequence[Step], shows: Callable[[Sequence[Step]], bool]) -> list[Step]:
    """Without the steps that are not needed: large pieces first, then one by one."""
    left = list(steps)
    size = len(left) // 2
    while size:
        at = 0
        while at < len(left):
            tried = left[:at] + left[at + size :]
            if shows(tried):
                left = tried
            else:
                at += size
        size //= 2
    return left


def apart(name: str, argument: str, text: str) -> str:
    """This module in a process that imports the mutant of this name (empty: omq as it is)."""
    mutant = next((each for each in MUTANTS if each.name == name), None)
    with tempfile.TemporaryDirectory(prefix="omq-mutant-") as folder:
        library = Path(folder) / "lib"
        mutants.plant(library, mutant)
        done = subprocess.run([sys.executable, "-m", "tests.model.lives", argument], cwd=ROOT,
                              env=mutants.surroundings(library), input=text, text=True,
                              capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def record(mutant: Mutant) -> list[Step] | None:
    """Search and shorten; None: it was not found. A life that cannot even begin has no steps."""
    with tempfile.TemporaryDirectory(prefix="omq-steps-") as folder:
        found = Path(folder) / "steps"
        code, words = mutants.search(mutant, found)
        assert code in (0, 1), f"{mutant.name}: pytest ended with {code}: {words}"
        if not code:
            return None
        steps = found.read_text(encoding="utf-8") if found.exists() else to_text([])
        return from_text(apart(mutant.name, "--shorten", steps))


def _record_all(wanted: Sequence[Mutant]) -> int:
    missed = 0
    for mutant in wanted:
        steps = record(mutant)
        if steps is not None:
            keep(kept() | {mutant.name: steps})
        print(f"{'NOT FOUND' if steps is None else f'{len(steps):3} steps'}  {mutant.name}",
              flush=True)
        missed += steps is None
    return 1 if missed else 0


def outcome_on(mutant: Mutant) -> str:
    """Of its kept life on the mutant."""
    return apart(mutant.name, "--play", to_text(kept()[mutant.name])).strip()


def main(arguments: list[str]) -> int:
    """See the module; --play and --shorten read a life from standard input."""
    match arguments:
        case ["--play"]:
            print(lived(from_text(sys.stdin.read())))
        case ["--shorten"]:
            print(to_text(shorter(from_text(sys.stdin.read()),
                                  lambda steps: lived(steps) != QUIET)))
        case ["--record", *names]:
            return _record_all(mutants.chosen(names))
        case _:
            lost = 0
            for mutant in [each for each in MUTANTS if each.name in kept()]:
                outcome = outcome_on(mutant)
                print(f"{mutant.name}: {outcome}", flush=True)
                lost += outcome == QUIET
            return 1 if lost else 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
