"""Asks: a request of a requester, put in the same step in which it settles what it had before.

Frames: those of the settlements, then PUT, in one block, so that all of it counts or nothing; the
QPoolId is the answer. The wait for the reply is not journaled, as no wait is: who loses its manager
meanwhile learns that the request was put, and under which number, and waits anew.

Errors: those of core.engine.puts, before anything is changed; BadRequest.
"""

from __future__ import annotations

from collections.abc import Sequence

from omq.core.engine.engine import Engine
from omq.core.engine.puts import END, NO_PLACE, NewMessage, append, check, place_bodies, rows_kept
from omq.core.engine.settle import Verdict, checked, payload_bytes, settle
from omq.core.engine.state import PERSISTENT, Party
from omq.format.index import Counter
from omq.format.message import derived_id, id_hash

_PUTS = int(Counter.PUTS)


def ask(engine: Engine, party: Party, verdicts: Sequence[Verdict], new: NewMessage, sequence: int
        ) -> tuple[int, int, int]:
    """QPoolId of the request, the hash of the correlation id that its reply has, and how many
    settlements did not hold."""
    core = engine.core
    checked(verdicts)
    parts = check(core, new, rows_kept(core, party))
    core.block.reserve(1 + len(verdicts), payload_bytes(verdicts) + len(new.payload))
    body = NO_PLACE if new.flags & PERSISTENT else place_bodies(core, [new])[0]
    lost = settle(core, party, verdicts, sequence, engine.poisoned.append, ends=False
                  ) if verdicts else 0
    core.t.counters[_PUTS] += 1
    qpool = append(core, party, new, parts, sequence, END, 0, body)
    return qpool, id_hash(derived_id(core.uuid, qpool)), lost
