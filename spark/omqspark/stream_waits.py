"""What a stream waits for, said on stderr: once for each hole, not once for each trigger."""

from __future__ import annotations

import sys
from dataclasses import dataclass


def missing_text(first: int, last: int) -> str:
    """That files with these numbers are not there."""
    if first == last:
        return f"file number {first} is missing"
    return f"file numbers {first} to {last} are missing"


@dataclass
class Waiting:
    """A stream that stops before a missing file. `where`: its spool or archive."""

    where: str
    said: tuple[int, int] = (0, 0)

    def tell(self, first: int, last: int, following: int) -> None:
        """Files `first` to `last` are missing in front of `following`."""
        if self.said != (first, last):
            self.said = first, last
            sys.stderr.write(f"omq-spark: {self.where}: {missing_text(first, last)} before file "
                             f"{following}: the stream waits; put it there, or begin with the "
                             "option waitForMissing=false, which goes on after it\n")
            sys.stderr.flush()
