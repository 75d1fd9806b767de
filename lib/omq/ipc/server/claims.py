"""What a client that has outlived its manager says it holds, as far as it has said it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Claims:
    """See the module. `given`: as core.engine.leases_resumed has it; `unit`: it had a unit of work
    open."""

    given: tuple[int, int]
    unit: bool
    held: list[tuple[int, int]] = field(default_factory=list)  # (QPoolId, lease)
    took: list[tuple[int, int]] = field(default_factory=list)
