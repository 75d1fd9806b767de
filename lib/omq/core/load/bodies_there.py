"""Are the files there in which bodies of messages lie, and long enough? One look for each file: a
journal or store file that is gone or cut is told at the start, not only by the readers of its
messages. What is in a file is checked when a body is read; containers, one file a message, then.

Nothing is written. Errors: DiskError.
"""

from __future__ import annotations

import numpy as np

from omq.base.paths import SpoolPaths
from omq.core.engine.state import Core
from omq.format.findings import Finding, Kind
from omq.storage import durable
from omq.storage.payloads import payload_paths


def missing_bodies(core: Core, paths: SpoolPaths) -> list[Finding]:
    """A finding for each file that is missing or ends before a body in it does. The tables hold the
    messages of the pool, and nothing else yet."""
    v = core.t.v
    used = np.flatnonzero(v["m_qpool"][: core.t.messages.high])
    words, places, counts = np.unique(v["m_location"][used], return_inverse=True,
                                      return_counts=True)
    ends = np.zeros(len(words), dtype=np.int64)
    last = v["m_offset"][used].astype(np.int64) + v["m_length"][used]
    np.maximum.at(ends, places, last)
    out = []
    for word, end, count in zip(words.tolist(), ends.tolist(), counts.tolist(), strict=True):
        candidates = payload_paths(paths, word)
        sizes = [found.st_size for path in candidates if (found := durable.status(path))]
        if candidates and (not sizes or max(sizes) < end):
            state = f"cut: {max(sizes)} bytes, a body ends at {end}" if sizes else "missing"
            out.append(Finding(Kind.GAP, f"{state}; {count} messages have their bodies in it",
                               candidates[0].name))
    return out
