"""The last request of each client, from its frames."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from omq.core.redo.last_requests import bounded, update_answers
from omq.format.journal import FrameType
from omq.format.poolctrl import Answered
from tests.unit.core.frames import TIME_NS, Frames

Row = tuple[FrameType, int, int]
rows = st.lists(st.tuples(st.sampled_from([FrameType.PUT, FrameType.GIVE, FrameType.DONE]),
                          st.integers(0, 3), st.integers(0, 6)), max_size=40)


def reference(listed: list[Row]) -> dict[int, Answered]:
    """One by one, as the words of the module say it."""
    out: dict[int, Answered] = {}
    for lsn, (kind, token, sequence) in enumerate(listed, 1):
        known = out.get(token, Answered(token, 0, 0, 0, 0))
        if not token or not sequence or sequence < known.sequence:
            continue
        if sequence > known.sequence:
            known = Answered(token, sequence, 0, 0, 0)
        known = replace(known, lsn=lsn, time_ns=TIME_NS, uid=5)
        if kind is FrameType.PUT:
            known = replace(known, qpool=known.qpool or lsn, count=known.count + 1)
        elif kind is FrameType.GIVE:
            known = replace(known, given=known.given or lsn, given_last=lsn)
        out[token] = known
    return out


@given(rows, st.integers(1, 10))
def test_any_division_gives_the_same_answers(listed: list[Row], size: int) -> None:
    clients: dict[int, Answered] = {}
    frames = Frames()
    for first in range(0, len(listed), size):
        for kind, token, sequence in listed[first : first + size]:
            frames.add(kind, frames.lsn + 1, token=token, sequence=sequence, uid=5)
        update_answers(clients, frames.block().frames)
    assert clients == reference(listed)


def test_a_late_hand_out_does_not_hide_a_later_request() -> None:
    frames = Frames()
    frames.add(FrameType.PUT, 7, token=1, sequence=6)
    frames.add(FrameType.GIVE, 8, token=1, sequence=5)
    clients: dict[int, Answered] = {}
    update_answers(clients, frames.block().frames)
    assert (clients[1].sequence, clients[1].qpool) == (6, 7)


def test_the_most_recent_clients_are_kept() -> None:
    clients = {token: Answered(token, 1, 0, 0, lsn=100 - token) for token in range(10)}
    assert set(bounded(clients, 3)) == {0, 1, 2}
    assert bounded(clients, 10) is clients
