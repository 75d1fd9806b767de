"""The last request of each client that was carried out, from the frames that it left in the
journal.

A client that lost its manager with a request under way asks the next one: "was my request n carried
out?". The answer must survive any crash, so it is redone from the journal like everything else and
kept in poolctrl at each checkpoint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from omq.base.arrays import Rows, picked
from omq.format.frame_rules import BY_NUMBER, Hand
from omq.format.journal import FrameFlag
from omq.format.poolctrl import Answered

_FIRST = ["token", "sequence", "type", "qpool", "lsn"]
_LAST = ["lsn", "uid", "time"]


def update_answers(clients: dict[int, Answered], frames: Rows) -> None:
    """Take in frames (in LSN order); only the rows of each client's last request are looked at.

    The last request is the one with the highest number: a hand-out for an older one that was still
    waiting may come after it in the journal."""
    mine = np.flatnonzero((frames["token"] != 0) & (frames["sequence"] != 0)
                          & (frames["flags"] & FrameFlag.MEMORY == 0))
    if not len(mine):
        return
    of, sequences = frames["token"][mine], frames["sequence"][mine]
    # A client's frames follow each other, so their runs are sorted, and not they themselves.
    first = np.flatnonzero(np.append(True, of[1:] != of[:-1]))
    tokens, which = np.unique(of[first], return_inverse=True)
    last = np.zeros(len(tokens), dtype=sequences.dtype)
    np.maximum.at(last, which, np.maximum.reduceat(sequences, first))
    for token, sequence in zip(tokens.tolist(), last.tolist(), strict=True):
        known = clients.get(token)
        if known is None or sequence > known.sequence:
            clients[token] = Answered(token, sequence, 0, 0, 0)
    lengths = np.diff(first, append=len(mine))
    rows = picked(frames, mine[sequences == np.repeat(last[which], lengths)])
    begins, ends = _runs(rows)
    runs = zip(rows[_FIRST][begins].tolist(), rows[_LAST][ends - 1].tolist(),
               (ends - begins).tolist(), strict=True)
    for (token, sequence, kind, qpool, first), (lsn, uid, when), count in runs:
        known = clients[token]
        if sequence < known.sequence:
            continue
        rule = BY_NUMBER[kind]
        if rule.makes:
            clients[token] = replace(known, qpool=known.qpool or qpool, count=known.count + count,
                                     lsn=lsn, uid=uid, time_ns=when)
        elif rule.hand is Hand.GIVEN:
            clients[token] = replace(known, given=known.given or first, given_last=lsn, lsn=lsn,
                                     uid=uid, time_ns=when)
        else:
            clients[token] = replace(known, lsn=lsn, uid=uid, time_ns=when)


def _runs(rows: Rows) -> tuple[Rows, Rows]:
    """Where rows of one client and type that follow each other begin, and end."""
    new = np.ones(len(rows), dtype=bool)
    new[1:] = (rows["token"][1:] != rows["token"][:-1]) | (rows["type"][1:] != rows["type"][:-1])
    begins = np.flatnonzero(new)
    return begins, np.append(begins[1:], len(rows))


def bounded(clients: dict[int, Answered], limit: int) -> dict[int, Answered]:
    """The `limit` most recent clients; but no user's are pushed out by another who has more: what
    is too much comes off the users with the most, their oldest first."""
    if len(clients) <= limit:
        return clients
    share = fair_share(Counter(each.uid for each in clients.values()), limit)
    kept, left = [], Counter[int]()
    for each in sorted(clients.values(), key=lambda c: c.lsn, reverse=True):
        if left[each.uid] < share:
            left[each.uid] += 1
            kept.append(each)
    return {client.token: client for client in reversed(kept)}


def fair_share(counts: Mapping[int, int], limit: int) -> int:
    """The most that each may have, so that all have `limit` at most: what those leave who want less
    is divided among the rest."""
    left, rest = limit, sorted(counts.values())
    for place, wanted in enumerate(rest):
        share = left // (len(rest) - place)
        if wanted > share:
            return share
        left -= wanted
    return limit
