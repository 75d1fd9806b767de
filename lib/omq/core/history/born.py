"""Which of some messages the journal and its archive know to be born."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from omq.base.paths import SpoolPaths
from omq.core.history.frames import History, put_with_id


def born_of(paths: SpoolPaths, keys: Iterable[int], after_lsn: int) -> frozenset[int] | None:
    """Those of these keys (format.message.id_hash) of which a message was put after an LSN, in one
    pass; None: the journal and its archive do not reach back so far, or are damaged there."""
    history, wanted = History(paths), np.array(sorted(set(keys)), dtype=np.uint64)
    reaches, found = False, set[int]()
    for block in history.learned():
        frames = block.frames
        reaches |= int(frames["lsn"][0]) <= after_lsn
        mine = put_with_id(frames, wanted) & (frames["lsn"] > after_lsn)
        found.update(frames["lease"][mine].tolist())
    return frozenset(found) if reaches and not history.findings else None
