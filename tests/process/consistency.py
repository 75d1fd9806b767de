"""The check that ends every test: does the index of a live manager agree with itself?

It reads the segment, read-only, between two groups. Errors: AssertionError.
"""

from __future__ import annotations

import time

from omq.base.paths import SpoolPaths
from omq.core.check import invariants
from omq.storage.segment import AttachedIndex

WAIT_S = 120.0


def check_index(paths: SpoolPaths) -> None:
    """Every rule of omq.core.check.invariants, for the manager that runs on this spool."""
    attached = AttachedIndex(paths)
    try:
        deadline = time.monotonic() + WAIT_S
        while (copy := invariants.snapshot(attached.buffer, attached.header.size)) is None:
            assert time.monotonic() < deadline, "the manager is never between two groups"
        found = invariants.check_index(copy, attached.header.layout())
        assert found == [], found
    finally:
        attached.close()
