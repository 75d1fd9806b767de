"""How barriers end: the frames, then the tables (core.engine.barriers has the rules and the crash
argument).

`failing` is called before the frame of a member that ends without being done, in the block that
`room` was reserved in. `fire` ends the others, after the requests of a group.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from omq.base.errors import BadRequest, SpoolFull
from omq.core.engine.barriers import MEMBER, Failed
from omq.core.engine.settle import EVIDENCE_BYTES, frame_for, poison
from omq.core.engine.state import Core
from omq.core.engine.transitions import Event, after
from omq.format.frame_rules import Reason
from omq.format.index import Counter, EntryState
from omq.format.journal import FrameType
from omq.format.message import derived_id

RETRY_NS: Final = 1_000_000_000
_DEFERRED = int(EntryState.DEFERRED)
_READY, _FAILED = int(Counter.BARRIERS_READY), int(Counter.BARRIERS_FAILED)


def room(core: Core, slots: Iterable[int]) -> tuple[int, int]:
    """Frames and payload bytes that `failing` needs for these messages. BadRequest: more than half
    of what a block holds."""
    barriers = core.barriers
    if not barriers.members:
        return 0, 0
    found = {entry for slot in slots if core.t.m_flags[slot] & MEMBER
             for entry in barriers.members[core.t.m_qpool[slot]]}
    if len(found) > core.block.frames_max // 2:
        raise BadRequest(reason=f"{len(found)} barriers wait for these messages: order fewer")
    return len(found), len(found) * EVIDENCE_BYTES


def failing(core: Core, slot: int, words: str) -> None:
    """A member ends without being done; its own frame is not written yet."""
    barriers, qpool = core.barriers, core.t.m_qpool[slot]
    for entry in tuple(barriers.members.get(qpool, ())):
        _end(core, entry, barriers.due.get(entry) or Failed(Reason.MEMBER_FAILED, qpool, words))


def fire(core: Core) -> None:
    """End the waiting of those that are due, as far as the disk has room."""
    barriers = core.barriers
    if core.mono_ns < barriers.paused_until:
        return
    for entry, failed in tuple(barriers.due.items()):
        try:
            core.block.reserve(1, EVIDENCE_BYTES if failed else 0)
        except SpoolFull:
            core.space_left = False
            barriers.paused_until = core.mono_ns + RETRY_NS
            return
        _end(core, entry, failed)


def _end(core: Core, entry: int, failed: Failed | None) -> None:
    t = core.t
    t.counters[_READY if failed is None else _FAILED] += 1
    if failed is None:
        assert after(Event.RELEASE, _DEFERRED) is EntryState.READY
        frame_for(core, FrameType.RELEASE, 0, entry, None, reason=Reason.MEMBERS_DONE)
        core.back(entry)
        return
    qpool, queue = t.m_qpool[t.e_message[entry]], t.e_queue[entry]
    known = f"message {derived_id(core.uuid, failed.member).hex()}: " if failed.member else ""
    poison(core, entry, None, 0, 0, reason=failed.reason, evidence={
        "reason": known + failed.words, "member": failed.member, "time_ns": core.now_ns})
    core.barriers.told(core.dead(qpool, queue, failed.reason, 0))
