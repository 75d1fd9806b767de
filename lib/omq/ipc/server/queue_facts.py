"""What a client may ask about a queue: what it is, and the facts of what is on it.

Only names that a client may do something with are listed (queue_plane). The facts cost one look
over the table of entries, so they are asked for, never kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from omq.base.arrays import Vector
from omq.base.defined_queue import keys_of
from omq.core.engine.engine import Engine
from omq.format.index import Counter, EntryState
from omq.format.pool import RECORD_BYTES

FILE, RUN_TIME, NOBODY = "queues.conf", "run time", "nobody"
_ACTIVE = int(EntryState.ACTIVE)


def defined(engine: Engine, name: str) -> dict[str, Any]:
    """What it is, in the words of queues.conf."""
    queues = engine.queues
    definition, conf = queues.definitions.get(name), queues.confs.get(name)
    keys = dict(definition.keys) if definition is not None else {}
    kind = queues.kind(name)
    number = queues.numbers.get(name, 0)
    return {
        "queue": name, "kind": kind.value if kind else "", "number": number,
        "by": RUN_TIME if definition is not None else FILE if conf is not None else NOBODY,
        "keys": {**(keys_of(conf) if conf is not None else {}), **keys},
        "messages": engine.index.q_depth[number] if number else 0}


def facts(engine: Engine, name: str) -> dict[str, Any]:
    """What is on it, and was; none of one that holds no messages."""
    queues, t = engine.queues, engine.index
    number = queues.numbers.get(name)
    if number is None:
        return {}
    entries = np.flatnonzero(_on(engine, number))
    slots = t.v["e_message"][entries]
    newest = int(slots[np.argmax(t.v["m_qpool"][slots])]) if len(slots) else -1
    return {
        "ready": t.q_ready[number], "active": t.q_active[number],
        "deferred": t.q_deferred[number], "held": t.q_held[number],
        "readers": queues.rows.readers(number), "ever": t.q_ever[number],
        "processed": t.q_processed[number],
        "high_water": max(t.q_depth[number], engine.statistics.peak(number)),
        "bytes": int(t.v["m_length"][slots].sum()),
        "blocks_used": int((t.v["m_length"][slots].astype("<u8") // RECORD_BYTES + 1).sum()),
        "last_message": int(t.m_qpool[newest]) if newest >= 0 else 0,
        "last_message_ns": int(t.m_time[newest]) if newest >= 0 else 0,
        "keys": queues.remembered(name), **queues.limits_told(number)}


def messages_of(engine: Engine, number: int, until: int, most: int) -> list[int]:
    """QPoolIds of messages that are on a queue since this LSN and that no reader has."""
    t = engine.index
    high = int(t.counters[Counter.ENTRIES_HIGH])
    chosen = (_on(engine, number) & (t.v["e_state"][:high] != _ACTIVE)
              & (t.v["e_sequence"][:high] <= until))
    slots = t.v["e_message"][np.flatnonzero(chosen)[:most]]
    return [int(qpool) for qpool in t.v["m_qpool"][slots]]


def _on(engine: Engine, number: int) -> Vector:
    t = engine.index
    high = int(t.counters[Counter.ENTRIES_HIGH])
    return np.asarray((t.v["e_queue"][:high] == number) & (t.v["e_state"][:high] != 0))
