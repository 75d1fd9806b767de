"""The last request of each client that was carried out, from the frames that it left in the
journal.

A client that lost its manager with a request under way asks the next one: "was my request n carried
out?". The answer must survive any crash, so it is redone from the journal like everything else and
kept in poolctrl at each checkpoint.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from omq.format.journal import FrameType
from omq.format.poolctrl import Answered


def update_answers(clients: dict[int, Answered], frames: np.ndarray[Any, np.dtype[Any]]) -> None:
    """Take in frames (in LSN order); only the rows of each client's last request are looked at."""
    mine = frames[(frames["token"] != 0) & (frames["sequence"] != 0)]
    if not len(mine):
        return
    tokens, last_from_end, which = np.unique(
        mine["token"][::-1], return_index=True, return_inverse=True)
    sequences = mine["sequence"]
    last_sequence = sequences[len(mine) - 1 - last_from_end]
    final = sequences == last_sequence[which[::-1]]
    rows = mine[final]
    for token, sequence in zip(tokens.tolist(), last_sequence.tolist(), strict=True):
        known = clients.get(token)
        if known is None or sequence > known.sequence:
            clients[token] = Answered(token, sequence, 0, 0, 0)
    columns = zip(rows["token"].tolist(), rows["type"].tolist(), rows["qpool"].tolist(),
                  rows["lsn"].tolist(), rows["uid"].tolist(), rows["time"].tolist(), strict=True)
    for token, kind, qpool, lsn, uid, when in columns:
        known = clients[token]
        if kind == FrameType.PUT:
            clients[token] = replace(known, qpool=known.qpool or qpool, count=known.count + 1,
                                     lsn=lsn, uid=uid, time_ns=when)
        elif kind == FrameType.GIVE:
            clients[token] = replace(known, given=known.given or lsn, given_last=lsn, lsn=lsn,
                                     uid=uid, time_ns=when)
        else:
            clients[token] = replace(known, lsn=lsn, uid=uid, time_ns=when)


def bounded(clients: dict[int, Answered], limit: int) -> dict[int, Answered]:
    """The `limit` most recent clients."""
    if len(clients) <= limit:
        return clients
    kept = sorted(clients.values(), key=lambda c: c.lsn)[-limit:]
    return {client.token: client for client in kept}
