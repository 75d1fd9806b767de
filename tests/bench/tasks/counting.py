"""What was sent and what was done, as the files say that tests.bench.tasks.app writes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.peers.processes import pause

QUIET_S: Final = 20.0
"""So long nothing is done: what is missing then does not come by itself."""
LOOK_S: Final = 0.05


@dataclass(frozen=True)
class Count:
    """Of tasks: acknowledged to who sent them; of these never done; done more than once."""

    sent: int
    lost: int
    twice: int


def sent(path: Path) -> set[int]:
    """What `apply_async` has returned for."""
    file = Path(f"{path}.sent")
    return {int(word) for word in file.read_text().split()} if file.exists() else set()


def done(path: Path) -> list[tuple[int, float, float]]:
    """Number, sent, done of each line; a task that was done twice has two."""
    if not path.exists():
        return []
    return [(int(number), float(begin), float(end)) for number, begin, end in
            (line.split() for line in path.read_text().splitlines())]


def until_quiet(path: Path, wanted: set[int], quiet_s: float) -> set[int]:
    """Until all is done, or nothing was for so long; what is done."""
    found: set[int] = set()
    ends = time.monotonic() + quiet_s
    while True:
        more = {number for number, _, _ in done(path)}
        if more != found:
            found, ends = more, time.monotonic() + quiet_s
        if wanted <= found or time.monotonic() >= ends:
            return found
        pause(LOOK_S)


def count(path: Path, quiet_s: float = QUIET_S) -> Count:
    """When nothing moves any more. More may be done than was acknowledged: an answer was missed."""
    wanted = sent(path)
    ended = until_quiet(path, wanted, quiet_s)
    return Count(len(wanted), len(wanted - ended), len(done(path)) - len(ended))
