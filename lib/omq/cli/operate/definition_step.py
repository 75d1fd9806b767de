"""One definition of a file that is taken in (`definition_plan`): what happens to it, and how."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

NEW, CHANGED, SAME = "defined", "altered", "the same"
PAUSED, RESUMED = "paused", "resumed"


@dataclass(slots=True)
class Step:
    """`outcome`: one of the above; `work` is None when there is nothing to do; `goes_after`: names
    of those that have to be there first."""

    kind: str
    name: str
    outcome: str
    work: Callable[[], object] | None = None
    goes_after: tuple[str, ...] = ()

    @property
    def record(self) -> dict[str, str]:
        return {"kind": self.kind, "name": self.name, "outcome": self.outcome}


def in_order(steps: Sequence[Step]) -> list[Step]:
    """Each after those that it names; in a ring, by name."""
    left = {each.name: each for each in sorted(steps, key=lambda each: each.name)}
    found: list[Step] = []
    while left:
        free = [each for each in left.values() if not any(
            other in left and other != each.name for other in each.goes_after)]
        for each in free or [next(iter(left.values()))]:
            found.append(left.pop(each.name))
    return found
