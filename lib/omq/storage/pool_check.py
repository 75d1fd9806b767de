"""Are the pool files what was written into them? Absence is damage: a file that is missing, cut,
emptied, older, another instance's or exchanged, and a record that was overwritten with zeros, look
like messages that have ended. What each file must hold says poolctrl, or after a checkpoint that a
crash cut the double-write file (omq.format.pool_contents).

A file in which records fail their CRC, but none is missing, is not told here again: these records
are findings of the scan, and everything else in it is served.

Nothing is written. Errors: DiskError.
"""

from __future__ import annotations

from collections.abc import Iterable

from omq.base.limits import POOL_FILES_MAX
from omq.format.findings import Finding, Kind
from omq.format.pool_contents import Content, Contents
from omq.storage.pool import PoolFiles, differs


def check_contents(pool: PoolFiles, possible: list[Contents]) -> tuple[Contents, list[Finding]]:
    """The contents that fit best of those that are possible (at least one), and a finding (GAP) for
    each pool file that differs from them."""
    found = {file: pool.count(file) for file in pool.files()}
    best = min(possible, key=lambda contents: len(different(contents, found)))
    return best, [Finding(Kind.GAP, differs(best.get(file, Content()), found.get(file)),
                          f"{file}QP", lsn=found.get(file, Content()).lsn)
                  for file in different(best, found)
                  if not _only_damaged(pool, file, best.get(file, Content()))]


def different(should: Contents, found: Contents) -> list[int]:
    """The files that are not what they should be. One that should be empty may be missing."""
    return [file for file in sorted({*should, *found})
            if not should.get(file, Content()).like(found.get(file, Content()))]


def _only_damaged(pool: PoolFiles, file: int, should: Content) -> bool:
    """Are there as many records as should be, and some of them fail their checks?"""
    damaged = used = 0
    for chunk in pool.scan(file):
        if any(finding.record < 0 and finding.kind is not Kind.CORRUPT
               for finding in chunk.findings):
            return False
        bad = sum(finding.record >= 0 for finding in chunk.findings)
        damaged += bad
        used += bad + int(chunk.live.sum()) + int(chunk.more.sum())
    return bool(damaged) and used == should.used


def missing_files(pool: PoolFiles, counted: int) -> Iterable[Finding]:
    """Where poolctrl of format 1 tells no more than the number of files: they have the first
    numbers."""
    there = pool.files()
    if len(there) < counted:
        for file in sorted({*range(min(counted, POOL_FILES_MAX))} - {*there}):
            yield Finding(Kind.GAP, f"missing; the last checkpoint counted {counted} pool files, "
                          f"{len(there)} are there", f"{file}QP")
